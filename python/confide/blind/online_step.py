"""The key holder's online step at one input: numpy on a CPU (the slow reference), the kernels on a CUDA device."""

from __future__ import annotations

from typing import Any

import numpy

from ..cuda import online
from ..sites import READERS
from . import masks
from .batches import Taken
from .errors import ActivationRefused, ProtocolError
from .messages import VECTORS_MAX
from .pack import pack, packed_bytes, unpack
from .quantise import quantise_vector
from .terms import Terms


class OnlineStep:
    """begin, then masked and opened for each run of counters, then add. One thread at a time."""

    def __new__(cls, session: Any, terms: Terms, device: str) -> OnlineStep:
        """Chooses the form for the device: "cpu", or a CUDA device."""
        return object.__new__(_OnCpu if device == "cpu" else _OnCuda)

    def __init__(self, session: Any, terms: Terms, device: str) -> None:
        self.session, self.terms, self.device = session, terms, device
        self.low = numpy.uint64((1 << terms.bits) - 1)

    def begin(self, rows: Any) -> None:
        """`rows` [T, columns]: quantised on a CPU, so that a refusal spends no counter."""
        raise NotImplementedError

    def masked(self, taken: Taken, done: int) -> bytes:
        """The next `taken.count` rows from `done` on, masked and packed. Waits for the device."""
        raise NotImplementedError

    def opened(self, taken: Taken, done: int, raw: bytes) -> None:
        """Takes the host's packed answers for those rows; what was prepared for them is wiped."""
        raise NotImplementedError

    def masked_into(self, taken: Taken, done: int, words: Any) -> None:
        """As `masked`, as words [count, columns] into the front of a flat array on the device. Waits for it."""
        raise NotImplementedError

    def opened_words(self, taken: Taken, done: int, words: Any) -> None:
        """As `opened`, from words [count, rows] on the device."""
        raise NotImplementedError

    def add(self, outputs: dict[str, Any]) -> None:
        """Adds all rows' deltas, in place, to `outputs` [T, width of each]."""
        raise NotImplementedError


class _OnCpu(OnlineStep):
    def begin(self, rows: Any) -> None:
        real = as_numpy(rows).astype(numpy.float32, copy=False)
        if real.ndim != 2 or real.shape[1] != self.terms.columns:
            raise ActivationRefused(
                f"activation: wanted vectors of {self.terms.columns}, got {list(real.shape)}"
            )
        vectors = [quantise_vector(row, self.terms.norm_limit) for row in real]
        self.values = (
            numpy.stack([values for values, _ in vectors]).astype(numpy.int64).astype(numpy.uint64)
        )
        self.scales = numpy.array([scale for _, scale in vectors])
        self.products = numpy.zeros((len(real), self.terms.rows), numpy.uint64)

    def masked(self, taken: Taken, done: int) -> bytes:
        return pack(self._masked(taken, done), self.terms.bits)

    def masked_into(self, taken: Taken, done: int, words: Any) -> None:
        words[: taken.count * self.terms.columns] = self._masked(taken, done).reshape(-1)

    def _masked(self, taken: Taken, done: int) -> numpy.ndarray:
        drawn = masks.rows(
            taken.batch.key, taken.first, taken.count, self.terms.columns, self.terms.bits
        )
        return (self.values[done : done + taken.count] - drawn) & self.low

    def opened(self, taken: Taken, done: int, raw: bytes) -> None:
        words = unpack(raw, self.terms.bits, taken.count, self.terms.rows)
        if words is None:
            raise ProtocolError("products: packed: wanted values below 2^k and nothing else")
        self.opened_words(taken, done, words)

    def opened_words(self, taken: Taken, done: int, words: Any) -> None:
        prepared = taken.batch.prepared[taken.first : taken.first + taken.count]
        self.products[done : done + taken.count] = (words + prepared) & self.low
        prepared.fill(0)

    def add(self, outputs: dict[str, Any]) -> None:
        for projection, output in outputs.items():
            target = as_numpy(output).astype(numpy.float32)
            if self.terms.add(projection, self.products, self.scales, target):
                put_numpy(output, target)


