#!/usr/bin/env bash
# Makes the virtual environment of a peer: bench/peers/venv.sh guidellm|aiperf. Optional: without it the
# peer's arm is left out by name. 0.5 GB for guidellm, 0.9 GB for aiperf.
set -euo pipefail
cd "$(dirname "$0")/../.."

peer=${1:?usage: bench/peers/venv.sh guidellm|aiperf}
requirements=bench/peers/$peer/requirements.txt
venv=.venv-$peer
[ -f "$requirements" ] || { echo "no peer named $peer"; exit 1; }
if cmp -s "$requirements" "$venv/ready"; then
  exit 0
fi
rm -rf "$venv"
# The pins are of wheels for these versions: the first Python that they install into is taken.
for candidate in python3 python3.11 python3.12 python3.13; do
  command -v "$candidate" >/dev/null && "$candidate" -m venv "$venv" 2>/dev/null || continue
  # Without dependencies: the list is whole, and guidellm's own would bring torch.
  if "$venv/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir --no-compile \
    --only-binary :all: --no-deps -r "$requirements" && "$venv/bin/python" -c "import $peer"
  then
    cp "$requirements" "$venv/ready"
    exit 0
  fi
  rm -rf "$venv"
done
echo "skipped: no $peer"
