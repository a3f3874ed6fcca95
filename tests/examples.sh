#!/usr/bin/env bash
# Runs the programs in examples/ as their own texts say: against an attested gateway, whose model's answer each has to
# print, and against one that its policy does not accept, which each has to refuse by the name of the check before it
# has sent a request. All evidence is simulated.
# Usage: tests/examples.sh CONFIDE PYTHON [--all]
# PYTHON has the packages of tests/python/requirements.txt; the library of the Python package lies next to CONFIDE. With
# --all also LangChain, LiteLLM and LlamaIndex, whose packages are installed (1 GB). What cannot be had is skipped by
# name.
set -euo pipefail
cd "$(dirname "$0")/.."
confide=$(realpath "$1")
python=$2
all=${3:-}

source tests/processes.sh

# start_gateway NAME UPSTREAM: its requests are logged in NAME.access, its policy is NAME.toml.
start_gateway() {
  start "$1" "$confide" gateway --listen 127.0.0.1:0 --upstream "$2" --simulate "$work/attester" \
    --access-log "$work/$1.access"
  cp "$work/attester/policy.toml" "$work/$1.toml"
  "$confide" policy pin "$work/$1.toml" --digest "$(read_ready "$1" config_digest)" >"$work/pin"
}
server() {
  echo "https://$(read_ready "$1" listen)"
}

"$python" tests/python/checkout_package.py "$confide" "$work/packages"
export PYTHONPATH=$work/packages
"$confide" attest --simulate tdx --out "$work/attester" >"$work/attest"
start model "$confide" serve --engine sim --listen 127.0.0.1:0
start scripted python3 tests/python/scripted_model.py --call-tool count_stock '{"item": "apples"}'
start_gateway words "http://$(read_ready model listen)"
start_gateway tools "$(head -n 1 "$work/scripted")"
# The one that no policy here accepts: what it runs is not what this policy names.
start_gateway other "http://$(read_ready model listen)"
sed -i 's/^mrtd = .*/mrtd = "'"$(printf %096d 0)"'"/' "$work/other.toml"

fail() {
  echo "examples: $1: $2: $(tail -n 20 "$work/said")" >&2
  exit 1
}
# expect NAME OUTCOME WORDS COMMAND...: the program ends with status 0 and prints these words, a regular expression.
expect() {
  local name=$1 outcome=$2 words=$3
  shift 3
  timeout 120 "$@" </dev/null >"$work/said" 2>&1 || fail "$name" "wanted status 0, got $?"
  tr '\n' ' ' <"$work/said" | grep -qE "$words" || fail "$name" "wanted an output with $words"
  echo "examples: $name: $outcome"
}
# refuse NAME COMMAND...: the program ends with status 1 and names the check.
refuse() {
  local name=$1 status=0
  shift
  timeout 120 "$@" </dev/null >"$work/said" 2>&1 || status=$?
  [ "$status" -eq 1 ] || fail "$name" "wanted status 1, got $status"
  grep -qE 'check (`measurements`|measurements)' "$work/said" || fail "$name" "wanted the check measurements"
  echo "examples: $name: refused by the check measurements"
}
# try_attested NAME WORDS COMMAND...: a program that takes the server and a policy after the words of its command.
try_attested() {
  local name=$1 words=$2
  shift 2
  expect "$name" answered "$words" "$@" "$(server words)" "$work/words.toml" "${more[@]}"
  refuse "$name" "$@" "$(server other)" "$work/other.toml" "${more[@]}"
}
# try_connected GATEWAY NAME WORDS COMMAND...: a program beside `confide connect`.
try_connected() {
  local gateway=$1 name=$2 words=$3
  shift 3
  expect "$name" answered "$words" "$confide" connect "$(server "$gateway")" --policy "$work/$gateway.toml" -- "$@"
  refuse "$name" "$confide" connect "$(server other)" --policy "$work/other.toml" -- "$@"
}

