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

venv=.venv/peft
if ! cmp -s tests/python/requirements-peft.txt "$venv/ready"; then
  rm -rf "$venv"
  "$python" -m venv --system-site-packages "$venv"
  # Without dependencies: theirs would bring another torch.
  "$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps \
    -r tests/python/requirements-peft.txt
  cp tests/python/requirements-peft.txt "$venv/ready"
fi
cargo build --locked --quiet -p confide-lora --example delta
"$venv/bin/python" tests/python/test_peft.py "${CARGO_TARGET_DIR:-target}/debug/examples/delta"
