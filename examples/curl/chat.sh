#!/bin/sh
# Asks a model in a confidential VM with curl.
#
#     confide connect https://127.0.0.1:8443 --policy sim/policy.toml -- sh examples/curl/chat.sh
#
# `confide connect` runs this script only if it accepts the server's evidence, and sets OPENAI_BASE_URL to an address of
# this machine. An API key for the gateway, where it wants one, is in OPENAI_API_KEY.
set -eu

echo "verification:"
curl --fail --silent --show-error "${OPENAI_BASE_URL%/v1}/.well-known/confide/verification"
echo

model=$(curl --fail --silent --show-error "$OPENAI_BASE_URL/models" | sed 's/.*"data":\[{[^}]*"id":"\([^"]*\)".*/\1/')
ask() {
  curl --fail --silent --show-error --no-buffer "$OPENAI_BASE_URL/chat/completions" \
    --header "authorization: Bearer $OPENAI_API_KEY" --header "content-type: application/json" --data "$1"
  echo
}
question='[{"role":"user","content":"What is confide?"}]'
echo "answer:"
ask "{\"model\":\"$model\",\"max_tokens\":24,\"messages\":$question}"
echo "streamed:"
ask "{\"model\":\"$model\",\"max_tokens\":24,\"messages\":$question,\"stream\":true}"
