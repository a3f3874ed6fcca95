#!/usr/bin/env bash
# rustc for build.sh. Cargo distinguishes crates by the folder of their sources, and the linker's order
# follows: our own crates are distinguished by their name instead, so that every folder gives the same
# bytes.
set -euo pipefail
name='' previous=''
for argument in "$@"; do
  [ "$previous" != --crate-name ] || name=$argument
  previous=$argument
done
arguments=()
for argument in "$@"; do
  case "$name:$argument" in
  confide_*:metadata=*) arguments+=("metadata=$name") ;;
  *) arguments+=("$argument") ;;
  esac
done
exec "${arguments[@]}"
