#!/usr/bin/env python3
"""Builds, checks and times all of confide's GPU side in one run, and writes one record. See docs/gpu.md.

    python3 bench/gpu/run.py --out DIR [--confide PATH] [--price DOLLARS_PER_HOUR] [--only STAGE,…]
    python3 bench/gpu/run.py --list            the stages and their budgets
    python3 bench/gpu/run.py --cpu --out DIR   a rehearsal on the CPU with tiny shapes; no record
    python3 bench/gpu/run.py --table DIR       the speed table of a record
    python3 bench/gpu/run.py --build-cubins    compiles the kernels for other machines' cards, without a GPU

Without a GPU and without --cpu it says so, writes nothing and ends with status 3.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib
import json
import os
import select
import signal
import sys
import tarfile
import time
import tomllib
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent.parent / "python")]

import checks
import machine
from blocks import CardLost, StageSession, one_line
from journal import REHEARSAL, Journal, make_head, read_suite

NO_GPU = 3
ARCHIVE = "gpu-record.tar.gz"
# After its budget a stage may end its block; then it is killed.
GRACE_S = 5.0
# Of the whole run on a card, from the first line of this file: stages have ended by then, whatever their budgets say.
# The rest of eight minutes is for the record.
LIMIT_S, RECORD_S = 455.0, 15.0
# With less than that left a stage is not begun, nor begun again.
LEAST_S = 4.0
# A card that is lost with one arm comes back with a new process: the stage goes on there without that arm.
ATTEMPTS_MAX = 4
STARTED = time.monotonic()


def main() -> int:
    args = parse_arguments()
    stages = choose_stages(args)
    if args.arm:
        return refuse_arm(args.arm)
    if args.list:
        return list_stages(stages)
    if args.build_cubins:
        status: int = importlib.import_module("variants").build_cubins()
        return status
    if args.table is not None:
        return importlib.import_module("table").main(args.table)
    if not args.cpu and (reason := find_gpu_fault()):
        hint = "nothing is measured and nothing written (--cpu rehearses on the CPU)"
        print(f"no GPU: {reason}; {hint}", file=sys.stderr)
        return NO_GPU
    if args.out is None:
        print("--out DIR is missing: a folder for the record", file=sys.stderr)
        return 2
    native_fault = find_native_fault()
    if native_fault and all(stage.get("needs_native") for stage in stages):
        print(f"{native_fault}; nothing is measured and nothing written", file=sys.stderr)
        return 2
    return run(args, stages, native_fault)


HELP = {
    "out": "folder for the record; one with a record is refused",
    "list": "print the stages",
    "only": "only these stages: names separated by commas",
    "cpu": "rehearse on the CPU: every figure is labelled, and no record is written",
    "confide": "the confide binary, which runs the host on the CPU and writes record.json.gz",
    "price": "dollars an hour of this machine; without it no price is shown",
    "table": "print the speed table of a record and exit",
    "build_cubins": "compile the kernels into bench/gpu/cubins, where a run on another machine finds them",
}


def parse_arguments() -> argparse.Namespace:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--out", type=Path, help=HELP["out"])
    parser.add_argument("--list", action="store_true", help=HELP["list"])
    parser.add_argument("--only", default="", help=HELP["only"])
    parser.add_argument("--cpu", action="store_true", help=HELP["cpu"])
    parser.add_argument("--confide", help=HELP["confide"])
    parser.add_argument("--price", type=float, help=HELP["price"])
    parser.add_argument("--seed", type=int, default=read_suite()["suite"]["seed"])
    parser.add_argument("--table", type=Path, nargs="?", const=Path(), help=HELP["table"])
    parser.add_argument("--build-cubins", action="store_true", help=HELP["build_cubins"])
    parser.add_argument("--arm", help=argparse.SUPPRESS)
    return parser.parse_args()


def read_plan() -> list[dict[str, Any]]:
    """The stages in order."""
    return tomllib.loads((HERE / "plan.toml").read_text(encoding="utf-8"))["stage"]


def choose_stages(args: argparse.Namespace) -> list[dict[str, Any]]:
    """The stages asked for."""
    stages, wanted = read_plan(), [name for name in args.only.split(",") if name]
    unknown = set(wanted) - {stage["name"] for stage in stages}
    if unknown:
        sys.exit(f"--only: no stage named {', '.join(sorted(unknown))}; --list shows them")
    return [stage for stage in stages if not wanted or stage["name"] in wanted]


def list_stages(stages: list[dict[str, Any]]) -> int:
    for stage in stages:
        print(f"{stage['name']:<10} {stage['budget_s']:>4} s  {stage['about']}")
    total = sum(stage["budget_s"] for stage in stages)
    print(
        f"{'all':<10} {total:>4} s, {GRACE_S:.0f} s for each cut; cut at {LIMIT_S:.0f} s whatever they are"
    )
    return 0


def refuse_arm(name: str) -> int:
    """Answers the instrument, which may start an arm of the suite by itself, why that is impossible."""
    reason = "its arms share one process and one card; run python3 bench/gpu/run.py --out DIR"
    hello = {"type": "hello", "protocol": 1, "arm": f"bench/gpu/run.py {name}", "version": "none"}
    print(json.dumps(hello | {"cannot": reason}))
    return 0


def find_gpu_fault() -> str | None:
    """The reason for which there is no GPU to measure, or None. It is read from the driver's files, because CUDA itself
    may not be touched before stages fork.
    """
    if not Path("/dev/nvidiactl").exists() and not Path("/dev/dxg").exists():
        return "no NVIDIA driver on this machine"
    try:
        import torch
    except ImportError:
        return "this Python has no torch"
    return None if torch.version.cuda else f"torch {torch.__version__} is built without CUDA"


def find_native_fault() -> str | None:
    """The reason for which adapters cannot be read here, or None: they need the package's native part."""
    try:
        importlib.import_module("confide._extension")
    except ImportError as error:
        return str(error)
    return None


