#!/usr/bin/env bash
# Asks SEAL, through the wheel of TenSEAL, and `confide-rlwe` with `confide-report-003` for the same.
# Builds .venv-seal, which the bench's peer arm uses too. Skipped where no wheel can be had for this Python.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=.venv-seal
requirements=bench/peers/seal/requirements.txt
if ! cmp -s "$requirements" "$venv/ready"; then
  rm -rf "$venv"
  # The wheel is built for few versions: the first Python that it installs into is taken.
  for candidate in python3 python3.12 python3.11 python3.13 python3.10; do
    command -v "$candidate" >/dev/null && "$candidate" -m venv "$venv" 2>/dev/null || continue
    if "$venv/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: \
      -r "$requirements" 2>/dev/null && "$venv/bin/python" -c 'import tenseal.sealapi' 2>/dev/null
    then
      cp "$requirements" "$venv/ready"
      break
    fi
    rm -rf "$venv"
  done
fi
if [ ! -e "$venv/ready" ]; then
  echo "skipped: no tenseal"
  exit 0
fi
cargo build --locked --quiet -p confide-report-003 --example ring
"$venv/bin/python" tests/python/test_seal.py "${CARGO_TARGET_DIR:-target}/debug/examples/ring"
