#!/usr/bin/env bash
# Form and types of all Python in the repository: ruff's rules, ruff's format, mypy --strict, as pyproject.toml sets
# them. Builds .venv-style (150 MB); skipped where the wheels cannot be had for this Python.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=.venv-style
requirements=tests/python/requirements-style.txt
if ! cmp -s "$requirements" "$venv/ready"; then
  rm -rf "$venv"
  for candidate in python3 python3.13 python3.12 python3.11; do
    command -v "$candidate" >/dev/null && "$candidate" -m venv "$venv" 2>/dev/null || continue
    if "$venv/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: \
      -r "$requirements" 2>/dev/null && "$venv/bin/python" -c 'import mypy, numpy' 2>/dev/null
    then
      cp "$requirements" "$venv/ready"
      break
    fi
    rm -rf "$venv"
  done
fi
if [ ! -e "$venv/ready" ]; then
  echo "skipped: no ruff and mypy"
  exit 0
fi

"$venv/bin/ruff" check --quiet .
"$venv/bin/ruff" format --check --quiet . || { echo "to format: $venv/bin/ruff format ."; exit 1; }
"$venv/bin/mypy"
