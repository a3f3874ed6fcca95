#!/usr/bin/env python3
"""Does what the README says, literally, and looks at what comes back.

usage: walk.py BINARY [PAGE]
Every code line of the sections "Start every piece yourself" and "Measure your own machine", or of another page's
section "The walk", is run in an empty folder, in order. A long-running command must print its ready line, answer
while the others run, and end with status 0 on SIGTERM. A line marked `# refused` must end with status 1, one marked
`# impossible` with 2. Ports are replaced by free ones, so that a busy machine changes nothing.
"""
import json, os, pathlib, re, selectors, shutil, signal, socket, subprocess, sys, tempfile

LONG_RUNNING = ("serve", "gateway", "tunnel", "connect")
LONG_RUNNING_PAIRS = (["adapter", "host"], ["collateral", "serve"], ["notary", "serve"], ["verify", "serve"])
READY_SECONDS = 60
COMMAND_SECONDS = 600


def main():
    binary = pathlib.Path(sys.argv[1]).resolve()
    readme = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else pathlib.Path(__file__).parent.parent / "README.md")
    environment = dict(os.environ, PATH=f"{binary.parent}:{os.environ['PATH']}")
    running = {}
    with tempfile.TemporaryDirectory() as folder:
        # Counts of answers outlive an adapter host: not beyond this walk.
        environment["XDG_STATE_HOME"] = str(pathlib.Path(folder, ".state"))
        try:
            for command, wanted in commands(readme.read_text()):
                if command.startswith("curl ") and not shutil.which("curl"):
                    print("skipped: no curl:", command, flush=True)
                    continue
                print("$", command, flush=True)
                step(command, wanted, folder, environment, running)
        finally:
            ends = [end(process) for process in running.values()]
    if any(ends):
        sys.exit(f"walk: a command did not end with status 0 on SIGTERM: {ends}")
    print(f"walk: every line of {readme.name} did what it says")


def commands(readme):
    """The code lines of the sections, continued lines joined, each with the status that it must end with."""
    sections = ("## Start every piece yourself", "## Measure your own machine")
    wanted = sections if sections[0] in readme else ("## The walk",)
    section = "".join(readme.split(name, 1)[1].split("\n## ", 1)[0] for name in wanted)
    code = "\n".join(line[4:] for line in section.splitlines() if line.startswith("    "))
    ports = {}
    for line in code.replace("\\\n", " ").splitlines():
        if line.startswith(("confide ", "curl ", "sed ", "cp ", "printf ", "python3 ")):
            line = re.sub(r"127\.0\.0\.1:(\d+)", lambda m: f"127.0.0.1:{ports.setdefault(m[1], free_port())}", line)
            command, _, remark = line.partition("  # ")
            yield command.strip(), {"refused": 1, "impossible": 2}.get(remark.strip().split(":")[0], 0)


def is_long_running(words):
    return words[1] in LONG_RUNNING or words[1:3] in LONG_RUNNING_PAIRS


def free_port():
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        return door.getsockname()[1]


def step(command, wanted, folder, environment, running):
    parts = command.split(" && ")
    for part in parts[:-1]:
        subprocess.run(part, shell=True, cwd=folder, env=environment, check=True, timeout=COMMAND_SECONDS)
    last = parts[-1]
    words = last.split()
    if words[0] == "confide" and is_long_running(words) and not wanted:
        listen = words[words.index("--listen") + 1]
        if listen in running:
            if end(running.pop(listen)):
                sys.exit(f"walk: {listen} did not end with status 0")
        running[listen] = start(last, folder, environment)
        return
    done = subprocess.run(
        last, shell=True, cwd=folder, env=environment, capture_output=True, text=True, timeout=COMMAND_SECONDS)
    print((done.stdout + done.stderr)[-600:])
    if words[:3] in (["confide", "bench", "run"], ["confide", "bench", "load"]) and done.returncode == 3:
        if not re.search("A/A|^void ", done.stdout + done.stderr, re.M):
            sys.exit("walk: status 3, but neither an A/A row nor a client-bound load is named")
        print("walk: it ran, and calls its own figures unsteady (status 3)")
        return
    if done.returncode != wanted:
        sys.exit(f"walk: wanted status {wanted}, got {done.returncode}")
    if words[:2] == ["curl", "-N"] and ("data: [DONE]" not in done.stdout or '"content"' not in done.stdout):
        sys.exit("walk: wanted a streamed answer that ends in data: [DONE]")
    if words[0] == "curl" and words[1] != "-N" and not isinstance(json.loads(done.stdout), dict):
        sys.exit("walk: wanted a JSON object")


def start(command, folder, environment):
    process = subprocess.Popen("exec " + command, shell=True, cwd=folder, env=environment, stdout=subprocess.PIPE)
    with selectors.DefaultSelector() as waiting:
        waiting.register(process.stdout, selectors.EVENT_READ)
        line = process.stdout.readline() if waiting.select(READY_SECONDS) else b""
    if not line or not json.loads(line).get("ready"):
        process.kill()
        sys.exit(f"walk: wanted a ready line, got {line!r}")
    print(line.decode().strip(), flush=True)
    return process


def end(process):
    """Ends a long-running command; gives its status, which must be 0."""
    process.send_signal(signal.SIGTERM)
    try:
        return process.wait(timeout=30)
    except subprocess.TimeoutExpired:
        process.kill()
        return "no end within 30 s"


if __name__ == "__main__":
    main()
