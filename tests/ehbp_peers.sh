#!/usr/bin/env bash
# Clients of EHBP that others wrote, against `confide gateway --encrypted-bodies`: Tinfoil's for Python and for
# JavaScript, each as a process of its own. Between them and the gateway stands a program that terminates TLS, as a
# CDN would.
# Usage: tests/ehbp_peers.sh CONFIDE
# Installs them into a temporary folder (40 MB); says by name which was skipped, where one cannot be had, and fails
# where none can be had.
set -euo pipefail
cd "$(dirname "$0")/.."
confide=$(realpath "$1")
python_client=tinfoil-ehbp==0.4.1
javascript_client=ehbp@0.1.7

source tests/processes.sh

"$confide" attest --simulate tdx --out "$work/attester" >"$work/attest"
start model "$confide" serve --engine sim --listen 127.0.0.1:0 \
  --ttft-ms 50 --tokens-per-second 20
start gateway "$confide" gateway --listen 127.0.0.1:0 --upstream "http://$(read_ready model listen)" \
  --simulate "$work/attester" --receipts --encrypted-bodies
"$confide" policy pin "$work/attester/policy.toml" --digest "$(read_ready gateway config_digest)" >"$work/pin"
start proxy "$confide" connect "https://$(read_ready gateway listen)" --policy "$work/attester/policy.toml" \
  --listen 127.0.0.1:0
base="http://$(read_ready proxy listen)"
ran=0

if python3 -m venv "$work/python" 2>"$work/pip" &&
  "$work/python/bin/pip" install --quiet --disable-pip-version-check "$python_client" 2>>"$work/pip"; then
  "$work/python/bin/python" tests/python/ehbp_peer.py "$base"
  ran=$((ran + 1))
else
  echo "ehbp-peers: skipped: $python_client cannot be had: $(tail -n 1 "$work/pip")"
fi

if ! command -v npm >/dev/null; then
  echo "ehbp-peers: skipped: $javascript_client: no npm"
elif npm install --silent --no-audit --no-fund --prefix "$work/javascript" "$javascript_client" >"$work/npm" 2>&1; then
  # Modules are looked for next to the script.
  cp tests/javascript/ehbp_peer.mjs "$work/javascript/"
  node "$work/javascript/ehbp_peer.mjs" "$base"
  ran=$((ran + 1))
else
  echo "ehbp-peers: skipped: $javascript_client cannot be had: $(tail -n 1 "$work/npm")"
fi
echo "ehbp-peers: $ran of 2 clients ran"
if [ "$ran" -eq 0 ]; then
  echo "ehbp-peers: nothing was tested: neither client can be had" >&2
  exit 1
fi
