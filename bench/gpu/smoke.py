#!/usr/bin/env python3
"""The first nine minutes on a card: what runs at all, step by step, and how fast. See docs/gpu.md.

    python3 bench/gpu/smoke.py --out DIR [--only STEP,…]
    python3 bench/gpu/smoke.py --list          the steps and their limits
    python3 bench/gpu/smoke.py --cpu --out DIR a rehearsal on the CPU with tiny shapes

Each step is a process of its own with a limit, and its line is in DIR/smoke.jsonl before the next begins, however it
ended. Nothing here is a record: single runs, without blocks or a twin. `run.py` makes the record.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent.parent / "python")]

import run
from journal import REHEARSAL, read_commit

LINES_FILE, REHEARSAL_FILE = "smoke.jsonl", "smoke-rehearsal.jsonl"
# The whole of it; a rehearsal has four times as long, as in run.py.
LIMIT_S, CPU_FACTOR = 540, 4
TAIL_CHARACTERS = 600


class Step(NamedTuple):
    """A step: the function of this name in smoke_steps.py, and the seconds after which it is killed."""

    name: str
    limit_s: int
    about: str


STEPS = (
    Step("environment", 30, "versions, the card, copy bandwidth and matrix rates"),
    Step("base_by_torch", 45, "base decode by torch, batch 1 and 32"),
    Step("transformers", 40, "transformers' generate, eager"),
    Step("kernels", 45, "each kernel of a decode step against torch at true shape, with its time"),
    Step("decode_step", 60, "200 tokens: kernels against torch; bit-equal: graph against eager, with against without "
                            "programmatic launch"),
    Step("base_by_kernels", 40, "base decode by our kernels, batch 1 and 8"),
    Step("device_tests", 70, "the test bodies of the kernels, on the card only"),
    Step("adapters", 70, "final-hidden, one-graph and ckks-slots, with times per kernel"),
    Step("ipc", 40, "round trips between two processes, taken apart"),
    Step("tilings", 45, "tilings of the decode step's products, measured and kept"),
    Step("sanitizer", 55, "compute-sanitizer on decode, online, attention and ring"),
)  # fmt: skip


def main() -> int:
    args = parse_arguments()
    steps = [step for step in STEPS if not args.only or step.name in args.only.split(",")]
    if args.step:
        return run_step(args.step, args.cpu)
    if args.list:
        for step in steps:
            print(f"{step.name:<16} {step.limit_s:>4} s  {step.about}")
        print(f"{'all':<16} {sum(step.limit_s for step in steps):>4} s")
        return 0
    if not args.cpu and (reason := run.find_gpu_fault()):
        print(f"no GPU: {reason}; nothing is tried (--cpu rehearses on the CPU)", file=sys.stderr)
        return run.NO_GPU
    if args.out is None:
        print("--out DIR is missing: a folder for what comes back", file=sys.stderr)
        return 2
    return run_all_steps(steps, args.out, args.cpu)


def parse_arguments() -> argparse.Namespace:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--out", type=Path, help="folder for what comes back")
    parser.add_argument("--list", action="store_true", help="print the steps")
    parser.add_argument("--only", default="", help="only these steps: names separated by commas")
    parser.add_argument("--cpu", action="store_true", help="rehearse on the CPU")
    parser.add_argument("--step", choices=[step.name for step in STEPS], help=argparse.SUPPRESS)
    return parser.parse_args()


def run_all_steps(steps: list[Step], out: Path, cpu: bool) -> int:
    """Runs the steps one after the other; 1 if one of them failed."""
    out.mkdir(parents=True, exist_ok=True)
    run.set_cubins_variable()
    began, failed = time.monotonic(), []
    native_fault = run.find_native_fault()
    if native_fault:
        print(f"adapters cannot be tried: {native_fault}")
    native = {"fault": native_fault} if native_fault else run.read_native_facts()
    about = {"commit": read_commit(), "native": native}
    about |= {"rehearsal": REHEARSAL} if cpu else {}
    with open(out / (REHEARSAL_FILE if cpu else LINES_FILE), "x", encoding="utf-8") as lines:
        for step in steps:
            left = LIMIT_S * (CPU_FACTOR if cpu else 1) - (time.monotonic() - began)
            line = try_step(step, min(left, step.limit_s * (CPU_FACTOR if cpu else 1)), out, cpu)
            line |= about
            lines.write(json.dumps(line) + "\n")
            lines.flush()
            os.fsync(lines.fileno())
            print(describe_line(line), flush=True)
            failed += [step.name] if line["ended"] != "done" else []
    if not cpu:
        print(f"everything that should come back: {run.archive_folder(out)}")
    print(
        f"{time.monotonic() - began:.0f} s; "
        + (f"failed: {', '.join(failed)}" if failed else "every step ended well")
    )
    return 1 if failed else 0


def try_step(step: Step, seconds: float, out: Path, cpu: bool) -> dict[str, Any]:
    """Runs a step in a process of its own: its line, whatever becomes of it."""
    line: dict[str, Any] = {"step": step.name, "ended": "no time left", "seconds": 0.0, "found": {}}
    if seconds <= 1:
        return line
    log = out / "log" / f"smoke-{step.name}.log"
    log.parent.mkdir(exist_ok=True)
    command = [sys.executable, __file__, "--step", step.name, *(["--cpu"] if cpu else [])]
    began = time.monotonic()
    with open(log, "wb") as errors:
        # A session of its own: what it started ends with it.
        child = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, start_new_session=True
        )
        try:
            told, _ = child.communicate(timeout=seconds)
            line["ended"] = "done" if child.returncode == 0 else f"status {child.returncode}"
        except subprocess.TimeoutExpired:
            told, line["ended"] = b"", f"killed at its limit of {seconds:.0f} s"
        finally:
            kill_session(child)
    line["seconds"] = round(time.monotonic() - began, 2)
    rows = told.decode(errors="replace").splitlines()
    try:
        line["found"] = json.loads(rows[-1]) if rows else {}
    except ValueError:
        line["ended"] = "gave no answer"
    if line["ended"] != "done":
        line["log"] = log.read_text(encoding="utf-8", errors="replace")[-TAIL_CHARACTERS:]
    return line


def kill_session(child: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def run_step(name: str, cpu: bool) -> int:
    """Runs a step in this process; its last line is what it found."""
    import smoke_steps

    found = getattr(smoke_steps, name)(cpu)
    print(json.dumps(found))
    return 0


def describe_line(line: dict[str, Any]) -> str:
    """A line for the terminal, labelled in a rehearsal."""
    label = f"{line['rehearsal']}: " if "rehearsal" in line else ""
    found = ", ".join(f"{name} {value}" for name, value in line["found"].items())
    return f"{label}{line['step']} ({line['seconds']:.1f} s): {line['ended']}; {found}"[:1000]


if __name__ == "__main__":
    sys.exit(main())
