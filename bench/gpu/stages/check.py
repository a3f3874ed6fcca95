"""The test bodies on the card, file by file and side by side, and compute-sanitizer over some of them.

A failure does not end the run: the note of each arm that rests on it says so (checks.py).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from blocks import StageSession
from journal import CHECKOUT

# Small bodies: under compute-sanitizer a launch takes a hundred times as long.
SANITISED = "confide.cuda.tests.test_runtime,confide.cuda.tests.test_online"
TOOLS = ("memcheck", "racecheck")
SANITIZER_PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/local/cuda/bin"
# The build stage has compiled every kernel for this card; three architectures more are CI's affair.
LEFT_OUT = ("test_compile",)
SUMMARY = re.compile(
    r"^(?:Ran \d+ tests?.*|OK.*|FAILED.*|=+ ERROR SUMMARY.*|=+ RACECHECK SUMMARY.*|\w+(?:Error|Exception): .*)$",
    re.M,
)


def run(session: StageSession) -> None:
    waiting = list_commands(session)
    total = len(waiting)
    running: dict[str, subprocess.Popen[bytes]] = {}
    ready: dict[str, str] = {}
    while waiting or running:
        while (
            waiting
            and len(running) < max(1, (os.cpu_count() or 2) // 2)
            and session.remaining_s() > 2
        ):
            name, command = waiting.popitem()
            running[name] = start_check(command, log_path(session, name))
        done = [name for name, process in running.items() if process.poll() is not None]
        for name in done:
            ready[name] = describe_outcome(running.pop(name).returncode, log_path(session, name))
        if session.remaining_s() < 1.5:
            for name, process in running.items():
                process.kill()
                ready[name] = "no time left"
            ready |= dict.fromkeys(waiting, "no time left")
            break
        time.sleep(0.05)
    for name, told in sorted(ready.items()):
        session.print_line(f"{name}: {told}")
    session.report_service("check", ["python3", "-m", "unittest"], ready)
    session.print_line(
        f"{sum(told.startswith('passed') for told in ready.values())} of {total} passed"
    )
    session.share_fact("checks", ready)


def list_commands(session: StageSession) -> dict[str, list[str]]:
    """The commands of the checks by name; the last one is begun first."""
    found = {
        name: unittest_command([name])
        for name in ([SANITISED.split(",")[0]] if session.cpu else list_test_modules())
    }
    sanitizer = shutil.which("compute-sanitizer", path=SANITIZER_PATH)
    if session.cpu or sanitizer is None:
        why = "a rehearsal has no card" if session.cpu else "it is not in PATH"
        session.print_line(f"compute-sanitizer is left out: {why}")
        return found
    for tool in TOOLS:
        names = os.environ.get("CONFIDE_SANITISED", SANITISED).split(",")
        options = ["--tool", tool, "--error-exitcode", "9"]
        found[f"compute-sanitizer {tool}"] = [sanitizer, *options, *unittest_command(names)]
    return found


def list_test_modules() -> list[str]:
    """Every file of tests in the package."""
    root = CHECKOUT / "python"
    paths = [path for path in root.glob("confide/**/tests/test_*.py") if path.stem not in LEFT_OUT]
    return [".".join(path.relative_to(root).with_suffix("").parts) for path in sorted(paths)]


def unittest_command(names: list[str]) -> list[str]:
    return [sys.executable, "-m", "unittest", *names]


def log_path(session: StageSession, name: str) -> Path:
    return Path(session.facts["out"]) / "log" / f"check-{name.replace(' ', '-')}.log"


def start_check(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    environment = os.environ | {"PYTHONPATH": str(CHECKOUT / "python"), "OMP_NUM_THREADS": "1"}
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "wb") as file:
        return subprocess.Popen(
            command, cwd=CHECKOUT, env=environment, stdout=file, stderr=subprocess.STDOUT
        )


def describe_outcome(status: int, log: Path) -> str:
    """The outcome of a check, with its summary."""
    told = SUMMARY.findall(log.read_text(encoding="utf-8", errors="replace"))
    words = "; ".join(told[-3:])[:200] or "no summary"
    return f"passed: {words}" if status == 0 else f"failed with status {status}: {words}"
