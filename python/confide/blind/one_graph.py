"""Both roles of the masked scheme in one process and, on a CUDA device, in one CUDA graph with the model.

Everything is computed as between two parties: masks are encrypted, the host answers `A·r − s` under the key holder's
public key, vectors are masked before A meets them. Nobody is protected: both keys are in one process, and the guarantee
says `none`. What it is for: the cost of the arithmetic without any way between the roles.

Which row of a decode batch has which adapter, and every counter, is data on the device: one recorded step serves all.
All launches for one adapter have to be on one stream: a counter is read by the first kernel of a step and moved on by
the second.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy

from .. import peft
from .._extension import native
from ..cuda import arrays, online, parameters, ring, runtime
from ..cuda.mask_stream import TILE
from ..sites import READERS, source_number
from . import masks
from .batches import encrypted_masks
from .errors import ActivationRefused, NotPrepared
from .holder import side_stream
from .host import AdapterHost, HostedAdapter, HostOptions, answer_products
from .terms import InputTerms, adapter_sites

ADAPTERS_MAX = 16
PREFILL_ROWS_MAX = 1024
# Adapter and activations are in one process.
GUARANTEE = native.describe_guarantee(
    host_is_blind=False, adapter_stays=False, b_is_handed_over=True, adapter_can_be_learned=True
)
SLOTS = 2
MASK_DEADLINE_S = 300.0
_LOOK_EVERY_S = 0.02
_END_S = 10.0


class OneGraphBank:
    """All adapters of this kind that a worker has loaded: a table for each point of the model, a line for each adapter.

    The worker's `DeltasGroup`: a decode batch is one pair of launches for each point, whoever its rows belong to.
    """

    def __init__(self, device: str, slots: int) -> None:
        self.device, self.slots, self.version = device, slots, 0
        self.members: list[OneGraphAdapter | None] = [None] * ADAPTERS_MAX
        self.tables: dict[tuple[int, int], online.InputTable] = {}
        self.rows: list[int] = [-1] * slots
        self.adapter_of = arrays.zeros(slots, "int32", device)
        self.offset_of = arrays.zeros(slots, "int32", device)
        self._rows_max = 0
        self._steps: list[online.OnlineKernels] = []
        self.status = online.StatusWords(device, slots)
        # That of the step at whose point `add` is called next, where nothing else adds there.
        self.order: runtime.LaunchOrder | None = None
        self._returned: list[tuple[online.StatusWords, Any]] = []
        # Rows of a prefill in the order of their counters.
        self.in_order = arrays.upload(numpy.arange(PREFILL_ROWS_MAX, dtype=numpy.int32), device)
        self._write_rows()

    def add_adapter(self, adapter: OneGraphAdapter) -> int:
        """Gives the adapter a line in every table that it needs."""
        index = next((at for at, member in enumerate(self.members) if member is None), None)
        if index is None:
            raise ActivationRefused(f"adapters of this kind: wanted at most {ADAPTERS_MAX}")
        self.members[index] = adapter
        for state in adapter.inputs:
            place = (state.terms.layer, state.terms.source)
            table = self.tables.get(place) or self.tables.setdefault(
                place, online.InputTable(self.device, ADAPTERS_MAX)
            )
            table.put(index, state.line, state.pool)
        tallest = max(table.rows_max for table in self.tables.values())
        if tallest > self._rows_max:
            self._rows_max = tallest
            # Recorded steps keep the buffers that they were recorded with.
            self._steps.append(
                online.OnlineKernels(self.device, max(self.slots, PREFILL_ROWS_MAX), tallest)
            )
        # Grids and tables may be others: steps are recorded again.
        self.version += 1
        self._warm_up_kernels()
        return index

    def remove_adapter(self, index: int) -> None:
        """Frees a line; nobody's rows point there any more."""
        for table in self.tables.values():
            table.put(index, None)
        self.members[index] = None
        self.version += 1

    def assign_row(self, row: int, index: int) -> None:
        """Gives the row to the adapter in this line from now on; -1 gives it to none."""
        self.rows[row] = index
        self._write_rows()

    def add(
        self, layer: int, source: str, rows: Any, outputs: dict[str, Any], deltas: list[Any]
    ) -> None:
        """Adds the deltas of a decode batch. `deltas` are not read: the device knows whose each row is."""
        count, order = rows.shape[0], self.order
        self.order = None
        self.launch(
            layer,
            source_number(source),
            rows,
            outputs,
            self.adapter_of[:count],
            self.offset_of[:count],
            self.status,
            order,
        )
        if order is not None:
            order.keep()

    def launch(
        self,
        layer: int,
        source: int,
        rows: Any,
        outputs: dict[str, Any],
        adapter_of: Any,
        offset_of: Any,
        status: online.StatusWords,
        order: runtime.LaunchOrder | None = None,
    ) -> None:
        """Launches the two kernels of one point, in the order of a step where they are its own."""
        table = self.tables.get((layer, source))
        if table is None or table.rows_max == 0:
            return
        chosen = [outputs.get(name) for name in READERS[source]]
        self._steps[-1].run_fused(table, adapter_of, offset_of, rows, chosen, status, order)

    def lend_status(self) -> online.StatusWords:
        """Lends status words for one generation's prefills; returned ones once no kernel writes them any more."""
        for at, (status, done) in enumerate(self._returned):
            if done is None or done.query():
                del self._returned[at]
                status.array.fill(0)
                return status
        return online.StatusWords(self.device, PREFILL_ROWS_MAX)

    def return_status(self, status: online.StatusWords) -> None:
        """Takes back the status words of a generation that is over; what it launched may still run."""
        done = None
        if self.device != "cpu":
            import torch

            done = torch.cuda.Event()
            done.record(torch.cuda.current_stream(self.device))
        self._returned.append((status, done))

    def take_refusals(self, row: int) -> int:
        """Takes a row's status word. To be called after the step's tokens were read."""
        found = int(self.status.array[row])
        if found:
            self.status.array[row] = 0
        return found

    def _write_rows(self) -> None:
        seen: dict[int, int] = {}
        offsets = []
        for index in self.rows:
            offsets.append(seen.get(index, 0))
            seen[index] = offsets[-1] + 1
        for target, values in ((self.adapter_of, self.rows), (self.offset_of, offsets)):
            fresh = arrays.upload(numpy.array(values, numpy.int32), self.device)
            if self.device == "cpu":
                target[:] = fresh
            else:
                arrays.copy(target, fresh)

    def _warm_up_kernels(self) -> None:
        """Loads the kernels outside any recording, by a launch for no adapter."""
        if self.device == "cpu":
            return
        import torch

        nobody = torch.full((1,), -1, dtype=torch.int32, device=self.device)
        for dtype in (torch.float32, torch.bfloat16):
            for (layer, source), table in list(self.tables.items())[:1]:
                width = next(kept[0] for kept in table._kept if kept and kept[0]).columns
                rows = torch.zeros(1, width, dtype=dtype, device=self.device)
                outputs = {READERS[source][0]: torch.zeros(1, 1, dtype=dtype, device=self.device)}
                self.launch(layer, source, rows, outputs, nobody, self.offset_of[:1], self.status)
        # Waits for this stream alone: the steps' own may be under recording, when the device cannot be waited for.
        arrays.synchronize(self.device)


