#!/usr/bin/env bash
# Builds SP1's core prover as a peer and puts it into the folders that are named: where `confide` lies.
#
# SP1 runs a guest in a process of its own, and its build script compiles that program's 400 packages a
# second time. It is built here first, from the packages that are built anyway, and named to the script:
# so half the work is saved, and the program must stay where it was built.
set -euo pipefail
folders=()
for folder in "$@"; do mkdir -p "$folder" && folders+=("$(cd "$folder" && pwd -P)"); done
cd "$(dirname "$0")"

if ! command -v "${PROTOC:-protoc}" >/dev/null; then
  echo "SP1 is not built: no protoc: ask for the package protobuf-compiler (Debian)"
  exit 1
fi
echo "SP1: 522 packages, some 12 minutes of two cores; then each proof takes 11 GiB of memory," \
  "and half a minute before it begins"
guest/build.sh --compare

built="${CARGO_TARGET_DIR:-$PWD/target}"
CARGO_TARGET_DIR=$built cargo build --release --locked -p sp1-core-executor-runner-binary
runner=$(cd "$built/release" && pwd -P)/sp1-core-executor-runner-binary
CARGO_TARGET_DIR=$built SP1_CORE_RUNNER_OVERRIDE_BINARY=$runner cargo build --release --locked
for folder in "${folders[@]}"; do
  cp --remove-destination "$built/release/confide-peer-sp1" "$folder/"
done
