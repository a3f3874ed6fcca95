#!/usr/bin/env bash
# The Go module against gateways with simulated attestation: go/client_test.go. Skipped by name where Go or
# WebAssembly is missing.
# Usage: tests/go_client.sh CONFIDE
set -euo pipefail
cd "$(dirname "$0")/.."
confide=$(realpath "$1")
PATH=$PATH:/usr/local/go/bin

reason=$(tests/has_go.sh) || { echo "skipped: go client: $reason"; exit 0; }
# GOTOOLCHAIN=local: another version of Go is not fetched in passing.
export GOTOOLCHAIN=local GOFLAGS=-mod=readonly
status=0
web/build.sh --plain go/verifier.wasm || status=$?
[ $status -ne 3 ] || { echo "skipped: go client: WebAssembly cannot be built"; exit 0; }
[ $status -eq 0 ] || exit $status
unformatted=$(gofmt -l go)
[ -z "$unformatted" ] || { echo "go client: gofmt would change: $unformatted" >&2; exit 1; }

source tests/processes.sh
"$confide" attest --simulate tdx --out "$work/evidence" >"$work/attest"
"$confide" attest --simulate tdx --out "$work/attester" >"$work/attest"
"$confide" attest --simulate snp --out "$work/amd" >"$work/attest"
start model "$confide" serve --engine sim --listen 127.0.0.1:0 --ttft-ms 20 --tokens-per-second 200
# start_gateway NAME ATTESTER BINDING: its policy lies in the file NAME.toml, and its port follows.
ports=()
start_gateway() {
  start "$1" "$confide" gateway --listen 127.0.0.1:0 --upstream "http://$(read_ready model listen)" \
    --simulate "$work/$2" --binding "$3"
  cp "$work/$2/policy.toml" "$work/$1.toml"
  "$confide" policy pin "$work/$1.toml" --digest "$(read_ready "$1" config_digest)" >"$work/pin"
  ports+=("\"$1\": $(read_ready "$1" listen | sed 's/.*://')")
}
start_gateway key attester key
start_gateway session attester session
start_gateway snp amd session
start tunnel "$confide" tunnel --listen 127.0.0.1:0 --allow "$(read_ready key listen)"
printf '{"folder": "%s", "tunnel": "ws://%s", "ports": {%s, %s, %s}}\n' "$work" "$(read_ready tunnel listen)" \
  "${ports[@]}" >"$work/setup.json"

cd go
go vet ./...
export CONFIDE_SETUP="$work/setup.json"
CGO_ENABLED=0 go test -count=1 ./...
# Once more for data races, the search for which needs cgo; the module does not.
if [ "$(go env CGO_ENABLED)" = 1 ]; then
  go test -race -count=1 .
else
  echo "skipped: go client: data races: no cgo"
fi
