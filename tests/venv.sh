#!/usr/bin/env bash
# Makes a virtual environment once and prints the path of its Python; prints nothing where its wheels cannot be had.
#   tests/venv.sh FOLDER REQUIREMENTS IMPORTS [PYTHON...]
# IMPORTS must be importable in it. The first of the PYTHONs that takes the wheels is used: wheels are built for few
# versions. PIP_OPTIONS and VENV_OPTIONS go to pip and venv; what pip complains of is appended to PIP_LOG, and why an
# import failed is shown.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=$1 requirements=$2 imports=$3
shift 3
[ $# -gt 0 ] || set -- python3 python3.13 python3.12 python3.11

if ! cmp -s "$requirements" "$venv/ready"; then
  rm -rf "$venv"
  for candidate in "$@"; do
    # shellcheck disable=SC2086
    command -v "$candidate" >/dev/null && "$candidate" -m venv ${VENV_OPTIONS:-} "$venv" 2>/dev/null || continue
    # shellcheck disable=SC2086
    if "$venv/bin/pip" install --quiet --disable-pip-version-check ${PIP_OPTIONS:---only-binary :all:} \
      -r "$requirements" >&2 2>>"${PIP_LOG:-/dev/null}"
    then
      if reason=$("$venv/bin/python" -c "import $imports" 2>&1 >/dev/null); then
        cp "$requirements" "$venv/ready"
        break
      fi
      echo "$venv: $candidate cannot import $imports: ${reason##*$'\n'}" >&2
    fi
    rm -rf "$venv"
  done
fi
[ ! -e "$venv/ready" ] || echo "$venv/bin/python"
