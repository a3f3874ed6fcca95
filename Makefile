# The two commands: `make bench` (the main job) and `make test`. Each sets up what it needs.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

TARGET := $(or $(CARGO_TARGET_DIR),target)
DEBUG := $(TARGET)/debug/confide
# `make walk PROFILE=dev` and `make bench PROFILE=dev` take the binaries that `make unit` has tested.
PROFILE ?= release
BINARY := $(TARGET)/$(if $(filter dev,$(PROFILE)),debug,release)/confide
# What `make unit` has built of the Python package, for tests that run the checkout's.
NATIVE := $(abspath $(TARGET)/debug/lib_native.so)
VENV := .venv
# The zkVM's workspace: where a target folder is given, both use it.
ZKVM_TARGET := $(abspath $(or $(CARGO_TARGET_DIR),zkvm/target))
PROVER := $(ZKVM_TARGET)/release/confide-prover
# SP1's leaves gigabytes: a folder of its own.
SP1_TARGET ?= $(abspath bench/peers/sp1/target)
OUT ?= bench-out
BENCH_FLAGS ?= --quick
FUZZ_SECONDS ?= 2
DIFFERENTIAL_SECONDS ?= 20
SOAK_SECONDS ?= 300

.PHONY: help bench build operator operators-build libraries semver protocols idle llama faults traffic agents prover zkvm-test zkvm-keys test style python-style unit no-std web clients page web-provider guests programs vectors python examples examples-all transport-cost native portable wheel sigma disclosure receipts authenticators encrypted-bodies ehbp-peers peft seal statistics kernels worker torch peers peers-sp1 foreign go selftest fuzz differential soak walk long clean tools cxx

help:  ## list the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## */\t/' | expand -t 12

bench: build  ## the main job: an attested chat on loopback, and what each layer of it costs
	@# Status 3: all of it ran, but the A/A rows say that this machine was too unsteady just now.
	$(BINARY) bench run main $(BENCH_FLAGS) --out $(OUT) || [ $$? -eq 3 ]

build: tools  ## the release binaries: confide, and the arms of its instrument
	$(if $(filter dev,$(PROFILE)),$(LINTED) cargo build --workspace --all-targets,cargo build --release \
	  -p confide-cli -p confide-arms -p confide-tools -p confide-arm-dcap-qvl) --locked

operator: tools  ## confide-operator, for images and packages: no simulator, no instrument
	cargo build --release --locked -p confide-cli --no-default-features --features operator --bin confide-operator

prover: tools  ## the zkVM back end, put next to the binary (5 minutes of two cores, once)
	cd zkvm && CARGO_TARGET_DIR=$(ZKVM_TARGET) cargo build --release --locked
	@for folder in $(TARGET)/release $(TARGET)/debug; do mkdir -p $$folder; \
	  [ $(PROVER) -ef $$folder/confide-prover ] || cp $(PROVER) $$folder/confide-prover; done

peers-sp1: tools  ## SP1's core prover, for `confide bench run zk` (522 packages; 11 GiB for a proof)
	CARGO_TARGET_DIR=$(SP1_TARGET) bench/peers/sp1/build.sh $(TARGET)/release $(TARGET)/debug

zkvm-test: prover  ## proofs of small inputs, and forgeries that must not pass
	cd zkvm && cargo fmt --all --check
	cd zkvm && CARGO_TARGET_DIR=$(ZKVM_TARGET) cargo test --release --locked --workspace
	@# The programs in the executor are compared with the same programs outside it, on hostile inputs too.
	cd guests && CONFIDE_PROVER=$(PROVER) cargo test --locked --features host --test emulated
	cd guests/dcap && CONFIDE_PROVER=$(PROVER) cargo test --locked --test emulated
	@# `unit` does the same through the command line (prove_real), with the prover built before it.

zkvm-keys: prover  ## the keys that check, after a guest or the back end changed
	$(PROVER) keys --elf guests/elf --out zkvm/keys --digests guests/elf/digests.toml
	$(MAKE) prover

test: style python-style prover unit operators-build libraries no-std web-provider web programs vectors python examples sigma disclosure receipts authenticators encrypted-bodies peft seal statistics kernels worker go clients selftest fuzz differential zkvm-test  ## everything that CI checks
	@echo "all tests passed"

# Clippy's driver compiles as rustc does and lints on the way: what is tested is built and linted at once.
LINTED := RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-Dwarnings

