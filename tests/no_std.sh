#!/usr/bin/env bash
# Builds the appraisal (crates evidence and verifier) and the statements of proofs (crate statement)
# for a target that has no standard library.
#
# Two ways, whichever the machine can go: a rustup target that is installed (thumbv7em-none-eabi
# and the like), or Debian's rustc-web, cargo-web and rust-web-src, which build core and alloc
# themselves. With neither: skipped, and what is missing is named.
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/no-std"

# Alone: built together with the workspace, other crates would turn their std features on.
packages=(-p confide-evidence -p confide-verifier -p confide-statement)

for target in thumbv7em-none-eabi thumbv7em-none-eabihf thumbv6m-none-eabi; do
  if [ -d "$(rustc --print sysroot)/lib/rustlib/$target" ]; then
    cargo check --locked "${packages[@]}" --target "$target"
    echo "no_std: evidence, verifier and statement build for $target"
    exit 0
  fi
done

if [ -x /usr/bin/cargo ] && [ -x /usr/bin/rustc ] &&
  [ -d "$(/usr/bin/rustc --print sysroot)/lib/rustlib/src/rust/library/alloc" ]; then
  target=riscv32im-risc0-zkvm-elf
  RUSTC_BOOTSTRAP=1 RUSTC=/usr/bin/rustc RUSTFLAGS="-Cpasses=lower-atomic -Cpanic=abort" \
    /usr/bin/cargo check --locked "${packages[@]}" --target "$target" \
    -Zbuild-std=core,alloc,panic_abort -Zbuild-std-features=compiler-builtins-mem
  echo "no_std: evidence, verifier and statement build for $target"
  exit 0
fi

echo "skipped: no target without std: wanted the rustup target thumbv7em-none-eabi," \
  "or the packages rustc-web, cargo-web and rust-web-src"
