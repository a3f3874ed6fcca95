#!/usr/bin/env bash
# Asks PEFT and `confide-lora` for the same deltas. Skipped where no Python has torch: Debian's
# python3-torch and PyPI's torch both do; neither is installed here, they are hundreds of megabytes.
set -euo pipefail
cd "$(dirname "$0")/.."

for candidate in python3 /usr/bin/python3; do
  if "$candidate" -c 'import torch' 2>/dev/null; then python=$candidate; break; fi
done
if [ -z "${python:-}" ]; then
  echo "skipped: no torch"
  exit 0
fi

# Without dependencies: theirs would bring another torch.
export VENV_OPTIONS=--system-site-packages PIP_OPTIONS=--no-deps PIP_LOG=/dev/stderr
python=$(tests/venv.sh .venv/peft tests/python/requirements-peft.txt torch "$python")
[ -n "$python" ] || { echo "PEFT cannot be installed"; exit 1; }
cargo build --locked --quiet -p confide-lora --example delta
"$python" tests/python/test_peft.py "${CARGO_TARGET_DIR:-target}/debug/examples/delta"
