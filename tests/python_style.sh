#!/usr/bin/env bash
# Form and types of all Python in the repository: ruff's rules, ruff's format, mypy --strict, as pyproject.toml sets
# them. Builds .venv-style (150 MB); skipped where the wheels cannot be had for this Python.
set -euo pipefail
cd "$(dirname "$0")/.."

python=$(tests/venv.sh .venv-style tests/python/requirements-style.txt "mypy, numpy")
[ -n "$python" ] || { echo "skipped: no ruff and mypy"; exit 0; }

bin=$(dirname "$python")
"$bin/ruff" check --quiet .
"$bin/ruff" format --check --quiet . || { echo "to format: $bin/ruff format ."; exit 1; }
"$bin/mypy"
