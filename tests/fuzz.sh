#!/usr/bin/env bash
# Runs each fuzz target for the given seconds, one on each core, starting from its seed corpus where it has one.
# A run of a minute and more is built with full optimisation, and with instrumentation in all packages. A shorter one is
# built as the tests are, and only this workspace's packages are instrumented: what the tests have built is used again.
# Needs no nightly toolchain and no cargo-fuzz: without sanitizers libFuzzer builds on stable.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-5}

log=$(mktemp -d)
trap 'rm -rf "$log"' EXIT
targets=$(sed -n 's/^name = "\(.*\)"$/\1/p' fuzz/Cargo.toml | grep -v '^confide-fuzz$')
instrumentation="--cfg fuzzing -Cdebug-assertions -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares"
folder=${CARGO_TARGET_DIR:-target}

build_for_long() {
  local host
  host=$(rustc -vV | sed -n 's/^host: //p')
  built=$folder/$host/release
  # With a target named, build scripts and macros are not instrumented.
  CARGO_PROFILE_RELEASE_DEBUG=line-tables-only RUSTFLAGS="$instrumentation" \
    cargo build -p confide-fuzz --features libfuzzer --release --locked --target "$host"
}

build_for_short() {
  built=$folder/debug
  # All of the workspace is named, and a test: its packages then have the features that the tests have built.
  # shellcheck disable=SC2046
  RUSTC_WORKSPACE_WRAPPER=$PWD/tests/instrumented_rustc.sh CONFIDE_INSTRUMENTATION="$instrumentation" \
    cargo build --workspace --features confide-fuzz/libfuzzer --locked --test features \
    $(printf -- '--bin %s ' $targets)
}

echo "fuzz: building the targets"
if [ "$seconds" -ge 60 ]; then build=build_for_long; else build=build_for_short; fi
$build >"$log/build" 2>&1 || { cat "$log/build"; exit 1; }

# run TARGET: what it printed is shown only when it failed.
run() {
  mkdir -p "fuzz/corpus/$1" "fuzz/artifacts/$1"
  local inputs=("fuzz/corpus/$1")
  [ -d "fuzz/seeds/$1" ] && inputs+=("fuzz/seeds/$1")
  if ! "$built/$1" "${inputs[@]}" -artifact_prefix="fuzz/artifacts/$1/" -max_total_time="$seconds" \
    -max_len=65536 -timeout=10 -rss_limit_mb=2048 >"$log/$1" 2>&1; then
    tail -40 "$log/$1"
    echo "fuzz target $1 failed: its input lies under fuzz/artifacts/$1"
    return 255
  fi
  printf '%-18s survived %s s: %s\n' "$1" "$seconds" "$(grep -a '^Done' "$log/$1" || true)"
}
export -f run
export built log seconds
# xargs starts no further target once one has failed (255).
printf '%s\n' "$targets" | xargs -P "$(nproc)" -I{} bash -c 'run "$1"' _ {}
