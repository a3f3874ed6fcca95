#!/usr/bin/env bash
# Runs each fuzz target for the given seconds, starting from its seed corpus where it has one.
# Needs no nightly toolchain: without sanitizers libFuzzer builds on stable.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-5}

if ! command -v cargo-fuzz >/dev/null && [ ! -x "${CARGO_HOME:-$HOME/.cargo}/bin/cargo-fuzz" ]; then
  tools="${CARGO_TARGET_DIR:-target}/tools"
  [ -x "$tools/bin/cargo-fuzz" ] ||
    cargo install cargo-fuzz --version '^0.13' --locked --quiet --root "$tools"
  PATH="$tools/bin:$PATH"
fi

export RUSTC_BOOTSTRAP=1
targets=$(sed -n 's/^name = "\(.*\)"$/\1/p' fuzz/Cargo.toml | grep -v '^confide-fuzz$')
for target in $targets; do
  seeds=()
  [ -d "fuzz/seeds/$target" ] && seeds=("fuzz/seeds/$target")
  mkdir -p "fuzz/corpus/$target"
  echo "fuzz $target, $seconds s"
  cargo fuzz run --sanitizer none "$target" "fuzz/corpus/$target" ${seeds[@]+"${seeds[@]}"} -- \
    -max_total_time="$seconds" -max_len=65536 -timeout=10 -rss_limit_mb=2048 -verbosity=0 \
    || { echo "fuzz target $target failed: its input lies under fuzz/artifacts/$target"; exit 1; }
done
echo "fuzz: every target survived $seconds s"
