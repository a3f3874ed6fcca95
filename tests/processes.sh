# Programs that run beside a test script, which sources this file: their output lies in the folder $work, which goes
# with them when the script ends.
work=$(mktemp -d)
processes=()
end_processes() {
  for process in "${processes[@]}"; do kill "$process" 2>/dev/null || true; done
  rm -rf "$work"
}
trap end_processes EXIT

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
  echo "${0##*/}: $*: no ready line: $(cat "$work/$name.log")" >&2
  exit 1
}

# read_ready NAME MEMBER: a member of that line.
read_ready() {
  python3 -c 'import json, sys; print(json.loads(open(sys.argv[1]).readline())[sys.argv[2]])' "$work/$1" "$2"
}

# free_port: a port of 127.0.0.1 that nothing uses just now.
free_port() {
  python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}
