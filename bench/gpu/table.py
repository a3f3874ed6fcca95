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
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from journal import HERE, JOURNAL_FILE, REHEARSAL, REHEARSAL_FILE
from predict import TOLLS_HEAD, predict_tolls_ms

NOT_MEASURED = "*not measured*"

MODEL = "model=qwen2.5-1.5b"
Slice = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A line of the table: the arm of a bench, the reference of its share, and the rate that it has to reach."""

    title: str
    bench: str
    case: str
    arm: str
    must: str = "–"
    aim: str = "–"
    over: str = ""

    def includes(self, entry: Slice) -> bool:
        """Whether a slice is one of this case's arm."""
        return (entry["bench"], entry["case"], entry["arm"]) == (self.bench, self.case, self.arm)


CASES = tuple(
    Case(**row) for row in tomllib.loads((HERE / "table.toml").read_text(encoding="utf-8"))["case"]
)
STEP_ARMS = ("ckks-step", "masked-step", "cukks", "desilofhe", "tenseal", "concrete-ml-extensions")


def main(path: Path) -> int:
    """Prints the table of the record at `path`; without a record every cell says *not measured*."""
    try:
        slices = load_slices(path)
    except (OSError, ValueError) as error:
        print(f"no record at {path}: {error}", file=sys.stderr)
        slices = []
    print(render_table(slices))
    return 0


def load_slices(path: Path) -> list[Slice]:
    """Slices with their samples, from a folder, a document or a journal, compressed or not. A rehearsal is refused."""
    if path.is_dir():
        names = ("record.json.gz", "record.json", JOURNAL_FILE)
        path = next((path / name for name in names if (path / name).exists()), path / names[0])
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        content = file.read()
    if path.name.startswith("record"):
        record = refuse_rehearsal(json.loads(content))
        return add_notes(record["slices"], record["arms"])
    return slices_of_lines([json.loads(line) for line in content.splitlines()])


def refuse_rehearsal(record: dict[str, Any]) -> dict[str, Any]:
    """The record; `ValueError` where it is a rehearsal's."""
    if "rehearsal" in record:
        raise ValueError(REHEARSAL)
    return record


def slices_of_lines(lines: list[Slice], rehearsal: bool = False) -> list[Slice]:
    """Slices of whole blocks, each with its samples in columns, as the document has them."""
    if not rehearsal:
        refuse_rehearsal(lines[0])
    slices: dict[tuple[Any, ...], dict[str, Any]] = {}
    samples: dict[tuple[Any, ...], list[dict[str, float]]] = {}

    for line in lines:
        place = tuple(line.get(name) for name in ("bench", "case", "block", "arm", "twin"))
        if line["kind"] == "slice":
            slices[place] = line
        elif line["kind"] == "sample":
            samples.setdefault(place, []).append(line["metrics"])
    for key, entry in slices.items():
        names = {name for metrics in samples.get(key, []) for name in metrics}
        columns = {name: [metrics.get(name) for metrics in samples[key]] for name in sorted(names)}
        entry["columns"] = {"metrics": columns}
    return add_notes(list(slices.values()), [line for line in lines if line["kind"] == "arm"])


def add_notes(slices: list[Slice], arms: list[dict[str, Any]]) -> list[Slice]:
    """The slices, each with its arm's note among its marks; of several lines of an arm the last counts."""
    notes = {(arm["bench"], arm["name"]): arm.get("note") for arm in arms}
    for entry in slices:
        if note := notes.get((entry["bench"], entry["arm"])):
            entry["marks"] = [*entry.get("marks", []), note]
    return slices


def figures_by_block(slices: list[Slice], case: Case, metric: str) -> dict[int, float]:
    """The figure of every block that counts, by block; the twin is left out."""
    found = {}
    for entry in filter(case.includes, slices):
        if entry.get("twin") or entry.get("warmup") or entry.get("void"):
            continue
        column = entry.get("columns", {}).get("metrics", {}).get(metric, [])
        values = [value for value in column if value is not None]
        if values:
            found[entry["block"]] = sum(values) / len(values)
    return found


