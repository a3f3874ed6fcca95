"""The key holder's online step at one input, in kernels: quantise and mask, then unmask and add."""

from __future__ import annotations

import numpy

from .._extension import native
from ..cuda import arrays, online
from ..cuda.arrays import Array
from ..sites import READERS
from .batches import CounterRange
from .errors import ActivationRefused
from .pack import packed_bytes
from .session import HolderSession
from .terms import InputTerms

VECTORS_MAX = native.MaskedRequest.VECTORS_MAX


class OnlineStep:
    """`begin`, then `mask` and `unmask` for each run of counters, then `add`. One thread at a time."""

    def __init__(self, session: HolderSession, terms: InputTerms, device: str) -> None:
        self.session, self.terms, self.device = session, terms, device
        self.places, self.table = READERS[terms.source], online.InputTable(device, 1)
        self.line = terms.to_device(device, tokens=session.context.n, places=self.places)
        self.table.put(0, self.line)
        self.packed, self.answers = (
            online.HostBuffer(device, (VECTORS_MAX, packed_bytes(width, terms.bits)), "uint8")
            for width in (terms.columns, terms.rows)
        )
        self.status = online.StatusWords(device, VECTORS_MAX)
        self.words = arrays.zeros((VECTORS_MAX, terms.columns), "int64", device)
        self.vectors = 0

    def begin(self, rows: Array) -> None:
        """Takes `rows` float32 or bfloat16 [T, columns], whose deltas are to be added."""
        if len(rows.shape) != 2 or rows.shape[1] != self.terms.columns:
            raise ActivationRefused(
                f"activation: wanted vectors of {self.terms.columns}, got {list(rows.shape)}"
            )
        self.rows = rows
        if rows.shape[0] > self.vectors:
            self.vectors = max(rows.shape[0], 16)
            self.online = online.OnlineKernels(self.device, self.vectors, self.terms.rows)
            self.scales = arrays.zeros(self.vectors, "float64", self.device)
            self.adapter_of = arrays.zeros(self.vectors, "int32", self.device)

    def mask(self, taken: CounterRange, done: int) -> bytes:
        """Masks and packs the next `taken.count` rows from `done` on. Waits for the device."""
        self._mask(taken, done, self.words, self.packed)
        return self.packed.array[: taken.count].tobytes()

    def mask_into(self, taken: CounterRange, done: int, words: Array) -> None:
        """Masks as `mask` does, to words [count, columns] at the front of a flat array on the device. Waits for it."""
        self._mask(taken, done, words, None)

    def _mask(
        self, taken: CounterRange, done: int, words: Array, packed: online.HostBuffer | None
    ) -> None:
        tokens = taken.batch.lines[taken.first : taken.first + taken.count]
        here = slice(done, done + taken.count)
        self.online.mask(
            tokens, self.rows[here], self.line, words, packed, self.scales[here], self.status
        )
        arrays.synchronize(self.device)
        if refused := self.status.take_refusals():
            raise ActivationRefused(f"activation cannot be sent: {online.refusal_text(refused)}")

    def unmask(self, taken: CounterRange, done: int, raw: bytes) -> None:
        """Takes the host's packed answers for those rows; what was prepared for them is wiped."""
        rows = numpy.frombuffer(raw, numpy.uint8).reshape(taken.count, -1)
        self.answers.array[: taken.count] = rows
        self._unmask(taken, done, None, self.answers)

    def unmask_words(self, taken: CounterRange, done: int, words: Array) -> None:
        """Unmasks as `unmask` does, from words [count, rows] on the device."""
        self._unmask(taken, done, words, None)

    def _unmask(
        self, taken: CounterRange, done: int, words: Array | None, packed: online.HostBuffer | None
    ) -> None:
        prepared = taken.batch.places[taken.first : taken.first + taken.count]
        scales = self.scales[done : done + taken.count]
        self.online.unmask(prepared, words, packed, self.line, scales, done)

    def add(self, outputs: dict[str, Array]) -> None:
        """Adds all rows' deltas, in place, to `outputs` [T, width of each]."""
        chosen = [outputs.get(name) for name in self.places]
        if any(output is not None for output in chosen):
            self.online.add(self.table, self.adapter_of, chosen)