def read_native_facts() -> dict[str, str]:
    """The file of the native part that adapters use, by name and SHA-256. The folder that tells a release build from a
    debug build belongs to its name, and no other does.
    """
    native = importlib.import_module("confide._extension").native
    path = Path(native.__file__)
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    is_build = path.parent.name in ("release", "debug")
    name = f"{path.parent.name}/{path.name}" if is_build else path.name
    return {"file": name, "sha256": digest, "version": native.__version__}


def run(args: argparse.Namespace, stages: list[dict[str, Any]], native_fault: str | None) -> int:
    """Runs all stages, one process each, into one journal. Those that need the native part are not run where it has a
    fault, and the others leave out their arms with adapters.
    """
    if args.cpu:
        print(REHEARSAL)
    if native_fault:
        print(f"adapters are left out: {native_fault}")
    # By NVML, not by CUDA: a process that initialised CUDA cannot fork stages that use it.
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    # Imported once: stages are forks, and importing torch takes longer than many of them.
    for module in ("torch", "numpy"):
        try:
            importlib.import_module(module)
        except ImportError:
            print(f"no {module} in this Python")
    set_cubins_variable()
    record = make_head(
        ["bench/gpu/run.py", *redacted_arguments()],
        machine.read_machine_facts(args.confide),
        args.seed,
    )
    journal = Journal(args.out, record, rehearsal=args.cpu)
    confide = str(Path(args.confide).resolve()) if args.confide else None
    facts: dict[str, Any] = {"confide": confide, "price": args.price, "out": str(args.out)}
    failed: list[str] = []
    signal.signal(signal.SIGTERM, raise_keyboard_interrupt)
    try:
        if not native_fault:
            line = {"kind": "service", "name": "native", "command": ["make", "native"]}
            journal.write_line(line | {"simulated": False, "ready": read_native_facts()})
        for stage in stages:
            if native_fault and stage.get("needs_native"):
                ended: str | None = record_not_run(journal, stage, native_fault)
            else:
                ended = run_stage(stage, journal, facts, args)
            if ended:
                failed.append(f"{stage['name']}: {ended}")
    except KeyboardInterrupt as why:
        failed.append(str(why) or "interrupted by Ctrl-C")
    finish_journal(journal, facts, failed)
    table = importlib.import_module("table")
    table.write_documents(
        args.out, journal.path, args.confide, rehearsal=args.cpu, seconds=RECORD_S
    )
    if not args.cpu:
        print(f"everything that should come back: {archive_folder(args.out)}")
    return 1 if failed else 0


