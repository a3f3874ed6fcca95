#!/usr/bin/env bash
# The caller's program for other systems (docs/platforms.md): built for Windows and for aarch64, and run here, by Wine
# and QEMU, against a gateway with simulated attestation. For macOS its types are checked.
# Usage: tests/portable.sh [--dev] CONFIDE
# Skipped by name: what this machine cannot build or run.
set -euo pipefail
cd "$(dirname "$0")/.."
flags=()
folder=release
if [ "${1:-}" = --dev ]; then
  flags=(--dev)
  folder=debug
  shift
fi
confide=$(realpath "$1")
target_folder=${CARGO_TARGET_DIR:-target}

source tests/processes.sh

fail() {
  echo "portable: $*" >&2
  exit 1
}

# build_caller TARGET: returns 1 where this machine cannot build for it.
build_caller() {
  local status=0
  crates/cli/build_caller.sh "${flags[@]}" "$1" || status=$?
  [ $status -ne 3 ] || { echo "skipped: portable: $1"; return 1; }
  [ $status -eq 0 ] || exit $status
}

# check_command STATUS WORDS ARGUMENTS...: the program of the other system ends with this status and prints these words,
# and CONFIDE ends with the same status and prints the same, byte for byte.
check_command() {
  local status=0 other=0 wanted=$1 words=$2
  shift 2
  timeout 60 "${program[@]}" "$@" >"$work/output" 2>&1 </dev/null || status=$?
  timeout 60 "$confide" "$@" >"$work/output-here" 2>&1 </dev/null || other=$?
  [ $status -eq "$wanted" ] || fail "${program[*]} $*: wanted status $wanted, got $status: $(cat "$work/output")"
  grep -q "$words" "$work/output" || fail "${program[*]} $*: wanted '$words', got: $(cat "$work/output")"
  [ $other -eq $status ] || fail "$confide $*: wanted status $status, got $other"
  diff "$work/output-here" "$work/output" || fail "${program[*]} $*: other words"
}

# send_chat ADDRESS TOKENS: sends a chat, and prints its answer as it is streamed.
send_chat() {
  curl -sS -N --max-time 60 "http://$1/v1/chat/completions" -H 'content-type: application/json' \
    -d '{"model": "sim", "stream": true, "max_tokens": '"$2"', "messages": [{"role": "user", "content": "hello"}]}'
}

# try_program NAME COMMAND...: does what a first user of that system does.
try_program() {
  local name=$1
  shift
  program=("$@")
  "${program[@]}" --version </dev/null >"$work/version"
  grep -q '^build: caller$' "$work/version" || fail "$name: --version: $(cat "$work/version")"
  [ "$(head -1 "$work/version")" = "$("$confide" -V)" ] || fail "$name: another version"

  local quote=(verify quote "$work/sim/evidence.bin" --collateral "$work/sim/collateral.json")
  check_command 0 '^accepted  *platform only' "${quote[@]}" --policy "$work/sim/policy.toml"
  check_command 1 '^measurements  *failed  *mrtd does not match' "${quote[@]}" --policy "$work/other.toml"
  check_command 1 'check `measurements` failed: mrtd does not match' "${connect[@]}" --policy "$work/other.toml"
  check_command 1 'check `root` failed: root is not trusted' "${connect[@]}" --policy "$work/production.toml"
  check_command 2 'is not loopback' "${connect[@]}" --policy "$work/pinned.toml" --listen 0.0.0.0:0
  check_command 0 'the chain ends in intel-production' policy explain "$work/production.toml"
  local status=0
  "${program[@]}" gateway </dev/null >"$work/output" 2>&1 || status=$?
  [ $status -eq 2 ] && grep -q 'has no `confide gateway`' "$work/output" || fail "$name: gateway: $(cat "$work/output")"

  start "$name" "${program[@]}" "${connect[@]}" --policy "$work/pinned.toml" --listen 127.0.0.1:0 \
    --for codex --agent-file "$work/$name.toml"
  grep -q '^model_provider' "$work/$name.toml" || fail "$name: no configuration of an agent"
  local pid=${processes[-1]} address
  address=$(read_ready "$name" listen)
  send_chat "$address" 8 | grep -q '^data: \[DONE\]' || fail "$name: no answer: $(cat "$work/$name.log")"
  # Ctrl-C lets the answer end, and no further one begin.
  send_chat "$address" 60 >"$work/answer" &
  local asked=$!
  for _ in $(seq 100); do ! grep -q '^data: ' "$work/answer" || break; sleep 0.1; done
  ! grep -q DONE "$work/answer" || fail "$name: the answer ended before Ctrl-C"
  kill -INT "$pid"
  wait "$asked" || fail "$name: Ctrl-C cut an answer"
  grep -q '^data: \[DONE\]' "$work/answer" || fail "$name: Ctrl-C cut an answer: $(tail -c 300 "$work/answer")"
  timeout 60 tail --pid="$pid" -f /dev/null || fail "$name: Ctrl-C does not end it"
  status=0
  wait "$pid" || status=$?
  [ $status -eq 0 ] || fail "$name: Ctrl-C ends with status $status: $(cat "$work/$name.log")"
  ! send_chat "$address" 1 >"$work/answer" 2>&1 || fail "$name: it still answers"
}

