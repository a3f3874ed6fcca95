"""What an adapter is to the worker: the points of a decoder where it may add to what projections give.

A model is a Python generator (`model.py`) that stops at each *point* that was asked for: a vector inside one layer, and
the outputs of the projections that read it. The generator's caller adds the adapters' parts in place and goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from ..adapter_error import AdapterError as AdapterError
from ..sites import PROJECTIONS as PROJECTIONS
from ..sites import READERS
from ..sites import SOURCES as SOURCES
from ..sites import Site as Site
from ..sites import Width as Width

# The projections that read a vector, by its name.
READS = dict(zip(SOURCES, READERS))
SOURCE_OF = {
    projection: source for source, projections in READS.items() for projection in projections
}


@runtime_checkable
class GenerationDeltas(Protocol):
    """One adapter at work in one generation.

    `capturable` says whether `add` may be recorded in a CUDA graph together with the model: it launches on the current
    stream, reads and writes device memory only, allocates through torch and waits for nothing. Such deltas may name
    themselves by `graph_key` (hashable): a graph recorded with one serves another of the same key. Without it each
    generation records graphs of its own. Before a shape is recorded it is run once for the libraries' sake; `add` takes
    part in that only where `rehearsable` is true.

    Where they are there: `before_step(rows)` is called on the host before each pass over so many rows of the
    generation, `after_step()` when that pass's tokens have been read (status words may be read then without waiting);
    both may raise `AdapterError`. `assign_row(row)` tells which row of decode batches is the generation's from now on,
    None at its end; `set_generation(id)` the generation's number; `close()` is called at the end. `grouped` is a
    `DeltasGroup` that several deltas share: decode batches call it, prefills call `add`.
    """

    guarantee: str
    capturable: bool

    def add(self, layer: int, source: str, rows: Tensor, outputs: dict[str, Tensor]) -> None:
        """Adds, in place, to `outputs` ([T, width of each]) what the adapter makes of `rows` [T, width].

        Both are in the model's type, or in float32 where this package's own kernels decode; those give for o and down
        the residual stream with the projection in it, so nothing but adding is allowed.

        Raises `AdapterError`; the outputs are then as they were.
        """

    def report(self) -> dict[str, Any]:
        """Reports what the generation has taken until now: words of crates/lora's `DeltaReport`, and `guarantee`."""


@runtime_checkable
class Adapter(Protocol):
    """A loaded adapter. `sites` names every projection that it changes, with its widths.

    `opens_at_once` true says that `open` reaches nobody, so that it need not run on a thread of its own; `guarantee` is
    told when it is loaded; `close()`, where it is there, gives back what the adapter holds.
    """

    name: str
    sites: dict[Site, Width]

    def open(self) -> GenerationDeltas:
        """Begins a generation. Raises `AdapterError`."""


@runtime_checkable
class DeltasGroup(Protocol):
    """Applies the deltas of several generations at once."""

    def add(
        self,
        layer: int,
        source: str,
        rows: Tensor,
        outputs: dict[str, Tensor],
        deltas: list[GenerationDeltas | None],
    ) -> None:
        """Adds as `GenerationDeltas.add` does, for a decode batch: row i belongs to `deltas[i]`; rows of None stay
        as they are.
        """


@runtime_checkable
class OrderedGroup(Protocol):
    """A group whose kernels keep the order of a step (confide.cuda.runtime.LaunchOrder): set before one call of `add`,
    which takes it.
    """

    order: Any


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
    """Gives the points at which an adapter with these sites has something to add."""
    return frozenset((layer, SOURCE_OF[projection]) for layer, projection in sites)


def graph_key(deltas: GenerationDeltas | None) -> Hashable:
    """Gives what a recorded graph depends on of these deltas."""
    if deltas is None:
        return None
    return getattr(deltas, "graph_key", None) or ("generation", id(deltas))


OnFailure = Callable[[int, Exception], None]


def add_each(
    point: Point, deltas: Sequence[GenerationDeltas | None], on_failure: OnFailure
) -> None:
    """Adds each row's own deltas: grouped ones together, the others one row after the other.

    What goes wrong with one row goes to `on_failure` and leaves the others alone; what goes wrong with a group, for
    each of its rows. Grouped deltas may also keep an error of their own in `error`.
    """
    groups: dict[int, DeltasGroup] = {}
    for one in deltas:
        grouped = getattr(one, "grouped", None)
        if grouped is not None:
            groups[id(grouped)] = grouped
    for grouped in groups.values():
        members = [one if getattr(one, "grouped", None) is grouped else None for one in deltas]
        rows = [row for row, one in enumerate(members) if one is not None]
        # A group that is alone at a point of the kernels' step may launch in that step's order.
        order = getattr(point, "order", None)
        alone = (
            order is not None
            and len(groups) == 1
            and len(rows) == sum(one is not None for one in deltas)
        )
        if alone and isinstance(grouped, OrderedGroup):
            grouped.order = order
        try:
            grouped.add(point.layer, point.source, point.rows, point.outputs, members)
        except Exception as fault:
            for row in rows:
                on_failure(row, fault)
        for row in rows:
            error: AdapterError | None = getattr(members[row], "error", None)
            if error is not None:
                on_failure(row, error)
    for row, one in enumerate(deltas):
        if one is None or getattr(one, "grouped", None) is not None:
            continue
        outputs = {name: output[row : row + 1] for name, output in point.outputs.items()}
        try:
            one.add(point.layer, point.source, point.rows[row : row + 1], outputs)
        except Exception as fault:
            on_failure(row, fault)