def finish_journal(journal: Journal, facts: dict[str, Any], failed: list[str]) -> None:
    """Writes the journal's last lines."""
    # Once more, since checks ran after most of them; a reader takes an arm's last line.
    for line in facts.get("arms", {}).values():
        journal.write_line(add_check_note(line, facts))
    journal.finish("; ".join(failed) or None)
    ended = "; ".join(failed) if failed else "every stage ended by itself"
    print(f"{journal.elapsed_s():.0f} s in all; {ended}")


def archive_folder(folder: Path) -> Path:
    """Puts the folder's files, and the tilings that were measured on this card, into one archive next to them."""
    archive = folder / ARCHIVE
    with tarfile.open(archive, "w:gz") as packed:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path != archive:
                packed.add(path, path.relative_to(folder))
        for path in sorted(
            importlib.import_module("confide.cuda.cache")
            .kernel_cache_folder()
            .glob("tilings-*.json")
        ):
            packed.add(path, f"tilings/{path.name}")
    return archive


def set_cubins_variable() -> None:
    """Names the folder of cubins that were built on another machine, if it came along and is this user's."""
    folder = HERE / "cubins"
    if not folder.is_dir() or "CONFIDE_CUBINS" in os.environ:
        return
    # A copy may have come with wider rights.
    with contextlib.suppress(PermissionError):
        folder.chmod(0o700)
        os.environ["CONFIDE_CUBINS"] = str(folder)


def add_check_note(arm: dict[str, Any], facts: dict[str, Any]) -> dict[str, Any]:
    """The line of an arm with what the checks say of it added to its note."""
    notes = [arm["note"], checks.describe_outcomes(arm["name"], facts.get("checks", {}))]
    return arm | {"note": "; ".join(filter(None, notes)) or None}


def raise_keyboard_interrupt(number: int, _frame: Any) -> None:
    raise KeyboardInterrupt(f"ended by signal {number}")


def redacted_arguments() -> list[str]:
    """The command line, with only the last part of each path: folders of this machine do not belong in a record."""
    return [Path(word).name if word.startswith("/") else word for word in sys.argv[1:]]


def run_stage(
    stage: dict[str, Any], journal: Journal, facts: dict[str, Any], args: argparse.Namespace
) -> str | None:
    """Runs one stage in a fork of its own; gives the reason where it did not end by itself. Its lines are kept."""
    budget = stage["budget_s"] * (4.0 if args.cpu else 1.0)
    until = time.monotonic() + budget
    if not args.cpu:
        until = min(until, STARTED + LIMIT_S - GRACE_S)
    facts |= {"left_out": {}, "done": {}}
    if until - time.monotonic() < LEAST_S:
        return record_not_run(journal, stage, f"no time left of the run's {LIMIT_S:.0f} s")
    print(
        f"[{journal.elapsed_s():6.1f} s] {stage['name']}, {until - time.monotonic():.0f} s",
        flush=True,
    )
    for _ in range(ATTEMPTS_MAX):
        ended = run_stage_process(stage, journal, facts, args, until)
        if ended.cut:
            return record_not_run(journal, stage, f"cut at its budget of {budget:.0f} s")
        if not ended.lost_with or until - time.monotonic() < LEAST_S:
            break
        facts["left_out"][ended.lost_with] = ended.reason
    if ended.status != 0:
        return record_not_run(
            journal, stage, f"failed: {ended.reason or describe_exit_status(ended.status)}"
        )
    return None


