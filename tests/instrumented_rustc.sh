#!/usr/bin/env bash
# Takes the place of rustc for this workspace's packages (RUSTC_WORKSPACE_WRAPPER, tests/fuzz.sh): with libFuzzer's
# instrumentation, but for what runs without libFuzzer.
set -eu
case " $* " in
  *" --crate-name build_script_build "* | *" --crate-type proc-macro "* | *" --crate-name features "*) exec "$@" ;;
esac
# shellcheck disable=SC2086
exec "$@" $CONFIDE_INSTRUMENTATION