class _OnCuda(OnlineStep):
    def __init__(self, session: Any, terms: Terms, device: str) -> None:
        super().__init__(session, terms, device)
        readers = READERS[terms.source]
        line = online.InputOnDevice(
            device,
            None,
            terms.columns,
            terms.bits,
            terms.norm_limit,
            session.context.n,
            online.parts_on_device(device, terms, readers),
        )
        self.places, self.table = readers, online.Table(device, 1)
        self.table.put(0, line)
        self.packed = online.HostBuffer(
            device, (VECTORS_MAX, packed_bytes(terms.columns, terms.bits)), "uint8"
        )
        self.answers = online.HostBuffer(
            device, (VECTORS_MAX, packed_bytes(terms.rows, terms.bits)), "uint8"
        )
        self.status = online.Status(device, VECTORS_MAX)
        self.words = online.zeros(device, (VECTORS_MAX, terms.columns), "int64")
        self.vectors = 0

    def begin(self, rows: Any) -> None:
        if rows.shape[1] != self.terms.columns:
            raise ActivationRefused(
                f"activation: wanted vectors of {self.terms.columns}, got {rows.shape[1]}"
            )
        self.rows = rows
        if rows.shape[0] > self.vectors:
            self.vectors = max(rows.shape[0], 16)
            self.online = online.Online(self.device, self.vectors, self.terms.rows)
            self.scales = online.zeros(self.device, self.vectors, "float64")
            self.adapter_of = online.zeros(self.device, self.vectors, "int32")

    def masked(self, taken: Taken, done: int) -> bytes:
        self._mask(taken, done, self.words, self.packed)
        return self.packed.array[: taken.count].tobytes()

    def masked_into(self, taken: Taken, done: int, words: Any) -> None:
        self._mask(taken, done, words, None)

    def _mask(self, taken: Taken, done: int, words: Any, packed: online.HostBuffer | None) -> None:
        end, terms = taken.first + taken.count, self.terms
        self.online.mask(
            taken.batch.lines[taken.first : end],
            self.rows[done : done + taken.count],
            terms.columns,
            terms.bits,
            terms.norm_limit,
            words,
            packed,
            self.scales[done : done + taken.count],
            self.status,
        )
        online.wait(self.device)
        if refused := self.status.take():
            raise ActivationRefused(f"activation cannot be sent: {online.refusal_text(refused)}")

    def opened(self, taken: Taken, done: int, raw: bytes) -> None:
        self.answers.array[: taken.count] = numpy.frombuffer(raw, numpy.uint8).reshape(
            taken.count, -1
        )
        self._unmask(taken, done, None, self.answers)

    def opened_words(self, taken: Taken, done: int, words: Any) -> None:
        self._unmask(taken, done, words, None)

    def _unmask(
        self, taken: Taken, done: int, words: Any, packed: online.HostBuffer | None
    ) -> None:
        terms = self.terms
        self.online.unmask(
            taken.batch.places[taken.first : taken.first + taken.count],
            words,
            packed,
            terms.rows,
            terms.bits,
            self.scales[done : done + taken.count],
            done,
        )

    def add(self, outputs: dict[str, Any]) -> None:
        chosen = [outputs.get(name) for name in self.places]
        if any(output is not None for output in chosen):
            self.online.add(self.table, self.adapter_of, chosen)


def as_numpy(array: Any) -> numpy.ndarray:
    """A numpy array of a numpy array or a torch CPU tensor; bfloat16 is widened."""
    if isinstance(array, numpy.ndarray):
        return array
    import torch

    array = array.detach()
    return (array if array.dtype != torch.bfloat16 else array.float()).numpy()


def put_numpy(array: Any, values: numpy.ndarray) -> None:
    """Writes values into a numpy array or a torch CPU tensor, a view of a wider one included."""
    if isinstance(array, numpy.ndarray):
        array[:] = values
        return
    import torch

    array.copy_(torch.from_numpy(values))
