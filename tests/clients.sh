#!/usr/bin/env bash
# Runs tests/clients.py with all clients that can be built here; the others are skipped by name.
# Usage: tests/clients.sh CONFIDE PYTHON
# PYTHON has the packages of tests/python/requirements.txt.
set -euo pipefail
cd "$(dirname "$0")/.."
confide=$(realpath "$1")
python=$2
PATH=$PATH:/usr/local/go/bin
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
options=()

# build_web ARGUMENTS...: whether the WebAssembly could be built.
build_web() {
  local status=0
  web/build.sh "$@" || status=$?
  [ $status -eq 0 ] || [ $status -eq 3 ] || exit $status
  return $status
}
has_node() { command -v node >/dev/null && node -e 'process.exit(parseInt(process.versions.node) >= 20 ? 0 : 1)'; }

if ! has_node; then
  echo "skipped: clients: Node and browser: no Node 20 or later"
elif ! build_web; then
  echo "skipped: clients: Node and browser: WebAssembly cannot be built"
else
  node=node
  node -e 'process.exit(globalThis.WebSocket ? 0 : 1)' || node="node --experimental-websocket"
  options+=(--node "$node")
  if chromium=$(command -v chromium || command -v chromium-browser || command -v google-chrome); then
    options+=(--chromium "$chromium")
  else
    echo "skipped: clients: browser: no Chromium"
  fi
fi
if ! reason=$(tests/has_go.sh); then
  echo "skipped: clients: Go: $reason"
elif ! build_web --plain go/verifier.wasm; then
  echo "skipped: clients: Go: WebAssembly cannot be built"
else
  GOTOOLCHAIN=local GOFLAGS=-mod=readonly CGO_ENABLED=0 go build -C go -o "$work/driver" ./internal/driver
  options+=(--go "$work/driver")
fi
"$python" tests/clients.py "$confide" "${options[@]}"
