#!/usr/bin/env bash
# Builds the caller's program for another system: confide without the features that need Linux (docs/platforms.md).
# Usage: crates/cli/build_caller.sh [--dev] TARGET    confide[.exe] in target/TARGET/release, with --dev in .../debug
#        crates/cli/build_caller.sh --check TARGET    its types and lints only, which needs no linker of that system
# TARGET: x86_64-pc-windows-gnu, aarch64-unknown-linux-gnu, aarch64-apple-darwin or x86_64-apple-darwin.
# Where this machine cannot: status 3, and what is missing is named.
set -euo pipefail
cd "$(dirname "$0")/../.."

profile=(--release)
mode=build
case "${1:-}" in
--dev) profile=() && shift ;;
--check) profile=() && mode=check && shift ;;
esac
target=${1:?"wanted a target, such as x86_64-pc-windows-gnu"}

lacks() {
  echo "caller: $target: $*" >&2
  exit 3
}

case $target in
x86_64-pc-windows-gnu) compiler=x86_64-w64-mingw32-gcc package=gcc-mingw-w64-x86-64 ;;
aarch64-unknown-linux-gnu) compiler=aarch64-linux-gnu-gcc package=gcc-aarch64-linux-gnu ;;
*-apple-darwin) compiler=cc package="the command line tools of Xcode" ;;
*) lacks "not a target that this script knows" ;;
esac

has_target() { [ -d "$(rustc --print sysroot)/lib/rustlib/$target" ]; }
if ! has_target && command -v rustup >/dev/null; then
  # Its server cannot be reached from everywhere.
  timeout 60 rustup target add "$target" >&2 || true
fi
has_target || lacks "wanted the standard library: rustup target add $target"

program=(-p confide-cli --no-default-features --features colour --bin confide --locked --target "$target")
name=${target//-/_}
if [ "$mode" = check ]; then
  # Checking reads no object file, so that nothing has to make any: a compiler that does nothing takes the place of
  # that system's. In a folder of its own, so that no build finds what is not there.
  export "CC_$name=true" "CXX_$name=true" "AR_$name=true"
  export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/caller-check"
  export RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-Dwarnings
  exec cargo check "${program[@]}"
fi

case $target in
*-apple-darwin) [ "$(uname)" = Darwin ] || lacks "wanted a Mac: Apple's SDK is not for other systems" ;;
*)
  command -v $compiler >/dev/null || lacks "$compiler is missing: ask for $package"
  name=${name^^}
  export "CARGO_TARGET_${name}_LINKER=$compiler"
  ;;
esac
exec cargo build "${profile[@]}" "${program[@]}"
