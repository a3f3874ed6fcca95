#!/usr/bin/env bash
# Makes the virtual environment of a peer: bench/peers/venv.sh guidellm|aiperf. Optional: without it the
# peer's arm is left out by name. 0.5 GB for guidellm, 0.9 GB for aiperf.
set -euo pipefail
cd "$(dirname "$0")/../.."

peer=${1:?usage: bench/peers/venv.sh guidellm|aiperf}
requirements=bench/peers/$peer/requirements.txt
[ -f "$requirements" ] || { echo "no peer named $peer"; exit 1; }
# Without dependencies: the list is whole, and guidellm's own would bring torch.
export PIP_OPTIONS="--no-cache-dir --no-compile --only-binary :all: --no-deps" PIP_LOG=/dev/stderr
python=$(tests/venv.sh ".venv-$peer" "$requirements" "$peer" python3 python3.11 python3.12 python3.13)
[ -n "$python" ] || echo "skipped: no $peer"
