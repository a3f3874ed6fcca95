"""The worker's own kinds of adapters, plain and relay, and the door to those of the blind protocol."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .. import peft
from .config import ModelConfig
from .deltas import (
    PROJECTIONS,
    READS,
    SOURCE_OF,
    Adapter,
    AdapterError,
    GenerationDeltas,
    Site,
    Width,
    points_of,
)

ADAPTERS_MAX = 64
KINDS = ("plain", "relay", "one-graph", "ipc", "blind")


@dataclass
class WorkerContext:
    """What an adapter may need of the worker it is loaded into."""

    config: ModelConfig
    device: torch.device
    dtype: torch.dtype
    slots: int
    # How `confide serve` is asked for deltas, see relay.py; None if nobody can be asked.
    line: Any = None


class AdapterRegistry:
    """Loaded adapters by name."""

    def __init__(self, context: WorkerContext) -> None:
        self.context = context
        self.loaded: dict[str, Adapter] = {}
        self.bank = PlainBank(context)
        # Unloaded, but generations run with them; `in_use` tells for how long.
        self.leaving: list[Adapter] = []
        self.in_use: Callable[[Adapter], bool] = lambda adapter: False

    def load(self, name: str, kind: str, spec: dict[str, Any]) -> Adapter:
        """Makes and attaches an adapter. Raises `AdapterError`."""
        return self.attach(name, self.make(name, kind, spec))

    def attach(self, name: str, adapter: Adapter) -> Adapter:
        """Takes an adapter that was made, between two steps."""
        try:
            if name in self.loaded:
                raise AdapterError(f"name {name!r} is taken")
            if len(self.loaded) >= ADAPTERS_MAX:
                raise AdapterError(f"too many adapters: wanted at most {ADAPTERS_MAX}")
            for site, got in adapter.sites.items():
                self.check_site(name, site, got)
            if isinstance(adapter, PlainAdapter):
                self.bank.add_adapter(adapter)
        except Exception:
            close(adapter)
            raise
        self.loaded[name] = adapter
        return adapter

    def make(self, name: str, kind: str, spec: dict[str, Any]) -> Adapter:
        """Reads or reaches an adapter; may take long, and may run while steps do."""
        if kind == "plain":
            _, pairs = peft.load_adapter(str(spec.get("path", "")))
            return PlainAdapter(name, pairs, self.bank, self.context)
        if kind == "relay":
            from .relay import RelayAdapter

            return RelayAdapter(name, spec, self.context)
        if kind not in KINDS:
            raise AdapterError(f"adapter kind: wanted {', '.join(KINDS)}, got {kind!r}")
        try:
            # It imports the native part, which a worker without adapters does without.
            from ..blind.adapter import make_adapter
        except ImportError as error:
            raise AdapterError(f"adapter kind {kind}: {error}") from error
        return make_adapter(kind, {**spec, "adapter": name}, self.context)

    def check_site(self, name: str, site: Site, got: Width) -> None:
        """Refuses a site that the model does not have, or not with these widths."""
        wanted = self.context.config.width(site)
        if wanted != got:
            raise AdapterError(
                f"adapter {name!r}: layer {site[0]} {site[1]}: wanted {wanted}, got {got}"
            )

    def unload(self, name: str) -> None:
        """Forgets an adapter. Generations that run with it go on."""
        adapter = self.loaded.pop(name, None)
        if adapter is None:
            raise AdapterError(f"no adapter {name!r} is loaded")
        if isinstance(adapter, PlainAdapter):
            self.bank.remove_adapter(adapter)
        self.leaving.append(adapter)
        self.close_unused()

    def close_unused(self) -> int:
        """Closes what was unloaded and is no longer in use; says how many."""
        done = [adapter for adapter in self.leaving if not self.in_use(adapter)]
        self.leaving = [adapter for adapter in self.leaving if adapter not in done]
        for adapter in done:
            close(adapter)
        return len(done)

    def clear(self) -> None:
        """Forgets all adapters."""
        for name in list(self.loaded):
            self.unload(name)


def close(adapter: Adapter) -> None:
    """Lets an adapter give back what it holds, where it has something to give back. What goes wrong in that ends no
    stream of others.
    """
    done = getattr(adapter, "close", None)
    try:
        if done is not None:
            done()
    except Exception as error:
        print(
            f"adapter {adapter.name}: close: {type(error).__name__}: {error}",
            file=sys.stderr,
            flush=True,
        )


class PlainAdapter:
    """LoRA in the clear, in the model's own type. Nobody is protected from anybody."""

    opens_at_once = True
    guarantee = "none"
    count = itertools.count()

    def __init__(
        self, name: str, pairs: dict[Site, peft.LoraPair], bank: PlainBank, context: WorkerContext
    ) -> None:
        self.name, self.bank = name, bank
        self.sites = {site: (pair.a.shape[1], pair.b.shape[0]) for site, pair in pairs.items()}
        self.points = points_of(self.sites)
        self.number, self.open_count, self.is_loaded = next(self.count), 0, True
        kept = {"device": context.device, "dtype": context.dtype}
        self.a = {site: torch.from_numpy(pair.a).to(**kept) for site, pair in pairs.items()}
        # The scale goes into B while it has all its bits.
        self.b = {
            site: (torch.from_numpy(pair.b) * pair.scale).to(**kept) for site, pair in pairs.items()
        }

    def open(self) -> GenerationDeltas:
        """Returns the deltas of one generation."""
        self.open_count += 1
        return PlainDeltas(self)