style: tools  ## rustfmt on all Rust (clippy's warnings are denied where the tests are built)
	@cargo fmt --version >/dev/null && cargo clippy --version >/dev/null || { \
	  echo "cargo has no rustfmt or no clippy: rustup component add rustfmt clippy"; exit 1; }
	cargo fmt --all --check

python-style:  ## ruff and mypy on all Python (skipped where the wheels are missing)
	tests/python_style.sh

unit: tools  ## the tests in the packages and across processes
	@# All targets, so that the tests build no dependency a second time with other features.
	$(LINTED) cargo build --workspace --all-targets --locked
	$(LINTED) python3 tests/run_tests.py
	$(LINTED) cargo test --workspace --locked --doc

operators-build: unit  ## what the operator's build refuses, and what it does
	$(LINTED) cargo build --locked -p confide-cli --no-default-features --features operator --bin confide-operator
	tests/operator.sh $(TARGET)/debug/confide-operator $(DEBUG)

# The packages that others can depend on; `confide-` is put before each name.
LIBRARIES := $(addprefix -p confide-,evidence verifier channel rlwe lora sigma transcript disclosure estimate)

libraries: tools  ## the libraries' pages without warnings, and each library as a registry's package
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --locked $(LIBRARIES)
	cargo package --no-verify --allow-dirty --locked --quiet $(LIBRARIES)

semver: tools  ## the version that changes of the libraries' public items since BASE ask for
	tests/semver.sh "$(LIBRARIES)" $(BASE)

protocols: build  ## h2spec and sslyze against the gateway (skipped where Go or the wheels are missing)
	tests/h2spec.sh $(abspath $(BINARY))
	tests/tls_scan.sh $(abspath $(BINARY))

idle: build  ## memory of the gateway and the kernel for each of 200,000 idle connections (18,000 without root)
	python3 tests/idle_connections.py $(BINARY)
	python3 tests/idle_connections.py $(BINARY) --before-request

llama: build  ## measured weights and receipts in front of a real llama.cpp server (skipped where its wheel is missing)
	tests/llama.sh $(abspath $(BINARY))

faults: build  ## the gateway while everything around it fails: figures, and promises that must hold (three minutes)
	python3 tests/gateway_faults.py $(BINARY)

traffic: build  ## attacks on what encrypted traffic and a shared prefix cache tell, without and with what hides it (15 minutes)
	python3 tests/traffic_attack.py $(BINARY) --steps-too
	python3 tests/cache_attack.py $(BINARY)

no-std: tools  ## the appraisal builds for a target that has no std
	tests/no_std.sh

web: unit  ## the package for browsers and Node: its size, and chats through the tunnel (skipped where it cannot be built)
	tests/web.sh $(abspath $(DEBUG))

page: tools  ## the page for visitors, one file, with its SHA-256: web/dist
	web/build.sh
	node web/bundle.mjs

web-provider: tools  ## the TLS provider in Rust alone against aws-lc-rs: each suite and group as client and as server
	cd web && cargo fmt --all --check
	@# In the same folder as the others: aws-lc-rs is not compiled a second time.
	cd web && CARGO_TARGET_DIR=$(abspath $(TARGET)) $(LINTED) cargo test --locked -p confide-web --features plain

guests:  ## rebuild the programs for the zkVM (needs rustc-web, cargo-web, rust-web-src, lld)
	guests/build.sh

programs: tools  ## the zkVM's programs natively; their ELFs are what their source gives
	cd guests && $(LINTED) cargo test --locked --features host
	cd guests/dcap && cargo test --locked
	guests/build.sh --compare

vectors: unit  ## foreign attestation vectors, through the command line
	@if [ -d ../shared/vectors ]; then \
	  python3 ../shared/vectors/run.py $(DEBUG) ../shared/vectors --snp; \
	else echo "skipped: no foreign vectors"; fi

python: unit $(VENV)/ready  ## the openai package and curl against the server, and the openai package over attested connections
	CONFIDE_BIN=$(DEBUG) $(VENV)/bin/python tests/python/test_openai.py
	CONFIDE_BIN=$(DEBUG) $(VENV)/bin/python tests/python/test_client.py

examples: web $(VENV)/ready  ## the programs in examples/, and what each refuses (those for Node are skipped without WebAssembly)
	tests/examples.sh $(DEBUG) $(VENV)/bin/python

