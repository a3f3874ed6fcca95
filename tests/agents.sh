#!/usr/bin/env bash
# Coding agents that others wrote, configured by `confide connect --for`, each as a process of its own with an empty
# home: it has to print what a scripted model server behind an attested gateway says.
# Usage: tests/agents.sh CONFIDE
# Installs Codex, opencode and Continue into a temporary folder (1 GB); Claude Code, which is not free software, is
# tried where `claude` is on the path. Skipped by name where they cannot be had.
set -euo pipefail
cd "$(dirname "$0")/.."
confide=$(realpath "$1")
packages=(@openai/codex@0.171.0 opencode-ai@1.18.33 @continuedev/cli@1.5.47)

source tests/processes.sh

if ! command -v npm >/dev/null; then
  echo "agents: skipped: no npm"
  exit 0
fi
mkdir "$work/npm" "$work/home"
npm install --silent --no-audit --no-fund --prefix "$work/npm" "${packages[@]}" >"$work/install" 2>&1 ||
  { echo "agents: skipped: ${packages[*]} cannot be had: $(tail -n 1 "$work/install")"; exit 0; }
PATH=$work/npm/node_modules/.bin:$PATH
export HOME=$work/home
unset OPENAI_API_KEY ANTHROPIC_API_KEY ANTHROPIC_AUTH_TOKEN

start model python3 tests/python/scripted_model.py
"$confide" attest --simulate tdx --out "$work/attester" >"$work/attest"
start gateway "$confide" gateway --listen 127.0.0.1:0 --upstream "$(head -n 1 "$work/model")" \
  --simulate "$work/attester"
"$confide" policy pin "$work/attester/policy.toml" --digest "$(read_ready gateway config_digest)" >"$work/pin"
connect=("$confide" connect "https://$(read_ready gateway listen)" --policy "$work/attester/policy.toml")

# ask NAME COMMAND...: runs an agent in an empty folder; it has to print the model's sentence.
ask() {
  local name=$1
  shift
  mkdir -p "$work/project-$name"
  local before
  before=$(wc -l <"$work/model")
  (cd "$work/project-$name" && timeout 120 "$@" </dev/null >"$work/$name.said" 2>&1) || true
  if grep -q "The scripted model answers." "$work/$name.said" && [ "$(wc -l <"$work/model")" -gt "$before" ]; then
    echo "agents: $name: answered through the attested address"
  else
    echo "agents: $name did not: $(tail -n 5 "$work/$name.said")" >&2
    exit 1
  fi
}

mkdir "$HOME/.codex"
start connect-codex "${connect[@]}" --for codex --agent-file "$HOME/.codex/config.toml"
ask codex codex exec --skip-git-repo-check hi
start connect-continue "${connect[@]}" --for continue --agent-file "$work/continue.yaml"
ask continue cn --config "$work/continue.yaml" -p hi
start connect-opencode "${connect[@]}" --for opencode --agent-file "$work/opencode.json"
ask opencode env OPENCODE_CONFIG="$work/opencode.json" opencode run hi
ask opencode-beside "${connect[@]}" --for opencode -- opencode run hi
if command -v claude >/dev/null; then
  start connect-claude "${connect[@]}" --for claude-code --agent-file "$work/claude.json"
  ask claude-code claude --settings "$work/claude.json" -p hi
  ask claude-code-beside "${connect[@]}" --for claude-code -- claude -p hi
else
  echo "agents: skipped: claude-code: no claude on the path"
fi
