#!/usr/bin/env bash
# Builds the WebAssembly of confide-web: with the JavaScript beside it into web/npm, or with --plain, for hosts without
# JavaScript, into the file FILE.
# Usage: web/build.sh [--plain FILE]
#
# Two ways, whichever the machine can go: rustup's target wasm32-unknown-unknown, which is fetched, or Debian's
# rustc-web, cargo-web, rust-web-src and lld, which build the standard library themselves. With neither: status 3,
# and what is missing is named.
set -euo pipefail
plain=
if [ "${1:-}" = --plain ]; then plain=$(realpath -m "$2"); fi
cd "$(dirname "$0")"
target=wasm32-unknown-unknown
target_dir=${CARGO_TARGET_DIR:-target}
built=$target_dir/$target/release/confide_web.wasm
# One build at a time, where the system has a program for that.
mkdir -p "$target_dir/$target/release"
exec 8>"$target_dir/$target/release/confide_web.lock"
! command -v flock >/dev/null || flock 8
# Both kinds share the packages that they need, and have one file name, by which cargo would take the one for the other:
# where the last one was of the other kind, its file goes, and is linked anew.
kind=javascript
[ -z "$plain" ] || kind=plain
kind_file=$target_dir/$target/release/confide_web.kind
if [ "$(cat "$kind_file" 2>/dev/null)" != $kind ]; then
  rm -f "$kind_file" "$built" "$target_dir/$target/release/deps/confide_web.wasm"
fi

# Panics name source files: those of every machine alike, so that the digest of the package follows from its source and
# its compiler.
registry=${CARGO_HOME:-$HOME/.cargo}/registry/src
rustflags="'--remap-path-prefix=$(dirname "$PWD")=/confide', '--remap-path-prefix=$registry=/registry'"
# Randomness comes from the host (src/random.rs, src/plain/exports.rs).
rustflags="$rustflags, '--cfg', 'getrandom_backend=\"custom\"'"
flags=()
[ -z "$plain" ] || flags=(--no-default-features --features plain)
flags+=(--target-dir "$target_dir" --config "target.$target.rustflags=[$rustflags]")

has_target() { [ -d "$(rustc --print sysroot)/lib/rustlib/$target" ]; }
if ! has_target && command -v rustup >/dev/null; then
  # Its server cannot be reached from everywhere.
  timeout 60 rustup target add "$target" || echo "web: rustup cannot fetch $target" >&2
fi
if has_target; then
  cargo build --release --locked --target "$target" -p confide-web "${flags[@]}"
elif [ -x /usr/bin/cargo ] && [ -x /usr/bin/rustc ] && command -v wasm-ld >/dev/null &&
  [ -d "$(/usr/bin/rustc --print sysroot)/lib/rustlib/src/rust/library/std" ]; then
  RUSTC_BOOTSTRAP=1 RUSTC=/usr/bin/rustc CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER=wasm-ld \
    /usr/bin/cargo build --release --locked --target "$target" -p confide-web "${flags[@]}" -Zbuild-std=std,panic_abort
else
  echo "web: no way to build for $target: wanted the rustup target, or the packages rustc-web, cargo-web," \
    "rust-web-src and lld" >&2
  exit 3
fi
echo $kind >"$kind_file"
folder=npm
if [ -n "$plain" ]; then
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
fi
# Without JavaScript too: what no export needs of wasm-bindgen goes, which is half of the file.
cargo run --locked --quiet -p confide-web-bindgen -- "$built" "$folder"
[ -z "$plain" ] || cp "$folder/confide_web_bg.wasm" "$plain"
