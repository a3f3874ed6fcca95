#!/usr/bin/env bash
# h2spec's cases (RFC 9113, RFC 7541) against `confide gateway` over TLS. Fails if a case fails that is not in `known`,
# if h2spec skips more cases than `skipped_max`, and if the gateway does not offer HTTP/2.
# Usage: tests/h2spec.sh CONFIDE
# Skipped where Go, openssl or h2spec cannot be had. Installs h2spec (MIT) under target/h2spec when it is first run;
# Go's checksum database vouches for it.
set -euo pipefail
cd "$(dirname "$0")/.."
confide=$1
version=v2.2.1+incompatible
# Names of cases that may fail, each with its reason.
known=(
  # The connection ends as the case wants, but by a reset where bytes of it are unread.
  "http2/3.5: Sends invalid connection preface"
)
# h2spec skips cases that need what the server has not announced; of ours it skips none.
skipped_max=0

PATH=$PATH:/usr/local/go/bin
command -v go >/dev/null || { echo "h2spec: skipped: no Go"; exit 0; }
command -v openssl >/dev/null || { echo "h2spec: skipped: no openssl"; exit 0; }
work=$(mktemp -d)
processes=()
end() {
  for process in "${processes[@]}"; do kill "$process" 2>/dev/null || true; done
  rm -rf "$work"
}
trap end EXIT

tools=$(realpath -m "${CARGO_TARGET_DIR:-target}")/h2spec
if [ ! -x "$tools/h2spec" ] && ! GOBIN="$tools" GOFLAGS=-mod=mod \
  go install "github.com/summerwind/h2spec/cmd/h2spec@$version" 2>"$work/install"; then
  echo "h2spec: skipped: $version cannot be had: $(tail -n 1 "$work/install")"
  exit 0
fi

# start NAME COMMAND...: waits for the ready line, which lies in the file NAME.
start() {
  local name=$1
  shift
  "$@" >"$work/$name" 2>"$work/$name.log" &
  processes+=($!)
  for _ in $(seq 600); do
    [ -s "$work/$name" ] && return 0
    sleep 0.1
  done
  echo "h2spec: $*: no ready line: $(cat "$work/$name.log")" >&2
  exit 1
}
listen() { python3 -c 'import json, sys; print(json.loads(open(sys.argv[1]).readline())["listen"])' "$work/$1"; }

start model "$confide" serve --engine sim --listen 127.0.0.1:0
start gateway "$confide" gateway --binding none --listen 127.0.0.1:0 --upstream "http://$(listen model)"
address=$(listen gateway)
if ! openssl s_client -connect "$address" -alpn h2 </dev/null 2>/dev/null | grep -q '^ALPN protocol: h2$'; then
  echo "h2spec: failed: the gateway does not offer HTTP/2" >&2
  exit 1
fi
"$tools/h2spec" --tls --insecure --host "${address%:*}" --port "${address##*:}" --path /v1/models --timeout 5 \
  --junit-report "$work/report.xml" >"$work/output" || true
python3 - "$work/report.xml" "$skipped_max" "${known[@]}" <<'PYTHON'
import sys
import xml.etree.ElementTree as ElementTree

cases = list(ElementTree.parse(sys.argv[1]).iter("testcase"))
failed = [
    f"{case.get('package')}: {case.get('classname')}"
    for case in cases
    if case.find("failure") is not None or case.find("error") is not None
]
skipped = sum(case.find("skipped") is not None for case in cases)
new = [name for name in failed if name not in sys.argv[3:]]
print(f"h2spec: {len(cases)} cases, {len(failed)} failed, {skipped} skipped")
if not cases or new:
    sys.exit("h2spec: failed: " + "; ".join(new or ["no case ran"]))
if skipped > int(sys.argv[2]):
    sys.exit(f"h2spec: failed: {skipped} cases were skipped, wanted at most {sys.argv[2]}")
PYTHON
