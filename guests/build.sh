#!/usr/bin/env bash
# Builds the programs for the zkVM, all or those that are named, and writes guests/elf/NAME.elf and
# guests/elf/digests.toml; or, with --compare, holds what it built against what is committed.
#
# The target riscv32im-risc0-zkvm-elf needs no rustup: Debian's rustc-web and cargo-web with
# rust-web-src build core and alloc themselves, lld links. The same packages give the same bytes in
# any folder: places are mapped to fixed names, and nothing of the build reaches the file.
set -euo pipefail
cd "$(dirname "$0")"

mode=build
if [ "${1:-}" = --compare ]; then
  mode=compare
  shift
fi
names=("$@")
if [ ${#names[@]} -eq 0 ]; then
  for main in */src/main.rs; do names+=("${main%%/*}"); done
fi

sysroot=$(/usr/bin/rustc --print sysroot 2>/dev/null || true)
missing=()
[ -x /usr/bin/rustc ] || missing+=(rustc-web)
[ -x /usr/bin/cargo ] || missing+=(cargo-web)
[ -d "$sysroot/lib/rustlib/src/rust/library/alloc" ] || missing+=(rust-web-src)
[ -x /usr/bin/ld.lld ] || missing+=(lld)
if [ ${#missing[@]} -gt 0 ]; then
  packages="the packages ${missing[*]} (Debian)"
  if [ "$mode" = compare ]; then
    echo "skipped: guests are not rebuilt and compared: that takes $packages"
    exit
  fi
  echo "guests cannot be built: ask for $packages"
  exit 1
fi

# Another compiler gives other bytes, rightly.
toolchain="$(/usr/bin/rustc --version), $(/usr/bin/ld.lld --version)"
if [ "$mode" = compare ] && [ "$toolchain" != "$(cat elf/toolchain)" ]; then
  echo "skipped: guests/elf was built by $(cat elf/toolchain); here is $toolchain"
  exit
fi

target=riscv32im-risc0-zkvm-elf
root=$(cd .. && pwd -P)
cargo_home=$(cd "${CARGO_HOME:-$HOME/.cargo}" && pwd -P)
built="${CARGO_TARGET_DIR:-$PWD/target}/guests"
mkdir -p "$built"
built=$(cd "$built" && pwd -P)

# Where the sources of dependencies lie is named after the registry's address.
for name in "${names[@]}"; do
  (if [ "$name" = dcap ]; then cd dcap; fi; /usr/bin/cargo fetch --locked --quiet)
done
export RUSTC_BOOTSTRAP=1 RUSTC=/usr/bin/rustc RUSTC_WRAPPER="$PWD/rustc.sh" CARGO_TARGET_DIR="$built"
flags=(
  -Clinker=/usr/bin/ld.lld -Clinker-flavor=ld.lld -Cpasses=lower-atomic -Cpanic=abort
  -Clink-arg=-Ttext=0x00200800 -Clink-arg=--fatal-warnings -Clink-arg=--build-id=none
  -Cstrip=symbols --cfg=getrandom_backend=\"custom\"
  "--remap-path-prefix=$built=/target"
  "--remap-path-prefix=$root=/confide"
  "--remap-path-prefix=$cargo_home=/cargo"
  "--remap-path-prefix=$sysroot/lib/rustlib/src/rust=/rust"
)
for sources in "$cargo_home"/registry/src/*; do flags+=("--remap-path-prefix=$sources=/cargo"); done
CARGO_ENCODED_RUSTFLAGS=$(printf '%s\x1f' "${flags[@]}")
export CARGO_ENCODED_RUSTFLAGS=${CARGO_ENCODED_RUSTFLAGS%$'\x1f'}
build=(/usr/bin/cargo build --release --locked --target "$target"
  -Zbuild-std=core,alloc,panic_abort -Zbuild-std-features=compiler-builtins-mem)

made=$built/elf
rm -rf "$made" && mkdir -p "$made"
for name in "${names[@]}"; do
  # dcap is a workspace of its own.
  (if [ "$name" = dcap ]; then cd dcap; fi; "${build[@]}" -p "confide-guest-$name")
  install -m 644 "$built/$target/release/confide-guest-$name" "$made/$name.elf"
done

if [ "$mode" = compare ]; then
  differ=0
  for name in "${names[@]}"; do
    cmp -s "$made/$name.elf" "elf/$name.elf" ||
      { echo "guests: elf/$name.elf is not what its source gives: run make guests"; differ=1; }
  done
  [ $differ = 0 ] && echo "guests: ${names[*]} are what their source gives"
  exit $differ
fi

mkdir -p elf
install -m 644 "$made"/*.elf elf/
echo "$toolchain" >elf/toolchain
python3 digests.py elf