examples-all: build $(if $(filter dev,$(PROFILE)),,native) $(VENV)/ready  ## the same with LangChain, LiteLLM and LlamaIndex (1 GB; skipped where they cannot be had)
	tests/examples.sh $(BINARY) $(VENV)/bin/python --all

transport-cost: build $(if $(filter dev,$(PROFILE)),,native) $(VENV)/ready  ## what the Python package costs per request, next to plain httpx2
	$(VENV)/bin/python tests/python/transport_cost.py $(BINARY)

native: tools  ## the package's native part for the Python of this checkout: target/release/lib_native.so (docs/gpu.md)
	cargo build --release --locked -p confide-python

portable: build  ## the caller's program for Windows and aarch64, run by Wine and QEMU; its types for macOS (docs/platforms.md)
	tests/portable.sh $(if $(filter dev,$(PROFILE)),--dev) $(abspath $(BINARY))

wheel: build  ## dist/*.whl: the Python package with its native part and the program (docs/python.md)
	tests/wheel.sh $(abspath $(BINARY))

sigma: tools  ## sigma proofs, by a second checker written from docs/sigma-proofs.md
	python3 tests/python/check_sigma.py vectors/sigma

disclosure: tools  ## disclosures, by a second checker written from docs/disclosure.md
	python3 tests/python/check_disclosure.py

receipts: tools  ## receipts of answers, by a second checker written from docs/receipts.md
	python3 tests/python/check_receipt.py
	python3 tests/python/check_excerpt.py

authenticators: tools  ## exported authenticators, by a second implementation of docs/channel-3.md
	python3 tests/python/check_authenticator.py

encrypted-bodies: tools  ## encrypted bodies, by a second reader written from docs/encrypted-bodies.md
	python3 tests/python/check_encrypted_body.py
	python3 tests/python/check_ohttp.py

ehbp-peers: build  ## clients of EHBP that others wrote, against the gateway (skipped where they cannot be had)
	tests/ehbp_peers.sh $(BINARY)

agents: build  ## coding agents that others wrote, configured by `confide connect --for` (skipped where they cannot be had)
	tests/agents.sh $(BINARY)

peft: tools  ## PEFT's own deltas compared with ours (skipped where torch is missing)
	tests/peft.sh

seal: tools  ## SEAL's ring arithmetic and slots compared with ours (skipped where its wheel is missing)
	tests/seal.sh

peers:  ## GuideLLM and AIPerf, for `confide bench run peers` (1.4 GB; skipped where they cannot be had)
	bench/peers/venv.sh guidellm
	bench/peers/venv.sh aiperf

foreign:  ## the load generator against `transformers serve` (skipped where it is missing)
	tests/foreign.sh

statistics: tools  ## scipy's, arch's and ruptures' answers compared with ours (skipped where the wheels are missing)
	tests/statistics.sh

kernels: unit cxx  ## CUDA kernels: compiled for three GPUs, run on the CPU (skipped where the wheels are missing)
	CONFIDE_NATIVE=$(NATIVE) tests/kernels.sh

worker: unit  ## the torch worker and adapters in Python, on the CPU (skipped where torch is missing: make torch)
	CONFIDE_BIN=$(abspath $(DEBUG)) CONFIDE_NATIVE=$(NATIVE) tests/worker.sh

torch: tools  ## torch and transformers for `make worker` and `confide serve --engine worker` (5.6 GB)
	tests/worker.sh --install

go: unit  ## the Go module against gateways, and Google's Go libraries against the simulated attester (skipped where Go is missing)
	@PATH=$$PATH:/usr/local/go/bin; if command -v go >/dev/null; then \
	  cd tests/go && GOFLAGS=-mod=readonly go vet ./...; \
	else echo "skipped: no Go"; fi
	tests/go_client.sh $(abspath $(DEBUG))

clients: unit $(VENV)/ready  ## every client against every kind of listener, and what each refuses (those that cannot be built are skipped)
	tests/clients.sh $(DEBUG) $(VENV)/bin/python

selftest: unit  ## the instrument finds a known delay and stays quiet without one
	@# A busy machine may need more blocks to see 5 or 2 %. Status 4: nothing failed, and not even 400 blocks
	@# could tell a known delay on this machine just now. It is no pass where another run gave a wrong answer.
	@is_wrong=; for blocks in 30 60 400; do \
	  status=0; $(DEBUG) bench selftest --blocks $$blocks || status=$$?; \
	  case $$status in 0) exit 0;; 4) ;; *) is_wrong=1;; esac; \
	done; \
	[ -z "$$is_wrong" ] && echo "selftest: undecided on this machine"

