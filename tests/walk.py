#!/usr/bin/env python3
"""Does what the README says, as printed, and looks at what comes back.

usage: walk.py BINARY [PAGE] [--without-wheel VENV]
Every code line of the README's section "Five-minute start", or of another page's section "The walk" or "Start", is run
in an empty folder, in order, with the ports as printed. A block of code lines is what a reader pastes into one
terminal: a long-running command is the last of its block, prints its ready line, answers while the others run, and ends
with status 0 on SIGTERM. A line marked `# refused` must end with status 1, one marked `# impossible` with 2; words
after `# refused: ` must be in its output.

A "Start" is a walk in a checkout: the folder has links to `examples`, `go` and `web`. An environment that is activated
(`. FOLDER/bin/activate`) serves every later line. A line marked `# once` builds or installs something and is run in the
checkout itself, with the network of the machine. Where it says that this machine cannot build that (`skipped: …`, or
status 3), the walk ends there and says so.

With `--without-wheel VENV`, for a machine that has no time to build a wheel, no `# once` line is run: the environment
of the walk gets the packages of VENV instead, and the package of the checkout with the library next to BINARY.

Where the machine permits, the walk has a loopback interface of its own (a network namespace), so that a port in
use elsewhere changes nothing. Elsewhere a busy port is named before anything starts.

A remark `# answers: WORDS` names words that the model's answer must hold. Each question to a model is asked four
times, because a reader asks more than once.
"""

import argparse
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
# A release build of everything.
BUILD_SECONDS = 3600
QUESTIONS = 4


CHECKOUT = pathlib.Path(__file__).resolve().parent.parent
TITLES = ("## Five-minute start", "## The walk", "## Start")
# What the folder of a "Start" has of the checkout.
CHECKOUT_ENTRIES = ("examples", "go", "web")
# Programs that not every machine has.
OPTIONAL_PROGRAMS = ("curl", "node", "npm")


class Skip(Exception):
    """This machine cannot build what the rest of the page needs."""


class Walk:
    """One walk: its folder, the environment of its commands, and what runs."""

    def __init__(self, folder: str, binary: pathlib.Path, venv: str | None) -> None:
        self.folder = pathlib.Path(folder)
        self.binary = binary
        self.venv = venv and pathlib.Path(venv).resolve()
        # Counts of answers outlive an adapter host: not beyond this walk.
        self.environment = dict(
            os.environ,
            PATH=f"{binary.parent}:{os.environ['PATH']}",
            XDG_STATE_HOME=str(self.folder / ".state"),
        )
        self.running: dict[str, Server] = {}
        # Lines that were not run.
        self.left_out = 0

    def link_checkout(self) -> None:
        """Makes links to what the commands use of the checkout."""
        for entry in CHECKOUT_ENTRIES:
            (self.folder / entry).symlink_to(CHECKOUT / entry)

    def take_line(self, line: str) -> None:
        """Runs a line of the page, unless this machine lacks its program."""
        command, remark = split_remark(line)
        program = command.split()[0]
        if program in OPTIONAL_PROGRAMS and not shutil.which(program):
            if remark[0] == "once":
                raise Skip(f"no {program}")
            print(f"skipped: no {program}: {command}", flush=True)
            self.left_out += 1
        elif remark[0] == "once" and self.venv:
            print(f"walk: not run without a wheel: {command}", flush=True)
            self.left_out += 1
        else:
            print("$", command, flush=True)
            step(command, remark, self)
        if program == ".":
            self.activate(command.split()[1])

    def activate(self, script: str) -> None:
        """Does for later lines what activating an environment does for those of a terminal."""
        folder = (self.folder / script).parent
        self.environment["PATH"] = f"{folder}:{self.environment['PATH']}"
        if self.venv:
            packages = self.folder / ".packages"
            link = [sys.executable, str(CHECKOUT / "tests/python/checkout_package.py")]
            subprocess.run([*link, str(self.binary), str(packages)], check=True)
            (site,) = folder.parent.glob("lib/python*/site-packages")
            (installed,) = self.venv.glob("lib/python*/site-packages")
            (site / "walk.pth").write_text(f"{packages}\n{installed}\n")
            print(f"walk: the environment has the packages of {self.venv.name} and of the checkout")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("page", nargs="?", default=str(CHECKOUT / "README.md"))
    parser.add_argument("--without-wheel", metavar="VENV")
    arguments = parser.parse_args()
    page = pathlib.Path(arguments.page)
    title, blocks = read_blocks(page.read_text())
    check_blocks(page.name, blocks)
    lines = [line for block in blocks for line in block]
    first = count_preparations(lines)
    with tempfile.TemporaryDirectory() as folder:
        walk = Walk(folder, pathlib.Path(arguments.binary).resolve(), arguments.without_wheel)
        if title == "## Start":
            walk.link_checkout()
        reason = None
        try:
            for line in lines[:first]:
                walk.take_line(line)
            if not has_own_loopback():
                check_ports(blocks)
            for line in lines[first:]:
                walk.take_line(line)
        except Skip as skip:
            reason = skip
        finally:
            ends = [end(process) for process in walk.running.values()]
    if any(ends):
        sys.exit(f"walk: a command did not end with status 0 on SIGTERM: {ends}")
    if reason:
        print(f"skipped: the rest of {page.name}: {reason}")
    else:
        but = f", but for {walk.left_out} that were not run" if walk.left_out else ""
        print(f"walk: every line of {page.name} did what it says{but}")


