#!/usr/bin/env bash
# Asks scipy, arch and ruptures again for what vectors/estimate holds, and confide-estimate for the
# same. `--write` makes the vectors anew. Skipped where the wheels cannot be had for this Python.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=.venv-statistics
requirements=vectors/estimate/requirements.txt
if ! cmp -s "$requirements" "$venv/ready"; then
  rm -rf "$venv"
  # The wheels are built for few versions: the first Python that they install into is taken.
  for candidate in python3 python3.13 python3.12 python3.11; do
    command -v "$candidate" >/dev/null && "$candidate" -m venv "$venv" 2>/dev/null || continue
    if "$venv/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: \
      -r "$requirements" 2>/dev/null && "$venv/bin/python" -c 'import arch, ruptures' 2>/dev/null
    then
      cp "$requirements" "$venv/ready"
      break
    fi
    rm -rf "$venv"
  done
fi
if [ ! -e "$venv/ready" ]; then
  echo "skipped: no scipy, arch and ruptures"
  exit 0
fi
if [ "${1:-}" = --write ]; then
  "$venv/bin/python" vectors/estimate/make.py
else
  "$venv/bin/python" vectors/estimate/make.py --check
fi
cargo test --locked --quiet -p confide-estimate
