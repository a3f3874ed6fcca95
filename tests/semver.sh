#!/usr/bin/env bash
# Compares the public items of each library with those of BASE, a commit or tag: which version does semantic versioning
# ask for? Usage: tests/semver.sh "-p confide-evidence -p …" [BASE]. BASE is the newest tag unless given.
# Installs cargo-semver-checks (Apache-2.0 or MIT) under target/semver when it is first run: ten minutes of one core.
set -euo pipefail
cd "$(dirname "$0")/.."
libraries=$1
base=${2:-$(git describe --tags --abbrev=0 2>/dev/null || true)}
version=0.51.0

if [ -z "$base" ]; then
  echo "semver: skipped: no release has a tag yet (make semver BASE=COMMIT compares with a commit)"
  exit 0
fi
root=${CARGO_TARGET_DIR:-target}/semver
if ! "$root/bin/cargo-semver-checks" semver-checks --version 2>/dev/null | grep -qF "$version"; then
  cargo install --quiet --locked --root "$root" --target-dir "$root/build" "cargo-semver-checks@$version"
  rm -rf "$root/build"
fi
# shellcheck disable=SC2086 # a list of options
CARGO_TARGET_DIR="$(realpath "$root")/check" \
  "$root/bin/cargo-semver-checks" semver-checks $libraries --baseline-rev "$base"
