#!/usr/bin/env bash
# The package confide-web: its size, and the client in Node against a gateway with simulated attestation, over plain
# sockets and through the tunnel. The page for visitors, made of it, in Chromium.
# Usage: tests/web.sh CONFIDE
# Skipped by name where WebAssembly cannot be built or Node is missing.
set -euo pipefail
cd "$(dirname "$0")/.."
confide=$(realpath "$1")
# The limit of the package's WebAssembly and JavaScript together, gzip -9.
size_max=1200000

if ! command -v node >/dev/null || ! node -e 'process.exit(parseInt(process.versions.node) >= 20 ? 0 : 1)'; then
  echo "skipped: web: no Node 20 or later"
  exit 0
fi
status=0
web/build.sh || status=$?
[ $status -ne 3 ] || { echo "skipped: web: WebAssembly cannot be built"; exit 0; }
[ $status -eq 0 ] || exit $status

size=$(cat web/npm/*.js web/npm/confide_web_bg.wasm | gzip -9 | wc -c)
echo "web: the package is $size bytes, gzip -9"
[ "$size" -lt $size_max ] || { echo "web: wanted under $size_max bytes" >&2; exit 1; }
for place in "$HOME/" "$PWD/"; do
  ! grep -qaF "$place" web/npm/confide_web_bg.wasm || { echo "web: the package names $place" >&2; exit 1; }
done

source tests/processes.sh

port() {
  read_ready "$1" listen | sed 's/.*://'
}

recorder=$(free_port)
page=$(free_port)
"$confide" attest --simulate tdx --out "$work/attester" >"$work/attest"
"$confide" attest --simulate snp --out "$work/amd" >"$work/attest"
start model "$confide" serve --engine sim --listen 127.0.0.1:0 --ttft-ms 50 --tokens-per-second 50
# start_gateway NAME ATTESTER BINDING [UPSTREAM]: its policy lies in the file NAME.toml.
start_gateway() {
  start "$1" "$confide" gateway --listen 127.0.0.1:0 --upstream "${4:-http://$(read_ready model listen)}" \
    --simulate "$work/$2" --binding "$3" --upstream-wait-s 0
  cp "$work/$2/policy.toml" "$work/$1.toml"
  "$confide" policy pin "$work/$1.toml" --digest "$(read_ready "$1" config_digest)" >"$work/pin"
}
start_gateway key attester key
start_gateway session attester session
start_gateway snp amd session
# A documentation address (RFC 5737): a model server elsewhere, so that the gateway claims less. Its policy accepts the
# other one too.
start_gateway elsewhere attester key http://192.0.2.1:80
"$confide" policy pin "$work/elsewhere.toml" --digest "$(read_ready key config_digest)" \
  --digest "$(read_ready elsewhere config_digest)" >"$work/pin"
start tunnel "$confide" tunnel --listen 127.0.0.1:0 --allow "127.0.0.1:$recorder" \
  --allow-origin "http://localhost:$page"

# start_page_gateway NAME ATTESTED SERVED FILE [TABLE]: an attested listener, with this table, and a tunnel to it, which
# serves the page in FILE.
start_page_gateway() {
  cat >"$work/$1.gateway.toml" <<END
[[listener]]
kind = "terminate"
listen = "127.0.0.1:$2"
binding = "key"
simulate = "$work/attester"
receipts = true
${5:-}
[[listener.upstream]]
url = "http://$(read_ready model listen)"

[[listener]]
kind = "tunnel"
listen = "127.0.0.1:$3"
allow = ["127.0.0.1:$2"]
allow_origin = ["http://127.0.0.1:$3", "http://localhost:$page"]
dangerous_allow_null_origin = true
page = "$4"
END
  start "$1" "$confide" gateway --config "$work/$1.gateway.toml"
}
attested=$(free_port)
served=$(free_port)
forged=$(free_port)
forged_served=$(free_port)
node web/bundle.mjs
start_page_gateway page "$attested" "$served" web/dist/confide-page.html
cp "$work/attester/policy.toml" "$work/page.toml"
"$confide" policy pin "$work/page.toml" --digest \
  "$("$confide" gateway --config "$work/page.gateway.toml" --print-config-digest | sed 's/.* //')" >"$work/pin"
# The host of the forged page has another configuration, which the policy refuses.
cat >"$work/forged.html" <<END
<!doctype html><meta http-equiv="Content-Security-Policy" content="default-src 'none'; form-action 'none'">
<title>confide: check a model host</title><h1>confide</h1><h2>Accepted</h2><p>All checks have passed.</p>
END
start_page_gateway forged "$forged" "$forged_served" "$work/forged.html" $'[[listener.route]]\npaths = ["/tokenize"]'

printf '{"folder": "%s", "tunnel": "ws://%s", "recorder": %s, "page": %s, "key": %s, "session": %s, "snp": %s,
  "elsewhere": %s, "program": "%s", "released": "%s", "attested": %s, "served": %s, "forged": %s,
  "forgedServed": %s, "plain": %s}\n' \
  "$work" "$(read_ready tunnel listen)" "$recorder" "$page" "$(port key)" "$(port session)" \
  "$(port snp)" "$(port elsewhere)" "$confide" "$PWD/web/dist/confide-page.html" "$attested" "$served" "$forged" \
  "$forged_served" "$(port tunnel)" >"$work/setup.json"

flags=()
node -e 'process.exit(globalThis.WebSocket ? 0 : 1)' || flags=(--experimental-websocket)
node "${flags[@]}" tests/javascript/web_client.mjs "$work/setup.json"

# The arm of the bench, over a plain socket and through the tunnel, and in the page that it measures in.
start measured node bench/web/page.mjs
start measured_tunnel "$confide" tunnel --listen 127.0.0.1:0 --allow "127.0.0.1:$(port key)" \
  --allow-origin "http://$(read_ready measured listen)"
arm=(node tests/javascript/web_arm.mjs "$(read_ready model listen)" --server "127.0.0.1:$(port key)"
  --policy "$work/key.toml")
through=(--via "ws://$(read_ready measured_tunnel listen)")
"${arm[@]}"
"${arm[@]}" "${through[@]}"

if chromium=$(command -v chromium || command -v chromium-browser || command -v google-chrome); then
  node tests/javascript/web_page.mjs "$chromium" "$work/setup.json"
  node tests/javascript/page_checks.mjs "$chromium" "$work/setup.json"
  "${arm[@]}" "${through[@]}" --page "http://$(read_ready measured listen)"
else
  echo "skipped: web: no Chromium"
fi
