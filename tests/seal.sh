#!/usr/bin/env bash
# Asks SEAL, through the wheel of TenSEAL, and `confide-rlwe` with `confide-report-003` for the same.
# Builds .venv-seal, which the bench's peer arm uses too. Skipped where no wheel can be had for this Python.
set -euo pipefail
cd "$(dirname "$0")/.."

python=$(tests/venv.sh .venv-seal bench/peers/seal/requirements.txt \
  "tenseal.sealapi" python3 python3.12 python3.11 python3.13 python3.10)
[ -n "$python" ] || { echo "skipped: no tenseal"; exit 0; }
cargo build --locked --quiet -p confide-report-003 --example ring
"$python" tests/python/test_seal.py "${CARGO_TARGET_DIR:-target}/debug/examples/ring"
