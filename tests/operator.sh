#!/usr/bin/env bash
# What the operator's build must do and must not: usage: operator.sh OPERATOR DEVELOPER
# OPERATOR is confide-operator, DEVELOPER a confide with a simulated attester, both of this commit.
set -euo pipefail
operator=$(realpath "$1") developer=$(realpath "$2")
folder=$(mktemp -d)
processes=()
end() {
  for process in "${processes[@]}"; do kill "$process" 2>/dev/null || true; done
  rm -rf "$folder"
}
trap end EXIT
cd "$folder"

fail() { echo "operator: $*" >&2; exit 1; }

# refuses STATUS WORDS COMMAND...: it ends with this status and says these words.
refuses() {
  local status=0 wanted=$1 words=$2
  shift 2
  "$@" >output 2>&1 </dev/null || status=$?
  [ "$status" -eq "$wanted" ] || fail "$*: wanted status $wanted, got $status: $(cat output)"
  grep -q "$words" output || fail "$*: wanted '$words', got: $(cat output)"
}

# start NAME COMMAND...: waits for the ready line, which lies in the file NAME.
start() {
  local name=$1
  shift
  "$@" >"$name" 2>"$name.log" &
  processes+=($!)
  for _ in $(seq 600); do
    [ -s "$name" ] && return 0
    sleep 0.1
  done
  fail "$*: no ready line: $(cat "$name.log")"
}

field() { python3 -c 'import json, sys; print(json.loads(open(sys.argv[1]).readline())[sys.argv[2]])' "$1" "$2"; }

# It says what it is.
"$operator" --version | grep -q '^build: operator$' || fail "--version does not name the build"
"$operator" --version | grep '^left out: ' | grep bench | grep -q simulate || fail "--version lists no gaps"
"$developer" --version | grep '^built in: ' | grep bench | grep -q simulate || fail "the developer's is none"

# It cannot forge: every way to a simulated attester is refused by name, and no code of it is linked.
none="no simulated attester"
refuses 2 "$none" "$operator" attest --simulate tdx --out sim
"$developer" attest --simulate tdx --out sim >/dev/null
refuses 2 "$none" "$operator" gateway --simulate sim --upstream http://127.0.0.1:1 --listen 127.0.0.1:0
refuses 2 "$none" "$operator" verify serve --simulate sim --listen 127.0.0.1:0 --audience me \
  --policy "x=sim/policy.toml"
refuses 2 "$none" "$operator" gateway --attester simulated --upstream http://127.0.0.1:1 --listen 127.0.0.1:0
refuses 2 "$none" "$operator" collateral serve --simulate sim
refuses 2 "not supported by this build" "$operator" collateral serve --database postgres://127.0.0.1:1/x
code=confide_fake_attester
grep -qc "$code" "$developer" || fail "the developer's build does not show $code: this check sees nothing"
! grep -q "$code" "$operator" || fail "$code is linked"

# It does not measure, and says who does.
for command in "bench run main" "serve --engine sim" "prove sha256" "model make x" "adapter train x"; do
  # shellcheck disable=SC2086
  refuses 2 "cargo build --release -p confide-cli" "$operator" $command
done

# It does the work: evidence is verified, refused without the root that a policy names, and a client
# of the operator's build reaches an attested gateway.
refuses 0 "accepted" "$operator" verify evidence sim/evidence.bin --collateral sim/collateral.json \
  --policy sim/policy.toml
refuses 1 "accepted" "$operator" verify evidence sim/evidence.bin --collateral sim/collateral.json
start pccs "$operator" collateral serve --database pccs.sqlite --import sim/collateral.json
start model "$developer" serve --engine sim --listen 127.0.0.1:0
start gateway "$developer" gateway --simulate sim --upstream "http://$(field model listen)" --listen 127.0.0.1:0
"$developer" policy pin sim/policy.toml --digest "$(field gateway config_digest)" >/dev/null
start connect "$operator" connect "https://$(field gateway listen)" --policy sim/policy.toml --listen 127.0.0.1:0
python3 - "http://$(field connect listen)/v1/models" <<'PYTHON' || fail "no answer through connect: $(cat connect.log)"
import sys, urllib.request
assert b'"data"' in urllib.request.urlopen(sys.argv[1], timeout=60).read()
PYTHON
echo "operator: refuses what it must, and does the work"