def geometric_mean(values: Iterable[float]) -> float:
    """Exp of the mean logarithm; of at least one value above 0."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs))


def ratio_to_reference(slices: list[Slice], case: Case) -> float | None:
    """Geometric mean over blocks of the ratio to the other arm, or to the floor measured next to the slice."""
    own = figures_by_block(slices, case, "tokens_per_s")
    if case.over == "floor":
        floors = [entry for entry in filter(case.includes, slices) if entry.get("floor")]
        other = {entry["block"]: entry["floor"]["value"] for entry in floors}
    else:
        other = figures_by_block(slices, replace(case, arm=case.over), "tokens_per_s")
    ratios = [own[block] / other[block] for block in own.keys() & other.keys()]
    return geometric_mean(ratios) if ratios else None


def render_rate(slices: list[Slice], case: Case) -> str:
    """`812 tokens/s, 58.3 % of the floor; 840 without the offline work; 12 blocks`, or *not measured*."""
    own = figures_by_block(slices, case, "tokens_per_s")
    if not own:
        return NOT_MEASURED
    words = [f"{geometric_mean(own.values()):,.0f} tokens/s"]
    if (ratio := ratio_to_reference(slices, case)) is not None:
        names = {"floor": "% of the floor", "base": "% of base"}
        share = f"{100 * ratio:.1f} {names[case.over]}" if case.over in names else ""
        words.append(share or f"{ratio:.2f}x {case.over}")
    online = figures_by_block(slices, case, "online_tokens_per_s")
    if online and case.arm not in ("base", "plain-lora"):
        words.append(f"{geometric_mean(online.values()):,.0f} without the offline work")
    return ", ".join(words) + f"; {count_blocks(own)}" + render_marks(slices, case)


def count_blocks(figures: dict[int, float]) -> str:
    """`1 block`, `12 blocks`."""
    return f"{len(figures)} block{'s' if len(figures) != 1 else ''}"


def render_marks(slices: list[Slice], case: Case) -> str:
    """The remarks that a reader needs: fewer layers, 4-bit weights, kernels that failed their checks."""
    found = {mark for entry in filter(case.includes, slices) for mark in entry.get("marks", [])}
    return "".join(f"; {mark}" for mark in sorted(found))


def render_step(slices: list[Slice], arm: str) -> str:
    """`0.123 ms; 6 blocks` of report 003's step alone."""
    case = Case("", "step", "", arm)
    own = figures_by_block(slices, case, "step_ms")
    if not own:
        return NOT_MEASURED
    return f"{sum(own.values()) / len(own):.3f} ms; {count_blocks(own)}" + render_marks(
        slices, case
    )


def render_table(slices: list[Slice]) -> str:
    """The table in Markdown, then the predictions."""
    must = "integers bit-exact; logits at most 1.1 times as far from float64 as plain LoRA"
    rows = [(case.title, case.must, case.aim, render_rate(slices, case)) for case in CASES]
    rows.append(("accuracy", must, "–", render_accuracy(slices)))
    for arm in STEP_ARMS:
        rows.append((f"one step, 1536 to rank 32: {arm}", "–", "–", render_step(slices, arm)))
    head = ["| case | must | aim | measured |", "| --- | --- | --- | --- |"]
    return "\n".join(
        [*head, *(f"| {' | '.join(row)} |" for row in rows), "", *render_tolls(slices)]
    )


def render_tolls(slices: list[Slice]) -> list[str]:
    """A table with one line for each arm and phase that was counted; `*not measured*` where none was."""
    lines = [*TOLLS_HEAD]
    for arm in ("base", "plain-lora", "one-graph", "ipc", "loopback"):
        for phase in ("prefill", "token"):
            case = Case("", "crossings", f"{MODEL} phase={phase}", arm)
            counts = [
                figures_by_block(slices, case, name)
                for name in ("crossings_count", "to_card_bytes", "from_card_bytes")
            ]
            cells = [NOT_MEASURED] * 3
            if all(counts):
                count, up, down = (sum(found.values()) / len(found) for found in counts)
                added = f"*prediction*: {predict_tolls_ms(count, up + down):.2f} ms"
                cells = [f"{count:,.1f}", f"{up + down:,.0f}", added]
            lines.append(f"| {arm} | {phase} | {' | '.join(cells)} |")
    return lines


def render_accuracy(slices: list[Slice]) -> str:
    """Wrong integers, and the distance of logits over that of plain LoRA."""
    plain, masked = (Case("", "accuracy", MODEL, arm) for arm in ("plain-lora", "one-graph"))
    right = figures_by_block(slices, plain, "logits_error_ratio")
    own = figures_by_block(slices, masked, "logits_error_ratio")
    wrong = figures_by_block(slices, masked, "integers_wrong_count")
    ratios = [own[block] / right[block] for block in right.keys() & own.keys() if right[block] > 0]
    if not ratios or not wrong:
        return NOT_MEASURED
    return f"{sum(wrong.values()):.0f} integers wrong; {max(ratios):.3f} times plain LoRA's distance at most"


def write_documents(
    folder: Path, journal: Path, confide: str | None, rehearsal: bool, seconds: float = 120.0
) -> None:
    """Writes record.json.gz where the instrument's binary is given, and prints the table, labelled in a rehearsal."""
    if rehearsal:
        content = (folder / REHEARSAL_FILE).read_text(encoding="utf-8")
        lines = [json.loads(line) for line in content.splitlines()]
        labelled = render_table(slices_of_lines(lines, rehearsal=True))
        print("\n".join(f"{REHEARSAL} {line}" if line else line for line in labelled.splitlines()))
        return
    if not confide:
        print(f"{journal} is the record; `confide bench export` makes record.json of it")
    elif error := export_record(folder, confide, seconds):
        print(f"confide bench export: {error}; the journal {journal.name} holds everything")
    print(render_table(load_slices(folder)))


def export_record(folder: Path, confide: str, seconds: float) -> str | None:
    """Writes record.json.gz by `confide bench export`; gives the reason where it could not."""
    plain = folder / "record.json"
    command = [confide, "bench", "export", str(folder), "--format", "json", "--out", str(plain)]
    try:
        subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=True)
    except subprocess.CalledProcessError as error:
        return str(error.stderr).strip()
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    with open(plain, "rb") as content, gzip.open(f"{plain}.gz", "wb") as packed:
        shutil.copyfileobj(content, packed)
    plain.unlink()
    return None
