#!/usr/bin/env bash
# `confide bench load` against an OpenAI server that is not of this house: `transformers serve`, with a
# model made here. Skipped where no Python has it. To have it (2.7 GB to fetch, 5.5 GB on disk):
#   python3 -m venv .venv-foreign && .venv-foreign/bin/pip install 'transformers[serving]'
set -euo pipefail
cd "$(dirname "$0")/.."

for candidate in .venv-foreign/bin/python "${FOREIGN_PYTHON:-python3}"; do
  command -v "$candidate" >/dev/null || continue
  if "$candidate" -c 'import fastapi, torch, transformers, uvicorn' 2>/dev/null; then
    python=$candidate
    break
  fi
done
[ -n "${python:-}" ] || { echo "skipped: no transformers with torch, fastapi and uvicorn"; exit 0; }

confide=${CONFIDE_BIN:-}
if [ -z "$confide" ]; then
  # With its own engine, because that is what makes models.
  cargo build --locked --quiet --release -p confide-cli
  confide=${CARGO_TARGET_DIR:-target}/release/confide
fi

work=$(mktemp -d)
server=
end() {
  [ -z "$server" ] || kill "$server" 2>/dev/null || true
  rm -rf "$work"
}
trap end EXIT

"${CONFIDE_MODEL_BIN:-$confide}" model make --shape tiny "$work/tiny" >/dev/null
port=$("$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
HF_HUB_OFFLINE=1 HF_HUB_DISABLE_TELEMETRY=1 HF_HOME="$work" "$python" -c \
  'import sys; from transformers.cli.transformers import main; sys.exit(main())' \
  serve --host 127.0.0.1 --port "$port" --device cpu >"$work/serve.log" 2>&1 &
server=$!
for _ in $(seq 240); do
  kill -0 "$server" 2>/dev/null || { cat "$work/serve.log"; echo "transformers serve ended"; exit 1; }
  "$python" -c "import socket; socket.create_connection(('127.0.0.1', $port), 1)" 2>/dev/null && break
  sleep 0.5
done

load() {
  "$confide" bench load "http://127.0.0.1:$port" --model "$work/tiny" --sessions kept \
    --arrivals constant --prompt-tokens 24 --output-tokens 16 "$@"
}
# The first request loads the model; status 3 says that the client was the limit, which a busy
# machine may make it.
load --requests 1 --rate 1 >/dev/null || [ $? -eq 3 ]
load --requests 12 --rate 0.5 --events "$work/events.jsonl" || [ $? -eq 3 ]
"$confide" bench read "$work/events.jsonl"
"$python" - "$work/events.jsonl" <<'CHECK'
import json
import sys

events = [json.loads(line) for line in open(sys.argv[1])]
events = [event for event in events if "scheduled_s" in event]
assert len(events) == 12, f"{len(events)} events"
for event in events:
    assert event.get("error") is None, event
    assert event["status"] == 200 and event["chunks_s"] and event["last_s"], event
tokens = {event.get("output_tokens") for event in events}
print(f"foreign: 12 of 12 answers whole; tokens as that server counts them: {sorted(tokens, key=str)}")
CHECK