class InputState:
    """One input of one adapter: what the device multiplies with, its pool, and the host's counters of batches."""

    def __init__(self, device: str, hosted: HostedAdapter, index: int, tokens: int) -> None:
        product = hosted.products[index]
        self.terms: InputTerms = product.terms
        self.matrix = product.weights.matrix
        readers = READERS[self.terms.source]
        self.line = self.terms.to_device(device, self.matrix, tokens, readers)
        self.pool = online.DevicePool(device, tokens, SLOTS)
        # Used by the host at the last exact reading.
        self.exact = 0

    @property
    def end(self) -> int:
        """The first counter that is not prepared."""
        return self.pool.installed * self.pool.tokens


class OneGraphAdapter:
    """An adapter of the kind `one-graph`. `mode` is `full` or `final-hidden`."""

    opens_at_once = True
    guarantee = GUARANTEE

    def __init__(
        self,
        name: str,
        folder: str | Path,
        bank: OneGraphBank,
        set_name: str = parameters.DEFAULT,
        protect: str = "a",
        mode: str = "full",
        dangerous_parameters: bool = False,
    ) -> None:
        chosen = parameters.find_set(set_name, dangerous_parameters)
        self.name, self.bank, self.device = name, bank, bank.device
        _, pairs = peft.load_adapter(folder, final_hidden=mode == "final-hidden")
        options = HostOptions(chosen, protect, 1 << 62, rank_max=1024, device=self.device)
        self.host = AdapterHost(options)
        hosted = self.host.add_adapter(name, pairs)
        self.context = self.host.context
        self.secret = ring.SecretKey.random(self.context)
        self.public_key = ring.PublicKey.from_bytes(
            self.context, self.secret.public_key().to_bytes()
        )
        self.inputs = [
            InputState(self.device, hosted, at, self.context.n)
            for at in range(len(hosted.products))
        ]
        self.sites = adapter_sites(state.terms for state in self.inputs)
        self._key, self._client = os.urandom(32), os.urandom(32)
        self._changed, self._stopping = threading.Condition(), False
        self._since = self._least = 0
        self._fault: BaseException | None = None
        with side_stream(self.device) as wait:
            for state in self.inputs:
                self._install(state, wait)
        self.index = bank.add_adapter(self)
        self.mine = arrays.upload(
            numpy.full(PREFILL_ROWS_MAX, self.index, numpy.int32), self.device
        )
        self._preparer = threading.Thread(
            target=self._prepare_ahead, name="confide-one-graph", daemon=True
        )
        self._preparer.start()

    def open(self) -> OneGraphDeltas:
        """Begins a generation."""
        return OneGraphDeltas(self)

    def close(self) -> None:
        """Gives everything back; keys and masks are wiped."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        # What it prepares would come after the wiping.
        self._preparer.join(_END_S)
        with self._changed:
            for state in self.inputs:
                state.pool.wipe()
            self.secret.wipe()
        self.bank.remove_adapter(self.index)

    def measure_offline(self) -> tuple[float, int]:
        """Times the preparing of one batch of every input, which is discarded: milliseconds, and its tokens."""
        with side_stream(self.device) as wait:
            began = time.perf_counter()
            for state in self.inputs:
                arrays.wipe(self._prepare_products(state, os.urandom(32), os.urandom(32)))
            wait()
            return (time.perf_counter() - began) * 1e3, self.context.n

    def announce_rows(self, rows: int) -> None:
        """Announces a pass over so many rows. Waits for masks if need be; a missing mask is never replaced."""
        with self._changed:
            if self._stopping:
                # Its line in the tables is empty: rows would pass as they are.
                raise NotPrepared(f"adapter {self.name}: it was unloaded")
            if self._since + rows > self._least:
                self._wait_for(rows)
            self._since += rows
            if self._least - self._since < self.context.n:
                self._changed.notify_all()

    def _wait_for(self, rows: int) -> None:
        """Reads the true counters from the device, then waits until masks for `rows` are prepared."""
        arrays.synchronize(self.device)
        for state in self.inputs:
            state.exact = state.pool.next_counter()
        self._since = 0
        self._update_least()
        until = time.monotonic() + MASK_DEADLINE_S
        while rows > self._least:
            if (
                self._stopping
                or self._fault
                or rows > self.context.n * (SLOTS - 1)
                or time.monotonic() >= until
            ):
                raise NotPrepared(
                    f"adapter {self.name}: no prepared masks for {rows} vectors: "
                    f"{self._fault or 'they did not arrive in time'}"
                )
            self._changed.notify_all()
            self._changed.wait(_LOOK_EVERY_S)

    def _update_least(self) -> None:
        self._least = min(state.end - state.exact for state in self.inputs)

    def _prepare_ahead(self) -> None:
        """Keeps both slots of every pool filled."""
        try:
            with side_stream(self.device) as wait:
                while not self._stopping:
                    short = [
                        state
                        for state in self.inputs
                        if state.pool.installed - state.pool.next_counter() // self.context.n
                        < SLOTS
                    ]
                    for state in short:
                        if self._stopping:
                            return
                        self._install(state, wait)
                    if not short:
                        with self._changed:
                            self._changed.wait(
                                _LOOK_EVERY_S if self._least - self._since < self.context.n else 1.0
                            )
        except BaseException as fault:
            with self._changed:
                if not self._stopping:
                    self._fault = fault
                    self._changed.notify_all()
                    raise

    def _install(self, state: InputState, wait: Any) -> None:
        number = state.pool.installed
        mask_key, share_key = os.urandom(32), self._share_key(state, number)
        prepared = self._prepare_products(state, mask_key, share_key)
        wait()
        with self._changed:
            if self._stopping:
                # What was there is wiped; this would stay.
                arrays.wipe(prepared)
                return
            state.pool.install(number, prepared, mask_key, share_key)
            wait()
            self._update_least()
            self._changed.notify_all()

    def _share_key(self, state: InputState, batch: int) -> bytes:
        return masks.answer_key(
            self._key,
            self.host.epoch,
            self._client,
            bytes(32),
            state.terms.layer,
            state.terms.source,
            bytes(16),
            batch,
        )

    def _prepare_products(self, state: InputState, mask_key: bytes, share_key: bytes) -> Any:
        """Computes A·r − s of one batch, [tokens, rows]: encrypted, multiplied, made fresh and decrypted."""
        products = ring.ScalarProducts(self.context, state.matrix)
        # Nothing is sent: all columns in one launch of each kernel.
        tiles = -(-state.terms.columns // TILE)
        blocks = encrypted_masks(self.context, self.secret, state.terms, mask_key, tiles)
        for first, _, seeded in blocks:
            products.add_seeded(first, seeded)
        answers = answer_products(products, self.public_key, share_key, state.terms)
        return arrays.transpose_and_wipe(self.secret.decrypt(answers))


class OneGraphDeltas:
    """One generation's deltas with both roles in one process, recorded in a CUDA graph together with the model."""

    capturable = True
    guarantee = GUARANTEE

    def __init__(self, adapter: OneGraphAdapter) -> None:
        self.adapter, self.grouped = adapter, adapter.bank
        self.row: int | None = None
        self.answered = 0
        self.prefill_status: online.StatusWords | None = adapter.bank.lend_status()

    @property
    def graph_key(self) -> tuple[str, int, int]:
        """A recorded step serves every row of every adapter in the bank."""
        return "one-graph", id(self.grouped), self.grouped.version

    def add(self, layer: int, source: str, rows: Any, outputs: dict[str, Any]) -> None:
        """Adds the deltas of a prefill's rows, all of this generation."""
        bank, count, status = self.grouped, rows.shape[0], self.prefill_status
        if status is None:
            raise NotPrepared(f"adapter {self.adapter.name}: the generation has ended")
        for first in range(0, count, PREFILL_ROWS_MAX):
            here = min(PREFILL_ROWS_MAX, count - first)
            some = {name: output[first : first + here] for name, output in outputs.items()}
            bank.launch(
                layer,
                source_number(source),
                rows[first : first + here],
                some,
                self.adapter.mine[:here],
                bank.in_order[:here],
                status,
            )

    def before_step(self, rows: int) -> None:
        """Waits for masks, outside any graph."""
        self.adapter.announce_rows(rows)
        self.answered += rows

    def after_step(self) -> None:
        """Fails the generation where the device refused a vector of its prefill or its row."""
        found = self.prefill_status.take_refusals() if self.prefill_status is not None else 0
        if self.row is not None:
            found |= self.grouped.take_refusals(self.row)
        if found:
            raise ActivationRefused(f"activation cannot be sent: {online.refusal_text(found)}")

    def assign_row(self, row: int | None) -> None:
        """Gives the generation this row of decode batches from now on; None gives it no row."""
        if self.row is not None:
            self.grouped.assign_row(self.row, -1)
        if row is not None:
            self.grouped.assign_row(row, self.adapter.index)
        self.row = row

    def report(self) -> dict[str, Any]:
        """Reports what the generation has taken until now: its share of the batches."""
        operations = sum(
            state.terms.columns * (1 + state.terms.rows) + state.terms.rows
            for state in self.adapter.inputs
        )
        tokens = self.adapter.context.n
        return {
            "he_operations": -(-operations * self.answered // tokens),
            "answered_vectors": self.answered * len(self.adapter.inputs),
            "guarantee": self.guarantee,
        }

    def close(self) -> None:
        """Leaves the row and gives the status words back, at the generation's end."""
        self.assign_row(None)
        if self.prefill_status is not None:
            self.grouped.return_status(self.prefill_status)
            self.prefill_status = None
