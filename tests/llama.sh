#!/usr/bin/env bash
# Measured weights and receipts in front of a real llama.cpp server. Skipped where its wheel cannot be had.
#   tests/llama.sh BINARY
set -euo pipefail
cd "$(dirname "$0")/.."

python=$(tests/venv.sh .venv/llama tests/python/requirements-llama.txt xllamacpp,gguf)
if [ -z "$python" ]; then
  echo "skipped: no wheel of llama.cpp (xllamacpp)"
  exit 0
fi
"$python" tests/llama_checks.py "$1"
