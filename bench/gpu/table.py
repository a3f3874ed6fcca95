"""The speed table of a record: case, must, aim, measured. Reads the journal or the document; estimates are the
instrument's, where it has written them, else plain means without an interval.
"""

from __future__ import annotations

import gzip
import json
import math
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from journal import JOURNAL_FILE, REHEARSAL, REHEARSAL_FILE

NOT_MEASURED = "*not measured*"

MODEL = "model=qwen2.5-1.5b"
ONE = f"batch=1 {MODEL}"


@dataclass(frozen=True)
class Case:
    """A line of the table: which arm of which bench, over which reference, and what it has to reach."""

    title: str
    bench: str
    case: str
    arm: str
    must: str
    aim: str
    over: str | None = None


# The shares hold for an H100 and an H200; the rates in them are for an H200 (docs/gpu.md, "Floors").
CASES = (
    Case(
        "base decode",
        "decode",
        ONE,
        "base",
        "700 tokens/s (50 % of the floor)",
        "1,110 (80 %)",
        "floor",
    ),
    Case(
        "base decode, over transformers' generate",
        "generate",
        ONE,
        "base",
        "3x",
        "",
        "transformers",
    ),
    Case(
        "`final-hidden`, masked, one GPU",
        "decode",
        ONE,
        "final-hidden",
        "97 % of base",
        "99 %",
        "base",
    ),
    Case(
        "true LoRA q,k,v,o x 28, one process, one CUDA graph (`guarantee: none`)",
        "decode",
        ONE,
        "one-graph",
        "75 % of base, 500 tokens/s",
        "90 %",
        "base",
    ),
    Case(
        "true LoRA, two processes on one GPU (CUDA IPC)",
        "placement",
        ONE,
        "ipc",
        "150 tokens/s",
        "350",
        "base",
    ),
    Case(
        "true LoRA, two processes over loopback",
        "placement",
        ONE,
        "loopback",
        "120 tokens/s",
        "220",
        "base",
    ),
    Case(
        "true LoRA, adapter host on the CPU, loopback",
        "host-on-cpu",
        ONE,
        "cpu-host",
        "",
        "",
        "base",
    ),
    Case(
        "the seed's layout (ckks-slots, N = 16384), one GPU",
        "decode",
        ONE,
        "ckks-slots",
        "90 % of base",
        "97 %",
        "base",
    ),
    Case(
        "batch 32 base decode, aggregate",
        "batch",
        f"batch=32 {MODEL}",
        "base",
        "12,000 tokens/s",
        "20,000",
        "floor",
    ),
    Case("plain LoRA", "decode", ONE, "plain-lora", "", "", "base"),
    *(
        Case(
            f"{model} shape, batch {batch}",
            "batch",
            f"batch={batch} model={name}",
            "base",
            "",
            "",
            "floor",
        )
        for model, name, batches in (
            ("Llama-3.1-8B", "llama-3.1-8b", (1, 8, 32)),
            ("Phi-3-medium 14B", "phi-3-medium-14b", (1,)),
            ("Llama-3.1-70B", "llama-3.1-70b", (1,)),
        )
        for batch in batches
    ),
)
STEP_ARMS = ("ckks-step", "masked-step", "cukks", "desilofhe", "tenseal", "concrete-ml-extensions")


def main(path: Path) -> int:
    """Prints the table of the record at `path`; of none, with *not measured* in every cell."""
    try:
        slices = read(path)
    except (OSError, ValueError) as error:
        print(f"no record at {path}: {error}", file=sys.stderr)
        slices = []
    print(text(slices))
    return 0


def read(path: Path) -> list[dict[str, Any]]:
    """Slices with their samples, from a folder, a document or a journal, compressed or not. A rehearsal is refused."""
    if path.is_dir():
        names = ("record.json.gz", "record.json", JOURNAL_FILE)
        path = next((path / name for name in names if (path / name).exists()), path / names[0])
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        content = file.read()
    if path.name.startswith("record"):
        return refused(json.loads(content))["slices"]
    return of_journal([json.loads(line) for line in content.splitlines()])


def refused(record: dict[str, Any]) -> dict[str, Any]:
    if "rehearsal" in record:
        raise ValueError(REHEARSAL)
    return record


def of_journal(lines: list[dict[str, Any]], rehearsal: bool = False) -> list[dict[str, Any]]:
    """Slices of whole blocks, each with its samples in columns, as the document has them."""
    if not rehearsal:
        refused(lines[0])
    slices: dict[tuple[Any, ...], dict[str, Any]] = {}
    samples: dict[tuple[Any, ...], list[dict[str, float]]] = {}

    def place(line):
        return tuple(line.get(name) for name in ("bench", "case", "block", "arm", "twin"))

    for line in lines:
        if line["kind"] == "slice":
            slices[place(line)] = line
        elif line["kind"] == "sample":
            samples.setdefault(place(line), []).append(line["metrics"])
    for key, entry in slices.items():
        names = {name for metrics in samples.get(key, []) for name in metrics}
        columns = {name: [metrics.get(name) for metrics in samples[key]] for name in sorted(names)}
        entry["columns"] = {"metrics": columns}
    return list(slices.values())


def of(
    slices: list[dict[str, Any]], bench: str, case: str, arm: str, metric: str
) -> dict[int, float]:
    """The figure of every block that counts, by block; the twin is left out."""
    found = {}
    for entry in slices:
        if (entry["bench"], entry["case"], entry["arm"]) != (bench, case, arm):
            continue
        if entry.get("twin") or entry.get("warmup") or entry.get("void"):
            continue
        values = [
            value
            for value in entry.get("columns", {}).get("metrics", {}).get(metric, [])
            if value is not None
        ]
        if values:
            found[entry["block"]] = sum(values) / len(values)
    return found