@dataclass
class StageEnd:
    """The end of a stage's process; `lost_with` is the arm (BENCH/ARM) with which the card was lost."""

    cut: bool = False
    status: int = 0
    reason: str = ""
    lost_with: str = ""


def run_stage_process(
    stage: dict[str, Any],
    journal: Journal,
    facts: dict[str, Any],
    args: argparse.Namespace,
    until: float,
) -> StageEnd:
    """Runs a process for the stage to its end."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os._exit(run_stage_in_child(stage, writer, facts, args, until, journal))
    os.close(writer)
    ended = StageEnd()
    try:
        ended.cut = collect_lines(reader, until + GRACE_S, journal, facts, ended)
        if not ended.cut:
            # Its group keeps its number until it is waited for.
            os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    finally:
        # The whole session, however it ended: a stage starts hosts of its own, which would stay on the card.
        for kill in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                kill(child, signal.SIGKILL)
        _, ended.status = os.waitpid(child, 0)
        os.close(reader)
    return ended


def record_not_run(journal: Journal, stage: dict[str, Any], reason: str) -> str:
    journal.write_line({"kind": "not_run", "bench": stage["name"], "reason": reason})
    print(f"{stage['name']}: {reason}", flush=True)
    return reason


def describe_exit_status(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    return f"signal {-code}" if code < 0 else f"status {code}"


def collect_lines(
    reader: int, deadline: float, journal: Journal, facts: dict[str, Any], ended: StageEnd
) -> bool:
    """Writes the stage's lines into the journal, block by block; gives whether the deadline came first. Lines of a
    block that did not end are dropped.
    """
    rest, of_block = b"", []
    while (left := deadline - time.monotonic()) > 0:
        ready, _, _ = select.select([reader], [], [], left)
        if not ready:
            continue
        piece = os.read(reader, 1 << 16)
        if not piece:
            return False
        *lines, rest = (rest + piece).split(b"\n")
        for line in map(json.loads, lines):
            if line["kind"] == "fact":
                facts[line["name"]] = line["value"]
            elif line["kind"] == "say":
                print(f"    {line['text']}", flush=True)
            elif line["kind"] == "failed":
                ended.reason, ended.lost_with = line["reason"], line["lost_with"]
            elif line["kind"] in ("sample", "slice"):
                of_block.append(line)
            else:
                if line["kind"] == "arm":
                    place = (line["bench"], line["name"], line["twin"])
                    facts.setdefault("arms", {})[place] = line
                    line = add_check_note(line, facts)
                for kept in [*of_block, line] if line["kind"] == "block" else [line]:
                    journal.write_line(kept)
                if line["kind"] == "block":
                    case, of_block = f"{line['bench']}/{line['case']}", []
                    facts["done"][case] = facts["done"].get(case, 0) + 1
    return True


def run_stage_in_child(
    stage: dict[str, Any],
    writer: int,
    facts: dict[str, Any],
    args: argparse.Namespace,
    deadline: float,
    journal: Journal,
) -> int:
    """Runs the stage's module; lines go through the pipe."""
    with os.fdopen(writer, "w", encoding="utf-8") as pipe:

        def emit(line: dict[str, Any]) -> None:
            pipe.write(json.dumps(line, allow_nan=False, separators=(",", ":")) + "\n")
            pipe.flush()

        started = time.monotonic() - journal.elapsed_s()
        session = StageSession(emit, facts, args.seed, deadline, started, args.cpu)
        try:
            importlib.import_module(f"stages.{stage['name']}").run(session)
        except BaseException as error:
            traceback.print_exc()
            sys.stderr.flush()
            lost_with = error.place if isinstance(error, CardLost) else ""
            emit({"kind": "failed", "reason": one_line(error), "lost_with": lost_with})
            return 1
    sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
