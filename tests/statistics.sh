#!/usr/bin/env bash
# Asks scipy, arch and ruptures again for what vectors/estimate holds, and confide-estimate for the
# same. `--write` makes the vectors again. Skipped where the wheels cannot be had for this Python.
set -euo pipefail
cd "$(dirname "$0")/.."

python=$(tests/venv.sh .venv-statistics vectors/estimate/requirements.txt "arch, ruptures")
[ -n "$python" ] || { echo "skipped: no scipy, arch and ruptures"; exit 0; }
if [ "${1:-}" = --write ]; then
  "$python" vectors/estimate/make.py
else
  "$python" vectors/estimate/make.py --check
fi
cargo test --locked --quiet -p confide-estimate
