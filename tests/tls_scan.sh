#!/usr/bin/env bash
# Scans `confide gateway` with sslyze: only TLS 1.3, no resumption, early data, compression or renegotiation, and no
# groups or suites other than those in tests/python/check_tls.py. Usage: tests/tls_scan.sh CONFIDE
# Builds .venv-tls (60 MB); skipped where the wheels cannot be had for this Python.
set -euo pipefail
cd "$(dirname "$0")/.."
confide=$1

# sslyze itself is a source package of pure Python.
python=$(PIP_OPTIONS="--only-binary :all: --no-binary sslyze" \
  tests/venv.sh .venv-tls tests/python/requirements-tls.txt "sslyze")
[ -n "$python" ] || { echo "tls-scan: skipped: no sslyze"; exit 0; }

work=$(mktemp -d)
gateway=
end() {
  [ -z "$gateway" ] || kill "$gateway" 2>/dev/null || true
  rm -rf "$work"
}
trap end EXIT

"$confide" gateway --binding none --listen 127.0.0.1:0 --upstream http://127.0.0.1:1 --upstream-wait-s 0 \
  >"$work/ready" 2>"$work/log" &
gateway=$!
for _ in $(seq 100); do
  [ -s "$work/ready" ] && break
  kill -0 "$gateway" 2>/dev/null || { cat "$work/log"; exit 1; }
  sleep 0.1
done
address=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["listen"])' "$work/ready")
"$(dirname "$python")/sslyze" --sslv2 --sslv3 --tlsv1 --tlsv1_1 --tlsv1_2 --tlsv1_3 --compression --reneg --resum \
  --early_data --heartbleed --robot --openssl_ccs --elliptic_curves --json_out="$work/scan.json" "$address" \
  >"$work/scan"
"$python" tests/python/check_tls.py "$work/scan.json"
