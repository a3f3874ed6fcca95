#!/usr/bin/env bash
# Builds the program for SP1's machine and writes sort.elf and its digest; or, with --compare, holds
# what it built against what is committed.
#
# SP1's own Rust toolchain is on no registry. Debian's rustc-web knows riscv64im-unknown-none-elf:
# rust-web-src gives core and alloc, lld links. Flags are those of `sp1-build` 6.10.0 if they reach
# the program.
set -euo pipefail
cd "$(dirname "$0")"

missing=()
[ -x /usr/bin/rustc ] || missing+=(rustc-web)
[ -x /usr/bin/cargo ] || missing+=(cargo-web)
sysroot=$(/usr/bin/rustc --print sysroot 2>/dev/null || true)
[ -d "$sysroot/lib/rustlib/src/rust/library/alloc" ] || missing+=(rust-web-src)
[ -x /usr/bin/ld.lld ] || missing+=(lld)
if [ ${#missing[@]} -gt 0 ]; then
  echo "skipped: SP1's program is not built: ask for the packages ${missing[*]} (Debian)"
  [ "${1:-}" = --compare ]
  exit
fi
toolchain="$(/usr/bin/rustc --version), $(/usr/bin/ld.lld --version)"
if [ "${1:-}" = --compare ] && ! grep -qxF "# $toolchain" sort.sha256; then
  echo "skipped: SP1's program was built by another compiler than $toolchain"
  exit
fi

root=$(cd ../../../.. && pwd -P)
cargo_home=$(cd "${CARGO_HOME:-$HOME/.cargo}" && pwd -P)
built="${CARGO_TARGET_DIR:-$PWD/target}/guest"
mkdir -p "$built"
built=$(cd "$built" && pwd -P)
/usr/bin/cargo fetch --locked --quiet
export RUSTC_BOOTSTRAP=1 RUSTC=/usr/bin/rustc RUSTC_WRAPPER="$root/guests/rustc.sh" \
  CARGO_TARGET_DIR="$built"
flags=(
  -Clinker=/usr/bin/ld.lld -Clinker-flavor=ld.lld -Cpasses=lower-atomic -Cpanic=abort
  -Clink-arg=--image-base=0x78000000 -Clink-arg=--fatal-warnings -Clink-arg=--build-id=none
  -Cllvm-args=-misched-prera-direction=bottomup -Cllvm-args=-misched-postra-direction=bottomup
  -Cstrip=symbols
  "--remap-path-prefix=$built=/target"
  "--remap-path-prefix=$root=/confide"
  "--remap-path-prefix=$cargo_home=/cargo"
  "--remap-path-prefix=$sysroot/lib/rustlib/src/rust=/rust"
)
for sources in "$cargo_home"/registry/src/*; do flags+=("--remap-path-prefix=$sources=/cargo"); done
CARGO_ENCODED_RUSTFLAGS=$(printf '%s\x1f' "${flags[@]}")
export CARGO_ENCODED_RUSTFLAGS=${CARGO_ENCODED_RUSTFLAGS%$'\x1f'}
target=riscv64im-unknown-none-elf
/usr/bin/cargo build --release --locked --target "$target" \
  -Zbuild-std=core,alloc,panic_abort -Zbuild-std-features=compiler-builtins-mem
made=$built/$target/release/confide-peer-sp1-guest

if [ "${1:-}" = --compare ]; then
  cmp -s "$made" sort.elf || { echo "sp1: sort.elf is not what its source gives"; exit 1; }
  echo "sp1: sort.elf is what its source gives"
  exit
fi
install -m 644 "$made" sort.elf
{ echo "# $toolchain"; sha256sum sort.elf; } >sort.sha256
