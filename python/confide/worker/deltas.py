"""What an adapter is to the worker: the points of a decoder where it may add to what projections give.

A model is a Python generator (`model.py`) that stops at each *point* that was asked for: a vector inside one layer, and
the outputs of the projections that read it. Whoever drives the generator adds the adapters' parts in place and goes on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Hashable, Protocol, Sequence, runtime_checkable

from torch import Tensor

# Names of the vectors that projections read, and of the projections; the index is the number on the wire
# (docs/blind-protocol.md, "terms"), the words are those of crates/lora/src/site.rs.
SOURCES = ("attention", "attention_output", "feed_forward", "feed_forward_inner", "final_hidden")
PROJECTIONS = ("q", "k", "v", "o", "gate", "up", "down", "final_hidden")
READS = {
    "attention": ("q", "k", "v"),
    "attention_output": ("o",),
    "feed_forward": ("gate", "up"),
    "feed_forward_inner": ("down",),
    "final_hidden": ("final_hidden",),
}
SOURCE_OF = {projection: source for source, projections in READS.items() for projection in projections}

Site = tuple[int, str]  # layer, projection; final_hidden stands in layer 0
Width = tuple[int, int]  # input, output


class AdapterError(Exception):
    """An adapter gives no delta. `kind` is a word for programs, the text one for people."""

    def __init__(self, message: str, kind: str = "adapter") -> None:
        super().__init__(message)
        self.kind = kind


@runtime_checkable
class Deltas(Protocol):
    """One adapter at work in one generation.

    `capturable` says whether `add` may be recorded in a CUDA graph together with the model: it launches on the current
    stream, reads and writes device memory only, allocates through torch and waits for nothing. Such deltas may name
    themselves by `graph_key` (hashable): a graph recorded with one serves another of the same key. Without it each
    generation records graphs of its own. `before_step(rows)` and `after_step()`, where they are there, are called on
    the host around each pass, outside any graph (masks refilled, status words read); `close()` at the end.
    `grouped`, where it is there, is a `Grouped` that several deltas share.
    """

    guarantee: str
    capturable: bool

    def add(self, layer: int, source: str, rows: Tensor, outputs: dict[str, Tensor]) -> None:
        """Adds, in place, to `outputs` ([T, width of each]) what the adapter makes of `rows` [T, width].

        Raises `AdapterError`; the outputs are then as they were.
        """

    def report(self) -> dict[str, Any]:
        """What it took until now: words of crates/lora's `Report`, and `guarantee`."""


@runtime_checkable
class Adapter(Protocol):
    """A loaded adapter. `sites` names every projection that it changes, with its widths."""

    name: str
    sites: dict[Site, Width]

    def open(self) -> Deltas:
        """Begins a generation. Raises `AdapterError`."""


@runtime_checkable
class Grouped(Protocol):
    """Applies the deltas of several generations at once."""

    def add(
        self,
        layer: int,
        source: str,
        rows: Tensor,
        outputs: dict[str, Tensor],
        deltas: list[Deltas | None],
    ) -> None:
        """As `Deltas.add` for a decode batch: row i belongs to `deltas[i]`; rows of None stay as they are."""


@dataclass
class Point:
    """Where the model waits for deltas. `rows` [T, width] and `outputs` [T, width of each] stay alive meanwhile."""

    layer: int
    source: str
    rows: Tensor
    outputs: dict[str, Tensor]


Points = frozenset[tuple[int, str]]
NO_POINTS: Points = frozenset()


def points_of(sites: dict[Site, Width]) -> Points:
    """The points at which an adapter with these sites has something to add."""
    return frozenset((layer, SOURCE_OF[projection]) for layer, projection in sites)


def graph_key(deltas: Deltas | None) -> Hashable:
    """What a recorded graph depends on of these deltas."""
    if deltas is None:
        return None
    return getattr(deltas, "graph_key", None) or ("generation", id(deltas))


def add_each(point: Point, deltas: Sequence[Deltas | None], sites: Sequence[Points]) -> None:
    """Adds each row's own deltas: grouped ones together, the others one row after the other."""
    here = (point.layer, point.source)
    waiting = [one if one is not None and here in sites[row] else None for row, one in enumerate(deltas)]
    groups: dict[int, Grouped] = {}
    for one in waiting:
        grouped = getattr(one, "grouped", None)
        if grouped is not None:
            groups[id(grouped)] = grouped
    for grouped in groups.values():
        members = [one if getattr(one, "grouped", None) is grouped else None for one in waiting]
        grouped.add(point.layer, point.source, point.rows, point.outputs, members)
    for row, one in enumerate(waiting):
        if one is None or getattr(one, "grouped", None) is not None:
            continue
        outputs = {name: output[row : row + 1] for name, output in point.outputs.items()}
        one.add(point.layer, point.source, point.rows[row : row + 1], outputs)