class PlainDeltas:
    """A plain adapter in one generation."""

    guarantee = "none"
    capturable = True
    rehearsable = True

    def __init__(self, adapter: PlainAdapter) -> None:
        self.adapter, self.grouped = adapter, adapter.bank
        self.row: int | None = None

    @property
    def graph_key(self) -> tuple[str, int]:
        """A recorded step serves every row of every adapter in the bank."""
        return "bank", self.grouped.version

    def add(self, layer: int, source: str, rows: Tensor, outputs: dict[str, Tensor]) -> None:
        """Adds scale · B · (A · rows) to each output in place; rows [T, in], outputs [T, out] by projection."""
        for projection, output in outputs.items():
            a = self.adapter.a.get((layer, projection))
            if a is not None:
                output.add_(rows @ a.t() @ self.adapter.b[layer, projection].t())

    def assign_row(self, row: int | None) -> None:
        """Gives the generation this row of decode batches from now on; None gives it no row."""
        if self.row is not None:
            self.grouped.shares[self.row].zero_()
        if row is not None:
            self.grouped.assign_row(row, self.adapter)
        self.row = row

    def report(self) -> dict[str, Any]:
        """Returns what is said of the adapter at the end of a generation."""
        return {"guarantee": self.guarantee}

    def close(self) -> None:
        """Leaves the place in the batch and the adapter."""
        self.assign_row(None)
        self.adapter.open_count -= 1