# try_command NAME COMMAND...: `connect -- COMMAND` leads it to the address and ends with its status, 7.
try_command() {
  local name=$1 status=0
  shift
  timeout 60 "${program[@]}" "${connect[@]}" --policy "$work/pinned.toml" -- "$@" \
    >"$work/command" 2>"$work/command.log" </dev/null || status=$?
  [ $status -eq 7 ] || fail "$name: connect -- COMMAND: wanted status 7, got $status: $(cat "$work/command.log")"
  grep -q '^http://127.0.0.1:[0-9]*/v1' "$work/command" || fail "$name: no OPENAI_BASE_URL: $(cat "$work/command")"
}

"$confide" attest --simulate tdx --out "$work/sim" >"$work/attest"
start model "$confide" serve --engine sim --listen 127.0.0.1:0 --ttft-ms 50 --tokens-per-second 20
start gateway "$confide" gateway --listen 127.0.0.1:0 --upstream "http://$(read_ready model listen)" \
  --simulate "$work/sim" --binding session
cp "$work/sim/policy.toml" "$work/pinned.toml"
"$confide" policy pin "$work/pinned.toml" --digest "$(read_ready gateway config_digest)" >"$work/pin"
sed 's/^mrtd = "../mrtd = "00/' "$work/pinned.toml" >"$work/other.toml"
sed 's/^roots.*/roots = ["intel-production"]/' "$work/pinned.toml" >"$work/production.toml"

connect=(connect "https://$(read_ready gateway listen)" --binding session)

tried=()
target=x86_64-pc-windows-gnu
if ! wine=$(command -v wine || command -v wine64); then
  echo "skipped: portable: $target: no Wine"
elif build_caller $target; then
  mkdir "$work/folder"
  cp "$target_folder/$target/$folder/confide.exe" "$work/folder/"
  # Wine runs in a folder of its own, without windows, and says nothing of what it lacks.
  export WINEPREFIX=$work/wine WINEDEBUG=-all
  unset DISPLAY
  timeout 120 "$wine" wineboot --init >"$work/wineboot" 2>&1 </dev/null ||
    fail "Wine does not start: $(cat "$work/wineboot")"
  if [ ! -e "$WINEPREFIX/drive_c/windows/system32/bcryptprimitives.dll" ]; then
    # Wine before 9 lacks the library from which Rust takes random numbers; this asks the one that it has.
    echo '#include <windows.h>
#include <ntsecapi.h>
__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE data, SIZE_T size) { return RtlGenRandom(data, (ULONG)size); }' |
      x86_64-w64-mingw32-gcc -shared -x c - -o "$work/folder/bcryptprimitives.dll" -ladvapi32
  fi
  try_program windows "$wine" "$work/folder/confide.exe"
  try_command windows cmd /c 'echo %OPENAI_BASE_URL%& exit 7'
  grep -q 'anyone who may read files there' "$work/windows.log" || fail "windows: the agent's file: no warning"
  mkdir "$work/store"
  "${program[@]}" collateral show --store "$work/store" </dev/null >"$work/output" 2>&1 || fail "windows: no store"
  grep -q 'anyone who may write there' "$work/output" || fail "windows: a store: no warning: $(cat "$work/output")"
  "$wine" wineboot --kill
  tried+=(windows)
fi

target=aarch64-unknown-linux-gnu
if ! qemu=$(command -v qemu-aarch64 || command -v qemu-aarch64-static); then
  echo "skipped: portable: $target: no qemu-user"
elif build_caller $target; then
  try_program aarch64 "$qemu" -L /usr/aarch64-linux-gnu "$target_folder/$target/$folder/confide"
  [ "$(stat -c %a "$work/aarch64.toml")" = 600 ] || fail "aarch64: others can read the agent's file"
  try_command aarch64 sh -c 'echo $OPENAI_BASE_URL; exit 7'
  tried+=(aarch64)
fi

for target in aarch64-apple-darwin x86_64-apple-darwin; do
  status=0
  crates/cli/build_caller.sh --check $target || status=$?
  case $status in
  0) echo "portable: $target: types checked, not run here" ;;
  3) echo "skipped: portable: $target" ;;
  *) exit $status ;;
  esac
done
echo "portable: ran for ${tried[*]:-no other system}"
