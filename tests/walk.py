#!/usr/bin/env python3
"""Does what the README says, as printed, and looks at what comes back.

usage: walk.py BINARY [PAGE]
Every code line of the README's section "Five-minute start", or of another page's section "The walk", is run in an
empty folder, in order, with the ports as printed. A block of code lines is what a reader pastes into one terminal: a
long-running command is the last of its block, prints its ready line, answers while the others run, and ends with
status 0 on SIGTERM. A line marked `# refused` must end with status 1, one marked `# impossible` with 2.

Where the machine permits, the walk has a loopback interface of its own (a network namespace), so that a port in
use elsewhere changes nothing. Elsewhere a busy port is named before anything starts.

A remark `# answers: WORDS` names words that the model's answer must hold. Each question to a model is asked four
times, because a reader asks more than once.
"""

import ctypes
import fcntl
import json
import os
import pathlib
import re
import selectors
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile

Server = subprocess.Popen[bytes]


LONG_RUNNING = ("serve", "gateway", "tunnel", "connect")
LONG_RUNNING_PAIRS = (
    ["adapter", "host"],
    ["collateral", "serve"],
    ["notary", "serve"],
    ["verify", "serve"],
)
READY_SECONDS = 60
COMMAND_SECONDS = 600
QUESTIONS = 4


def main() -> None:
    binary = pathlib.Path(sys.argv[1]).resolve()
    page = pathlib.Path(
        sys.argv[2] if len(sys.argv) > 2 else pathlib.Path(__file__).parent.parent / "README.md"
    )
    blocks = read_blocks(page.read_text())
    check_blocks(page.name, blocks)
    if not has_own_loopback():
        check_ports(blocks)
    environment = dict(os.environ, PATH=f"{binary.parent}:{os.environ['PATH']}")
    running: dict[str, Server] = {}
    with tempfile.TemporaryDirectory() as folder:
        # Counts of answers outlive an adapter host: not beyond this walk.
        environment["XDG_STATE_HOME"] = str(pathlib.Path(folder, ".state"))
        try:
            for line in (line for block in blocks for line in block):
                command, remark = split_remark(line)
                if command.startswith("curl ") and not shutil.which("curl"):
                    print("skipped: no curl:", command, flush=True)
                    continue
                print("$", command, flush=True)
                step(command, remark, folder, environment, running)
        finally:
            ends = [end(process) for process in running.values()]
    if any(ends):
        sys.exit(f"walk: a command did not end with status 0 on SIGTERM: {ends}")
    print(f"walk: every line of {page.name} did what it says")


def read_blocks(text: str) -> list[list[str]]:
    """The code of the section: one list for each block, continued lines joined, comments and blank lines left out."""
    title = "## Five-minute start" if "## Five-minute start" in text else "## The walk"
    section = text.split(title, 1)[1].split("\n## ", 1)[0]
    blocks: list[list[str]] = [[]]
    for line in section.replace("\\\n", " ").splitlines():
        if line.startswith("    "):
            if not line.strip().startswith("#"):
                blocks[-1].append(line.strip())
        elif line.strip():
            blocks.append([])
    return [block for block in blocks if block]


def check_blocks(name: str, blocks: list[list[str]]) -> None:
    """Whether each block can be pasted into one terminal as it stands, and no two servers want one port."""
    ports: dict[str, str] = {}
    for block in blocks:
        for line in block:
            command, (kind, _) = split_remark(line)
            words = command.split(" && ")[-1].split()
            if words[0] != "confide" or kind == "refused" or not is_long_running(words):
                continue
            if line is not block[-1]:
                sys.exit(
                    f"walk: {name}: nothing of this block runs after `{line}`, which does not end by itself"
                )
            listen = listen_address(words)
            if listen in ports:
                sys.exit(f"walk: {name}: `{line}` and `{ports[listen]}` both want {listen}")
            ports[listen] = line


def split_remark(line: str) -> tuple[str, tuple[str, str]]:
    """A line without its remark, and the remark as its kind and its words."""
    command, _, remark = line.partition("  # ")
    kind, _, words = remark.partition(":")
    return command.strip(), (kind.strip(), words.strip())


def is_long_running(words: list[str]) -> bool:
    if "--print-config-digest" in words:
        return False
    return words[1] in LONG_RUNNING or words[1:3] in LONG_RUNNING_PAIRS


def listen_address(words: list[str]) -> str:
    """Where a long-running command listens, or the file that says so."""
    return words[words.index("--listen" if "--listen" in words else "--config") + 1]


