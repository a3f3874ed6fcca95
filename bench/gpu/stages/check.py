"""The kernels' and the worker's test bodies on the card, and compute-sanitizer over some of them.

They run side by side, as processes of their own. A failure does not end the run: it stands as a mark on every later
row, because a fast wrong answer is void, and who reads the record must see it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from blocks import Session
from journal import CHECKOUT

# Small bodies: under compute-sanitizer a launch takes a hundred times as long.
SANITISED = "confide.cuda.tests.test_runtime"
TOOLS = ("memcheck", "racecheck")


def run(session: Session) -> None:
    commands = {"tests": unit(session)}
    sanitizer = shutil.which("compute-sanitizer") or existing("/usr/local/cuda/bin/compute-sanitizer")
    if session.cpu:
        session.say("compute-sanitizer is left out: a rehearsal has no card")
    elif sanitizer is None:
        session.say("compute-sanitizer is left out: it is not in PATH")
    else:
        for tool in TOOLS:
            commands[tool] = [sanitizer, "--tool", tool, "--error-exitcode", "9", *unittest(sanitised())]
    running = {name: start(command, log_path(session, name)) for name, command in commands.items()}
    failed = []
    for name, process in running.items():
        outcome = finish(process, session.left_s() - 1.0, log_path(session, name))
        session.tell(f"check-{name}", commands[name], outcome)
        session.say(f"{name}: {outcome['outcome']}; {outcome['last']}")
        if outcome["outcome"] not in ("passed", "no time left"):
            failed.append(f"{name} {outcome['outcome']}")
    if failed:
        session.fact("checks_failed", "; ".join(failed))


def unit(session: Session) -> list[str]:
    """All test bodies; in a rehearsal the runtime's only, since the others run beside it in the same `make`."""
    if session.cpu:
        return unittest(["confide.cuda.tests.test_runtime"])
    return [sys.executable, "-m", "unittest", "discover", "-s", "python", "-t", "python"]


def unittest(names: list[str]) -> list[str]:
    return [sys.executable, "-m", "unittest", *names]


def sanitised() -> list[str]:
    return os.environ.get("CONFIDE_SANITISED", SANITISED).split(",")


def existing(path: str) -> str | None:
    return path if Path(path).exists() else None


def log_path(session: Session, name: str) -> Path:
    return Path(session.facts["out"]) / f"check-{name}.log"


def start(command: list[str], log: Path) -> subprocess.Popen:
    environment = os.environ | {"PYTHONPATH": str(CHECKOUT / "python"), "OMP_NUM_THREADS": "1"}
    with open(log, "wb") as file:
        return subprocess.Popen(command, cwd=CHECKOUT, env=environment, stdout=file, stderr=subprocess.STDOUT)


def finish(process: subprocess.Popen, left_s: float, log: Path) -> dict[str, str]:
    """How it ended: passed, failed, or cut by the stage's budget (said as such, and no yes)."""
    began = time.monotonic()
    try:
        status = process.wait(timeout=max(left_s, 0.1))
        outcome = "passed" if status == 0 else f"failed with status {status}"
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        outcome = "no time left"
    text = log.read_text(encoding="utf-8", errors="replace")
    told = re.findall(
        r"^(?:Ran \d+ tests.*|OK.*|FAILED.*|========= ERROR SUMMARY.*|========= RACECHECK SUMMARY.*)$", text, re.M
    )
    return {
        "outcome": outcome,
        "last": "; ".join(told)[:200] or "no summary",
        "waited_s": f"{time.monotonic() - began:.0f}",
    }