class PlainBank:
    """All plain adapters side by side: one product with every A, a mask that leaves each row its own adapter's part,
    one product with every B. Which adapter a row has is data on the device, so that one recorded step serves all.
    """

    def __init__(self, context: WorkerContext) -> None:
        self.context, self.version = context, 0
        self.members: list[PlainAdapter] = []
        self.stacked: dict[tuple[int, str], tuple[Tensor, Tensor, list[str]]] = {}
        self.copies: dict[tuple[int, str, torch.dtype], tuple[Tensor, Tensor, list[str]]] = {}
        self.shares = torch.zeros(context.slots, 0, device=context.device, dtype=context.dtype)

    def add_adapter(self, adapter: PlainAdapter) -> None:
        """Adds an adapter, and lets go of those that were unloaded and have ended."""
        stay = [member for member in self.members if member.is_loaded or member.open_count]
        self.build([*stay, adapter])

    def remove_adapter(self, adapter: PlainAdapter) -> None:
        """Notes that the adapter is unloaded; it leaves at the next change, since a recorded step may be under way."""
        adapter.is_loaded = False
        if not any(member.is_loaded or member.open_count for member in self.members):
            self.build([])

    def build(self, members: list[PlainAdapter]) -> None:
        """Stacks the members again. Recorded steps of an earlier version read what they held, which lives with them."""
        old, marks = self.members, self.shares
        kept = [old.index(member) if member in old else None for member in members]
        columns = [
            marks[:, place] if place is not None else torch.zeros_like(self.column())
            for place in kept
        ]
        shares = torch.stack(columns, -1).contiguous() if columns else marks[:, :0].clone()
        points = {point for member in members for point in member.points}
        stacked = {
            (layer, source): self.stack(members, layer, source) for layer, source in sorted(points)
        }
        # Only now: where memory ran out above, everything is as it was.
        self.members, self.shares, self.stacked, self.copies = members, shares, stacked, {}
        self.version += 1

    def column(self) -> Tensor:
        """Returns zeros [slots], in the type of the activations."""
        return torch.zeros(self.context.slots, device=self.context.device, dtype=self.context.dtype)

    def stack(
        self, members: list[PlainAdapter], layer: int, source: str
    ) -> tuple[Tensor, Tensor, list[str]]:
        """Stacks A [members · ranks, in] and B [outputs, members · ranks], ranks filled up to the largest."""
        widths, names = self.context.config.widths(), list(READS[source])
        ranks = {name: rank_of(members, (layer, name)) for name in names}
        names = [name for name in names if ranks[name]]
        width = widths[names[0]][0]
        total = sum(ranks[name] for name in names)
        kept = {"device": self.context.device, "dtype": self.context.dtype}
        a = torch.zeros(len(members), total, width, **kept)
        b = torch.zeros(sum(widths[name][1] for name in names), len(members), total, **kept)
        for index, member in enumerate(members):
            row = column = 0
            for name in names:
                out = widths[name][1]
                if (layer, name) in member.a:
                    one_a, one_b = member.a[layer, name], member.b[layer, name]
                    a[index, column : column + one_a.shape[0]] = one_a
                    b[row : row + out, index, column : column + one_a.shape[0]] = one_b
                row, column = row + out, column + ranks[name]
        return a.view(-1, width), b.view(b.shape[0], -1), names

    def stacks_for(
        self, layer: int, source: str, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor, list[str]] | None:
        """Gives the stacks in the type of the rows: kernels of few rows keep activations in float32."""
        found = self.stacked.get((layer, source))
        if found is None or found[0].dtype == dtype:
            return found
        key = (layer, source, dtype)
        if key not in self.copies:
            self.copies[key] = (found[0].to(dtype), found[1].to(dtype), found[2])
        return self.copies[key]

    def assign_row(self, row: int, adapter: PlainAdapter) -> None:
        """Gives the row to this adapter from now on."""
        self.shares[row].zero_()
        self.shares[row, self.members.index(adapter)].fill_(1)

    def add(
        self,
        layer: int,
        source: str,
        rows: Tensor,
        outputs: dict[str, Tensor],
        deltas: list[GenerationDeltas | None],
    ) -> None:
        """Adds the deltas of a decode batch. `deltas` are not read: rows of others, and of none, have no share."""
        found = self.stacks_for(layer, source, rows.dtype)
        if found is None:
            return
        a, b, names = found
        count = rows.shape[0]
        inner = (rows @ a.t()).view(count, len(self.members), -1) * self.shares[:count, :, None]
        target = join_neighbours([outputs[name] for name in names])
        if target is not None:
            target.addmm_(inner.view(count, -1), b.t())
            return
        parts = (inner.view(count, -1) @ b.t()).split(
            [outputs[name].shape[1] for name in names], dim=-1
        )
        for name, part in zip(names, parts):
            outputs[name].add_(part)


def rank_of(members: list[PlainAdapter], site: Site) -> int:
    """Gives the largest rank at a site; 0 if no member changes it."""
    return max((member.a[site].shape[0] for member in members if site in member.a), default=0)


def join_neighbours(parts: list[Tensor]) -> Tensor | None:
    """One view over tensors [T, width] that lie next to each other in the same rows; None if they do not."""
    first, width = parts[0], 0
    for part in parts:
        beside = part.data_ptr() == first.data_ptr() + width * first.element_size()
        if not beside or part.stride() != first.stride():
            return None
        width += part.shape[1]
    return first.as_strided((first.shape[0], width), first.stride())


def sites_on_wire(sites: dict[Site, Width]) -> list[list[Any]]:
    """Gives [layer, projection, in, out] of each site, as the protocol has them."""
    order = {projection: index for index, projection in enumerate(PROJECTIONS)}
    places = sorted(sites.items(), key=lambda item: (item[0][0], order[item[0][1]]))
    return [[layer, projection, *width] for (layer, projection), width in places]


def sites_from_wire(listed: Any) -> dict[Site, Width]:
    """Reads sites from [layer, projection, in, out]. Raises `AdapterError`."""
    sites: dict[Site, Width] = {}
    try:
        for layer, projection, width, out in listed:
            if projection not in SOURCE_OF:
                raise AdapterError(
                    f"projection: wanted {', '.join(PROJECTIONS)}, got {str(projection)[:80]!r}"
                )
            sites[int(layer), projection] = (int(width), int(out))
    except (TypeError, ValueError) as error:
        raise AdapterError(f"sites: wanted [[layer, projection, in, out], …]: {error}") from error
    if not sites:
        raise AdapterError("sites: wanted at least one")
    return sites