def has_own_loopback() -> bool:
    """Enters a network namespace with nothing but a loopback interface; false if that is not permitted."""
    new_user, new_net = 0x10000000, 0x40000000
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    if libc.unshare(new_net) != 0:
        if libc.unshare(new_user | new_net) != 0:
            return False
        for file, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{user} {user} 1"),
            ("gid_map", f"{group} {group} 1"),
        ):
            pathlib.Path("/proc/self", file).write_text(text)
    with socket.socket() as probe:
        # SIOCSIFFLAGS with IFF_UP | IFF_RUNNING (netdevice(7)).
        fcntl.ioctl(probe, 0x8914, struct.pack("16sh22x", b"lo", 0x1 | 0x40))
    return True


def check_ports(blocks: list[list[str]]) -> None:
    for line in (line for block in blocks for line in block):
        for port in re.findall(r"--listen 127\.0\.0\.1:(\d+)", line):
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind(("127.0.0.1", int(port)))
                except OSError as error:
                    sys.exit(
                        f"walk: `{line}` needs port {port} of this machine: {error.strerror}; end what uses it"
                    )


def step(
    command: str,
    remark: tuple[str, str],
    folder: str,
    environment: dict[str, str],
    running: dict[str, Server],
) -> None:
    wanted = {"refused": 1, "impossible": 2}.get(remark[0], 0)
    parts = command.split(" && ")
    for part in parts[:-1]:
        subprocess.run(
            part, shell=True, cwd=folder, env=environment, check=True, timeout=COMMAND_SECONDS
        )
    last = parts[-1]
    words = last.split()
    if words[0] == "confide" and is_long_running(words) and not wanted:
        running[listen_address(words)] = start(last, folder, environment)
        return
    for _ in range(QUESTIONS if "/v1/chat/completions" in last and words[0] == "curl" else 1):
        done = subprocess.run(
            last,
            shell=True,
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
        )
        print((done.stdout + done.stderr)[-600:])
        check_outcome(words, remark, wanted, done)


def check_outcome(
    words: list[str],
    remark: tuple[str, str],
    wanted: int,
    done: subprocess.CompletedProcess[str],
) -> None:
    """Ends the walk where a command's status or output is not what the page promises."""
    if (
        words[:3] in (["confide", "bench", "run"], ["confide", "bench", "load"])
        and done.returncode == 3
    ):
        if not re.search("A/A|^void ", done.stdout + done.stderr, re.M):
            sys.exit("walk: status 3, but neither an A/A row nor a client-bound load is named")
        print("walk: it ran, and calls its own figures unsteady (status 3)")
        return
    if done.returncode != wanted:
        sys.exit(f"walk: wanted status {wanted}, got {done.returncode}")
    if words[:2] == ["curl", "-N"]:
        if "data: [DONE]" not in done.stdout:
            sys.exit("walk: wanted a streamed answer that ends in data: [DONE]")
        events = re.findall(r"^data: ({.*})$", done.stdout, re.M)
        text = "".join(
            choice.get("delta", {}).get("content") or ""
            for event in events
            for choice in json.loads(event).get("choices", [])
        )
    elif words[0] == "curl":
        answer = json.loads(done.stdout)
        if not isinstance(answer, dict) or "error" in answer:
            sys.exit("walk: wanted a JSON object that is no error")
        text = "".join(choice["message"]["content"] for choice in answer.get("choices", []))
    else:
        text = done.stdout
    if remark[0] == "answers" and remark[1] not in text:
        sys.exit(f"walk: wanted an answer with `{remark[1]}`, got `{text}`")


def start(command: str, folder: str, environment: dict[str, str]) -> Server:
    process = subprocess.Popen(
        "exec " + command, shell=True, cwd=folder, env=environment, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    with selectors.DefaultSelector() as waiting:
        waiting.register(process.stdout, selectors.EVENT_READ)
        line = process.stdout.readline() if waiting.select(READY_SECONDS) else b""
    if not line or not json.loads(line).get("ready"):
        process.kill()
        sys.exit(f"walk: wanted a ready line, got {line!r}")
    print(line.decode().strip(), flush=True)
    return process


def end(process: Server) -> int | str:
    """Ends a long-running command; gives its status, which must be 0."""
    process.send_signal(signal.SIGTERM)
    try:
        return process.wait(timeout=30)
    except subprocess.TimeoutExpired:
        process.kill()
        return "no end within 30 s"


if __name__ == "__main__":
    main()
