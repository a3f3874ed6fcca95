#!/usr/bin/env bash
# Runs each fuzz target for the given seconds, starting from its seed corpus where it has one.
# Needs no nightly toolchain: without sanitizers libFuzzer builds on stable.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-5}

if ! command -v cargo-fuzz >/dev/null; then
  tools="${CARGO_TARGET_DIR:-target}/tools"
  [ -x "$tools/bin/cargo-fuzz" ] ||
    cargo install cargo-fuzz --version '^0.13' --locked --quiet --root "$tools"
  PATH="$tools/bin:$PATH"
fi

export RUSTC_BOOTSTRAP=1
log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "fuzz: building the targets"
cargo fuzz build --sanitizer none >"$log" 2>&1 || { cat "$log"; exit 1; }
targets=$(sed -n 's/^name = "\(.*\)"$/\1/p' fuzz/Cargo.toml | grep -v '^confide-fuzz$')
for target in $targets; do
  mkdir -p "fuzz/corpus/$target"
  inputs=("fuzz/corpus/$target")
  [ -d "fuzz/seeds/$target" ] && inputs+=("fuzz/seeds/$target")
  if ! cargo fuzz run --sanitizer none "$target" "${inputs[@]}" -- -max_total_time="$seconds" \
    -max_len=65536 -timeout=10 -rss_limit_mb=2048 >"$log" 2>&1; then
    tail -40 "$log"
    echo "fuzz target $target failed: its input lies under fuzz/artifacts/$target"
    exit 1
  fi
  printf '%-18s survived %s s: %s\n' "$target" "$seconds" "$(grep -a '^Done' "$log" || true)"
done