# Twenty-four words of the simulated model, whole and streamed: the same for the same question.
answers='answer: (([^ ]+ ){24})streamed: \1'
verified='"guarantee": ?"none \(simulated\)".*'
more=()
try_attested "openai for Python" "$verified$answers" "$python" examples/python/chat_openai.py
try_connected tools "an agent with an MCP server" \
  'tool: count_stock .* gave 12 apples in stock answer: .*\(simulated\) was told: 12 apples in stock' \
  "$python" examples/mcp/agent.py
if command -v curl >/dev/null; then
  try_connected words curl "$verified"'"completion_tokens":24.*data: \[DONE\]' sh examples/curl/chat.sh
else
  echo "skipped: curl: no curl"
fi

try_page() {
  local chromium page
  chromium=$(command -v chromium || command -v chromium-browser || command -v google-chrome) ||
    { echo "skipped: a page: no Chromium"; return; }
  page=$(free_port)
  start tunnel "$confide" tunnel --listen 127.0.0.1:0 --allow "$(read_ready words listen)" \
    --allow "$(read_ready other listen)" --allow-origin "http://localhost:$page"
  local visit=(node tests/javascript/example_page.mjs "$chromium" "$page")
  expect "a page" answered 'is accepted. Guarantee: none \(simulated\) answer: ([^ ]+ ){24}' \
    "${visit[@]}" "$work/words.toml" "$(server words)" "ws://$(read_ready tunnel listen)"
  expect "a page" "refused by the check measurements" '^Refused, check measurements: .* answer: +$' \
    "${visit[@]}" "$work/other.toml" "$(server other)" "ws://$(read_ready tunnel listen)"
}
try_node() {
  command -v npm >/dev/null || { echo "skipped: Node: no npm"; return; }
  npm ci --silent --no-audit --no-fund --prefix examples/node >"$work/npm" 2>&1 ||
    { echo "skipped: Node: the packages cannot be had: $(tail -n 1 "$work/npm")"; return; }
  try_connected words "openai for Node, beside connect" "$verified$answers" node examples/node/chat_connect.mjs
  local status=0
  web/build.sh || status=$?
  [ $status -ne 3 ] || { echo "skipped: openai for Node and a page: WebAssembly cannot be built"; return; }
  [ $status -eq 0 ] || exit $status
  more=()
  try_attested "openai for Node" "$verified$answers" node examples/node/chat_attested.mjs
  try_page
}
try_node

# try_framework NAME VENV REQUIREMENTS IMPORTS PROGRAM
try_framework() {
  local framework=$1 venv=$2 requirements=$3 imports=$4 program=$5
  local packages
  packages=$(PIP_LOG=$work/pip tests/venv.sh "$venv" "$requirements" "$imports")
  if [ -n "$packages" ]; then
    more=(sim)
    try_attested "$framework" "$answers" "$packages" "$program"
  else
    echo "skipped: $framework: the wheels of $requirements cannot be had: $(tail -n 1 "$work/pip")"
  fi
}
if [ "$all" = --all ]; then
  export LITELLM_LOCAL_MODEL_COST_MAP=True
  langchain=(.venv-examples tests/python/requirements-examples.txt "langchain_openai, litellm")
  try_framework LangChain "${langchain[@]}" examples/python/chat_langchain.py
  try_framework LiteLLM "${langchain[@]}" examples/python/chat_litellm.py
  try_framework LlamaIndex .venv-llamaindex tests/python/requirements-llamaindex.txt llama_index.llms.openai_like \
    examples/python/chat_llamaindex.py
fi

# The gateway that was refused has answered nobody: the only line of its log is that of a request made now.
"$confide" connect "$(server other)" --policy "$work/words.toml" -- "$python" -c \
  'import os, urllib.request; urllib.request.urlopen(os.environ["OPENAI_BASE_URL"] + "/models?last")' 2>"$work/late"
for _ in $(seq 100); do
  [ ! -s "$work/other.access" ] || break
  sleep 0.1
done
[ "$(wc -l <"$work/other.access")" -eq 1 ] ||
  { echo "examples: wanted one request at the refused gateway, got: $(cat "$work/other.access")" >&2; exit 1; }
echo "examples: the refused gateway was sent no request"