fuzz: tools cxx  ## each parser, FUZZ_SECONDS each
	tests/fuzz.sh $(FUZZ_SECONDS)

differential: tools  ## verdicts compared with dcap-qvl's on mutated evidence, DIFFERENTIAL_SECONDS of it
	CONFIDE_FUZZ_SECONDS=$(DIFFERENTIAL_SECONDS) $(LINTED) cargo test --locked --workspace \
	  --test differential -- --nocapture

soak: tools  ## store, service and clock fail for SOAK_SECONDS; `make test` does 12 of them
	CONFIDE_SOAK_SECONDS=$(SOAK_SECONDS) cargo test --locked -p confide-appraiser --test soak -- \
	  --nocapture

walk: build prover $(VENV)/ready  ## runs what the README and five guides say, command by command
	python3 tests/walk.py $(BINARY)
	python3 tests/walk.py $(BINARY) docs/start.md
	python3 tests/walk.py $(BINARY) docs/notary.md
	@# A wheel is a release build: without one, the package of the checkout takes its place, and the walk says so.
	python3 tests/walk.py $(BINARY) docs/python.md $(if $(filter dev,$(PROFILE)),--without-wheel $(VENV))
	python3 tests/walk.py $(BINARY) docs/web.md
	@if reason=$$(tests/has_go.sh); then PATH=$$PATH:/usr/local/go/bin python3 tests/walk.py $(BINARY) docs/go.md; \
	else echo "skipped: docs/go.md: $$reason"; fi

long: build prover seal walk wheel  ## what CI has no time for: the release build, ten minutes of fuzzing a parser, the full suites
	tests/fuzz.sh 600
	cargo package --allow-dirty --locked $(LIBRARIES)
	$(MAKE) semver
	$(MAKE) protocols
	$(MAKE) differential DIFFERENTIAL_SECONDS=600
	$(MAKE) soak
	$(MAKE) faults
	$(MAKE) llama
	$(MAKE) traffic
	$(MAKE) ehbp-peers
	$(MAKE) agents
	$(MAKE) portable
	$(MAKE) examples-all
	$(MAKE) transport-cost
	cargo test --release --locked -p confide-native -- --ignored
	@# Clippy checks all of OpenVM anew: minutes that CI does not have.
	cd zkvm && CARGO_TARGET_DIR=$(ZKVM_TARGET) cargo clippy --release --locked --all-targets -- -D warnings
	cd guests/dcap && cargo clippy --locked --all-targets -- -D warnings
	cd zkvm && CARGO_TARGET_DIR=$(ZKVM_TARGET) cargo test --release --locked -- --ignored
	cd zkvm && CARGO_TARGET_DIR=$(ZKVM_TARGET) CONFIDE_MUTATIONS=20000 cargo test --release --locked \
	  --test mutations
	cargo test --locked -p confide-cli --test bench_load --test prove_dcap --test prove_aggregated \
	  -- --ignored
	for suite in verify generate batch collateral nested chat chat-networks connect adapters gateway llm storage cpu memory \
	  jitter network zk tls-claims; do \
	  $(BINARY) bench run $$suite --full --out $(OUT)/$$suite || [ $$? -eq 3 ]; done
	@# The last one, so that the others run although it fails: an idle connection takes more than it may.
	$(MAKE) idle

$(VENV)/ready: tests/python/requirements.txt
	python3 -m venv $(VENV) || { echo "python3 has no venv: ask for the package python3-venv"; exit 1; }
	$(VENV)/bin/pip install --quiet --disable-pip-version-check -r tests/python/requirements.txt
	touch $@

tools:
	@for tool in cargo cc python3; do command -v $$tool >/dev/null || { \
	  echo "$$tool is missing: ask for Rust 1.95 or newer (cargo), gcc (cc) or python3"; exit 1; }; done

cxx:
	@command -v $${CXX:-c++} >/dev/null || { echo "c++ is missing: ask for g++, libFuzzer is C++"; exit 1; }

clean:  ## remove what was built
	cargo clean
	rm -rf $(SP1_TARGET) $(VENV) .venv-seal .venv-statistics .venv-guidellm .venv-aiperf .venv-foreign .venv-kernels .venv-worker .venv-style .venv-tls .venv-wheel .venv-examples .venv-llamaindex .venv-start examples/node/node_modules \
	  bench-out dist