def read_blocks(text: str) -> tuple[str, list[list[str]]]:
    """The section's title and its code: one list for each block, continued lines joined, comments and blank lines left
    out.
    """
    title = next(title for title in TITLES if f"\n{title}\n" in text)
    section = text.split(f"\n{title}\n", 1)[1].split("\n## ", 1)[0]
    blocks: list[list[str]] = [[]]
    for line in section.replace("\\\n", " ").splitlines():
        if line.startswith("    "):
            if not line.strip().startswith("#"):
                blocks[-1].append(line.strip())
        elif line.strip():
            blocks.append([])
    return title, [block for block in blocks if block]


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


def count_preparations(lines: list[str]) -> int:
    """How many lines there are up to the last that builds or installs something, which may need the network."""
    return max(
        (n for n, line in enumerate(lines, 1) if split_remark(line)[1][0] == "once"), default=0
    )


def split_remark(line: str) -> tuple[str, tuple[str, str]]:
    """A line without its remark, and the remark as its kind and its words."""
    command, _, remark = line.partition("  # ")
    kind, _, words = remark.partition(":")
    return command.strip(), (kind.strip(), words.strip())


def is_long_running(words: list[str]) -> bool:
    if "--print-config-digest" in words or "--" in words:
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


def step(command: str, remark: tuple[str, str], walk: Walk) -> None:
    folder = CHECKOUT if remark[0] == "once" else walk.folder
    environment = walk.environment
    wanted = {"refused": 1, "impossible": 2}.get(remark[0], 0)
    parts = command.split(" && ")
    for part in parts[:-1]:
        subprocess.run(
            part, shell=True, cwd=folder, env=environment, check=True, timeout=COMMAND_SECONDS
        )
    last = parts[-1]
    words = last.split()
    if words[0] == "confide" and is_long_running(words) and not wanted:
        walk.running[listen_address(words)] = start(last, folder, environment)
        return
    for _ in range(QUESTIONS if "/v1/chat/completions" in last and words[0] == "curl" else 1):
        done = subprocess.run(
            last,
            shell=True,
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=BUILD_SECONDS if remark[0] == "once" else COMMAND_SECONDS,
        )
        print((done.stdout + done.stderr)[-600:])
        skips = re.findall(r"^skipped: .*", done.stdout, re.M)
        if remark[0] == "once" and (skips or done.returncode == 3):
            raise Skip(skips[0] if skips else done.stderr.strip())
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
    if remark[0] == "refused" and remark[1] not in done.stdout + done.stderr:
        sys.exit(f"walk: wanted an output with `{remark[1]}`")
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


def start(command: str, folder: pathlib.Path, environment: dict[str, str]) -> Server:
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