def share(slices: list[dict[str, Any]], line: Case) -> float | None:
    """Geometric mean over blocks of the ratio to the other arm, or to the floor measured beside the slice."""
    mine = of(slices, line.bench, line.case, line.arm, "tokens_per_s")
    if line.over == "floor":
        other = {
            entry["block"]: entry["floor"]["value"]
            for entry in slices
            if entry.get("floor")
            and (entry["bench"], entry["case"], entry["arm"]) == (line.bench, line.case, line.arm)
        }
    else:
        other = of(slices, line.bench, line.case, line.over or "", "tokens_per_s")
    logs = [math.log(mine[block] / other[block]) for block in mine.keys() & other.keys()]
    return math.exp(sum(logs) / len(logs)) if logs else None


def measured(slices: list[dict[str, Any]], line: Case) -> str:
    """`812 tokens/s, 58.3 % of the floor; 840 without the offline work; 12 blocks`, or *not measured*."""
    mine = of(slices, line.bench, line.case, line.arm, "tokens_per_s")
    if not mine:
        return NOT_MEASURED

    def mean(values):
        return math.exp(sum(map(math.log, values)) / len(values))

    words = [f"{mean(mine.values()):,.0f} tokens/s"]
    if (ratio := share(slices, line)) is not None:
        words.append(
            {
                "floor": f"{100 * ratio:.1f} % of the floor",
                "base": f"{100 * ratio:.1f} % of base",
            }.get(line.over or "", f"{ratio:.2f}x {line.over}")
        )
    online = of(slices, line.bench, line.case, line.arm, "online_tokens_per_s")
    if online and line.arm not in ("base", "plain-lora"):
        words.append(f"{mean(online.values()):,.0f} without the offline work")
    return (
        ", ".join(words) + f"; {len(mine)} blocks" + marks(slices, line.bench, line.case, line.arm)
    )


def marks(slices: list[dict[str, Any]], bench: str, case: str, arm: str) -> str:
    """What a reader has to know of these figures: fewer layers, 4-bit weights, kernels that failed their checks."""
    found = {
        mark
        for entry in slices
        if (entry["bench"], entry["case"], entry["arm"]) == (bench, case, arm)
        for mark in entry.get("marks", [])
    }
    return "".join(f"; {mark}" for mark in sorted(found))


def step(slices: list[dict[str, Any]], arm: str) -> str:
    """`0.123 ms; 6 blocks` of report 003's step alone."""
    mine = of(slices, "step", "", arm, "step_ms")
    if not mine:
        return NOT_MEASURED
    return f"{sum(mine.values()) / len(mine):.3f} ms; {len(mine)} blocks" + marks(
        slices, "step", "", arm
    )


def text(slices: list[dict[str, Any]]) -> str:
    """The table in Markdown, then the predictions."""
    rows = ["| case | must | aim | measured |", "| --- | --- | --- | --- |"]
    for line in CASES:
        rows.append(
            f"| {line.title} | {line.must or '–'} | {line.aim or '–'} | {measured(slices, line)} |"
        )
    rows.append(
        f"| accuracy | integers bit-exact; logits at most 1.1 times as far from float64 as plain LoRA | – "
        f"| {accuracy(slices)} |"
    )
    rows += [
        f"| one step, 1536 to rank 32: {arm} | – | – | {step(slices, arm)} |" for arm in STEP_ARMS
    ]
    from predict import rows as predicted

    return "\n".join([*rows, "", *predicted(slices)])


def accuracy(slices: list[dict[str, Any]]) -> str:
    plain, masked = (
        of(slices, "accuracy", MODEL, arm, "logits_error_ratio")
        for arm in ("plain-lora", "one-graph")
    )
    wrong = of(slices, "accuracy", MODEL, "one-graph", "integers_wrong_count")
    ratios = [
        masked[block] / plain[block] for block in plain.keys() & masked.keys() if plain[block] > 0
    ]
    if not ratios or not wrong:
        return NOT_MEASURED
    return f"{sum(wrong.values()):.0f} integers wrong; {max(ratios):.3f} times plain LoRA's distance at most"


def finish(
    folder: Path, journal: Path, confide: str | None, rehearsal: bool, seconds: float = 120.0
) -> None:
    """Writes record.json.gz by the instrument where it is carried, and prints the table; a rehearsal's is labelled."""
    if rehearsal:
        lines = [
            json.loads(line)
            for line in (folder / REHEARSAL_FILE).read_text(encoding="utf-8").splitlines()
        ]
        labelled = text(of_journal(lines, rehearsal=True))
        print("\n".join(f"{REHEARSAL} {line}" if line else line for line in labelled.splitlines()))
        return
    if confide:
        command = [
            confide,
            "bench",
            "export",
            str(folder),
            "--format",
            "json",
            "--out",
            str(folder / "record.json"),
        ]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=seconds, check=False
            )
        except (OSError, subprocess.SubprocessError) as error:
            done = subprocess.CompletedProcess(command, 1, "", str(error))
        if done.returncode == 0:
            with (
                open(folder / "record.json", "rb") as plain,
                gzip.open(folder / "record.json.gz", "wb") as packed,
            ):
                shutil.copyfileobj(plain, packed)
            (folder / "record.json").unlink()
        else:
            print(
                f"confide bench export: {done.stderr.strip()}; the journal {journal.name} holds everything"
            )
    else:
        print(f"{journal} is the record; `confide bench export` makes record.json of it")
    print(text(read(folder)))
