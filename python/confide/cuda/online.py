"""The online step of the masked scheme on a device: Python face of online.cu (crates/lora/src/masked.rs).

Arrays are torch tensors on "cuda:N"; on "cpu" numpy arrays or torch CPU tensors. `DevicePool` and `InputTable` are what
lives in device memory, so that a CUDA graph that recorded `run_fused` finds the batches of later tokens there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy

from . import arrays, runtime
from .arrays import Array

NOT_FINITE, TOO_COARSE, NO_MASK = 1, 2, 4
REFUSALS = {
    NOT_FINITE: "an entry is not finite",
    TOO_COARSE: "vector is too coarse: under the adapter's norm limit rounding adds more than 2^-10",
    NO_MASK: "no prepared mask is left",
}
THREADS, ROWS_AT_ONCE = 256, 8
INPUT_WORDS, PART_WORDS, PARTS_MAX, PARTS = 32, 6, 3, 8
POOL_HEAD, SLOT_WORDS = 4, 12
_NO_PART, _FACTOR_PART, _SCALE_PART = 0, 1, 2
# Address, width, stride and type of an output; nothing where there is none.
Place = tuple[int, int, int, str | None]
_TYPES = {"float32": "float", "bfloat16": "bf16"}
# Prepared launches that an `OnlineKernels` keeps: one for each input, kind of call and number of rows.
_LAUNCHES_MAX = 1024


@dataclass(frozen=True)
class PartOnDevice:
    """What follows from some rows of a product: B as float32 [rows, width], or a scale."""

    first: int
    rows: int
    width: int
    factor: Array | None = None
    scale: float = 0.0


class InputOnDevice:
    """One adapter at one input: its integers in rows that are filled up to whole 16 bytes, and its parts by place."""

    def __init__(
        self,
        device: str,
        matrix: numpy.ndarray | None,
        columns: int,
        bits: int,
        norm_limit: int,
        tokens: int,
        parts: dict[int, PartOnDevice],
    ) -> None:
        """`matrix`: int16 [rows, columns], None if this role has none; `parts` by their place among the outputs."""
        self.columns, self.bits, self.norm_limit = columns, bits, norm_limit
        self.tokens, self.parts = tokens, parts
        self.rows = sum(part.rows for part in parts.values()) if matrix is None else matrix.shape[0]
        self.stride = -(-columns // 8) * 8
        self.matrix = None
        if matrix is not None:
            padded = numpy.zeros((self.rows, self.stride), numpy.int16)
            padded[:, :columns] = matrix
            self.matrix = arrays.upload(padded, device)

    def words(self, pool: DevicePool | None) -> numpy.ndarray:
        """Gives its line of a table, uint64 [INPUT_WORDS]."""
        line = numpy.zeros(INPUT_WORDS, numpy.uint64)
        matrix = 0 if self.matrix is None else arrays.address(self.matrix)
        line[:PARTS] = (
            matrix,
            self.rows,
            self.columns,
            self.stride,
            self.bits,
            self.norm_limit,
            self.tokens,
            0 if pool is None else arrays.address(pool.state),
        )
        for place, part in self.parts.items():
            factor = 0 if part.factor is None else arrays.address(part.factor)
            kind = _SCALE_PART if part.factor is None else _FACTOR_PART
            scale = int(numpy.float64(part.scale).view(numpy.uint64))
            at = PARTS + place * PART_WORDS
            line[at : at + PART_WORDS] = (kind, part.first, part.rows, factor, scale, part.width)
        return line


class DevicePool:
    """The batches of one input that are ready, and the counter of the next token: all in device memory."""

    def __init__(self, device: str, tokens: int, slots: int = 2) -> None:
        self.device, self.tokens, self.slots = device, tokens, slots
        self.state = arrays.zeros(POOL_HEAD + slots * SLOT_WORDS, "int64", device)
        self._prepared: list[Array | None] = [None] * slots
        self.installed = 0
        self.write(1, numpy.array([slots], numpy.uint64))

    def install(
        self, batch: int, prepared: Array, mask_key: bytes, share_key: bytes = bytes(32)
    ) -> None:
        """Installs a batch: the key holder adds `prepared` (u)int64 [tokens, rows]. The slot's batch must be spent."""
        if batch != self.installed:
            raise ValueError(f"batch: wanted {self.installed}, got {batch}")
        slot = batch % self.slots
        at = POOL_HEAD + slot * SLOT_WORDS
        words = numpy.zeros(SLOT_WORDS - 1, numpy.uint64)
        words[0] = arrays.address(prepared)
        words[1:5] = numpy.frombuffer(mask_key, "<u8")
        words[5:9] = numpy.frombuffer(share_key, "<u8")
        # First nobody's, then filled, then named: a kernel that runs meanwhile sees a whole slot or none.
        self.write(at, numpy.zeros(1, numpy.uint64))
        self.write(at + 1, words)
        self.write(at, numpy.array([batch + 1], numpy.uint64))
        words.fill(0)
        self._prepared[slot] = prepared
        self.installed += 1

    def next_counter(self) -> int:
        """Gives the next counter; waits for the device."""
        return int(arrays.as_words(self.state[:1])[0])

    def write(self, at: int, words: numpy.ndarray) -> None:
        """Copies words into the state, in the order of the current stream."""
        if self.device == "cpu":
            self.state[at : at + len(words)] = words.view(numpy.int64)
        else:
            import torch

            # Straight from the host, without a second copy that would keep the keys.
            arrays.copy(self.state[at : at + len(words)], torch.from_numpy(words.view(numpy.int64)))

    def wipe(self) -> None:
        """Zeroes keys and prepared words: nothing can be masked any more."""
        self.write(POOL_HEAD, numpy.zeros(self.slots * SLOT_WORDS, numpy.uint64))
        for prepared in self._prepared:
            if prepared is not None:
                arrays.wipe(prepared)


class HostBuffer:
    """Memory of the host that the device reads and writes in place: pinned where there is a device."""

    def __init__(self, device: str, shape: int | Sequence[int], dtype: str) -> None:
        if device == "cpu":
            self.array = numpy.zeros(shape, dtype)
            self.address = arrays.address(self.array)
        else:
            import torch

            self._held = torch.zeros(shape, dtype=getattr(torch, dtype), pin_memory=True)
            self.array, self.address = self._held.numpy(), self._held.data_ptr()

    def to_tensor(self) -> Any:
        """Gives the same memory as a torch tensor of the host."""
        import torch

        return torch.from_numpy(self.array)


class StatusWords(HostBuffer):
    """A word for each row: 0 is not a refusal. Only a refusal is ever written, so it costs a step nothing."""

    def __init__(self, device: str, rows: int) -> None:
        super().__init__(device, rows, "int32")

    def take_refusals(self) -> int:
        """Takes the refusals since the last call, as one word. To be called after the stream was waited for."""
        found = int(numpy.bitwise_or.reduce(self.array))
        if found:
            self.array.fill(0)
        return found


def refusal_text(status: int) -> str:
    """Describes a status word."""
    return "; ".join(text for bit, text in REFUSALS.items() if status & bit)


class InputTable:
    """What the adapters are at one input, in device memory: a line for each."""

    def __init__(self, device: str, adapters: int) -> None:
        self.device, self.words = device, arrays.zeros((adapters, INPUT_WORDS), "int64", device)
        self._kept: list[Any] = [None] * adapters
        self.rows_max = 0

    def put(self, index: int, line: InputOnDevice | None, pool: DevicePool | None = None) -> None:
        """Sets a line; None: this adapter has nothing at this input."""
        words = numpy.zeros(INPUT_WORDS, numpy.uint64) if line is None else line.words(pool)
        if self.device == "cpu":
            self.words[index] = words.view(numpy.int64)
        else:
            arrays.copy(self.words[index], arrays.upload(words, self.device))
        self._kept[index] = (line, pool)
        self.rows_max = max((kept[0].rows for kept in self._kept if kept and kept[0]), default=0)


class OnlineKernels:
    """The launches. Buffers are kept between calls, so that graphs find them where they were."""

    def __init__(self, device: str, vectors_max: int, rows_max: int) -> None:
        self.device, self.vectors_max, self.rows_max = device, vectors_max, rows_max
        self.real = arrays.zeros((vectors_max, rows_max), "float32", device)
        self.used = arrays.zeros(vectors_max, "int32", device)
        self._launches: dict[tuple[Any, ...], runtime.Launch] = {}

    def run_fused(
        self,
        table: InputTable,
        adapter_of: Array,
        offset_of: Array,
        rows: Array,
        outputs: Sequence[Array | None],
        status: StatusWords,
        order: runtime.LaunchOrder | None = None,
    ) -> None:
        """Runs rows [T, width] through both roles in two launches and adds to `outputs` [T, width of each].

        adapter_of int32 [T] (-1: none) and offset_of int32 [T] are on the device; counters move on there. order: that
        of the step at whose point this is launched.
        """
        self._check(rows.shape[0], table.rows_max)
        launch_fused(
            self.device,
            table.words,
            table.rows_max,
            adapter_of,
            offset_of,
            rows,
            outputs,
            status.address,
            self.real,
            self.used,
            order,
        )

    def mask(
        self,
        tokens: Array,
        rows: Array,
        line: InputOnDevice,
        masked: Array,
        packed: HostBuffer | None,
        scales: Array,
        status: HostBuffer,
    ) -> None:
        """Masks `rows` for the key holder by tokens int64 [T, 5] (mask key, token) into masked int64 [T, columns].

        packed: a buffer of uint8 [T, bytes] or None; status: one of int32 [T]. Both are read after the stream ended.
        """
        there, packed_stride = (0, 0) if packed is None else (packed.address, packed.array.shape[1])
        limits = (line.columns, line.bits, line.norm_limit)
        places = (_place_key(rows), _place_key(masked), there, _place_key(scales), status.address)

        def prepare() -> runtime.Launch:
            vectors, x, stride, kind = _vector_arguments(rows)
            left = (masked, there, packed_stride, scales, status.address)
            return self._kernel("mask_vectors", kind).prepare(
                vectors, THREADS, tokens, x, stride, *limits, *left
            )

        launch = self._prepare(("mask", limits, packed_stride, places), prepare)
        launch.replace(0, tokens)
        launch()

    def answer(
        self, table: InputTable, jobs: Array, words: Array, packed: Array, answers: Array
    ) -> None:
        """Answers for the host: jobs int64 [T, 6] (line of the table, share key, token); answers int64 [T, stride]."""
        stride = (packed if words is None else words).shape[1]
        module = runtime.Module("online.cu", self.device, {"INPUT": "float", "OUTPUT": "float"})
        tiles = -(-table.rows_max // ROWS_AT_ONCE)
        given = (table.words, jobs, words, packed, stride)
        grid = (tiles, jobs.shape[0])
        module.kernel("answer_vectors")(grid, THREADS, *given, answers, answers.shape[1])

    def unmask(
        self,
        prepared: Array,
        words: Array,
        packed: HostBuffer | None,
        line: InputOnDevice,
        scales: Array,
        first: int = 0,
    ) -> None:
        """Unmasks for the key holder: prepared int64 [T] addresses of as many words as the line has rows, wiped here.
        What it makes is for `add`, from vector `first` on.

        Answers are `words` int64 [T, rows] on the device, or `packed` uint8 [T, bytes] in a buffer of the host.
        """
        count = prepared.shape[0]
        self._check(first + count, line.rows)
        there, stride = (
            (0, words.shape[1]) if packed is None else (packed.address, packed.array.shape[1])
        )
        places = (None if words is None else _place_key(words), there, _place_key(scales))

        def prepare() -> runtime.Launch:
            given = (prepared, words, there, stride, line.rows, line.bits, scales)
            left = (self.real[first:], self.rows_max, self.used[first:])
            return self._kernel("unmask_products", "float").prepare(count, 128, *given, *left)

        sizes = (count, first, stride, line.rows, line.bits)
        launch = self._prepare(("unmask", sizes, places), prepare)
        launch.replace(0, prepared)
        launch()

    def add(self, table: InputTable, adapter_of: Array, outputs: Sequence[Array | None]) -> None:
        """Adds B times what `unmask` left to `outputs`."""

        def prepare() -> runtime.Launch:
            vectors = next(output.shape[0] for output in outputs if output is not None)
            places = _output_arguments(outputs, vectors)
            kernel = self._kernel("add_outputs", next(place[3] for place in places if place[3]))
            sums = (adapter_of, self.real, self.used)
            return _prepare_add(kernel, table.words, *sums, vectors, places, advance=False)

        keys = (None if output is None else _place_key(output) for output in outputs)
        self._prepare(("add", _place_key(table.words), _place_key(adapter_of), *keys), prepare)()

    def _kernel(self, name: str, kind: str | None) -> runtime.Kernel:
        defines = {"INPUT": kind or "float", "OUTPUT": kind or "float"}
        return runtime.Module("online.cu", self.device, defines).kernel(name)

    def _prepare(
        self, key: tuple[Any, ...], prepare: Callable[[], runtime.Launch]
    ) -> runtime.Launch:
        """Gives the launch prepared under this key, which names the places and sizes of all arguments but one."""
        launch = self._launches.get(key)
        if launch is None:
            if len(self._launches) >= _LAUNCHES_MAX:
                self._launches.clear()
            launch = self._launches[key] = prepare()
        return launch

    def _check(self, vectors: int, rows: int) -> None:
        if vectors > self.vectors_max or rows > self.rows_max:
            raise ValueError(
                f"online step: wanted at most {self.vectors_max} vectors of {self.rows_max} products, "
                f"got {vectors} of {rows}"
            )


def launch_fused(
    device: str,
    table: Array,
    rows_max: int,
    adapter_of: Array,
    offset_of: Array,
    rows: Array,
    outputs: Sequence[Array | None],
    status_address: int,
    real: Array,
    used: Array,
    order: runtime.LaunchOrder | None = None,
) -> None:
    """Launches `OnlineKernels.run_fused` with a table's words.

    Buffers: real float32 [>= T, >= rows_max], used int32 [>= T].
    """
    vectors, x, stride, kind = _vector_arguments(rows)
    places = _output_arguments(outputs, vectors)
    output_kind = next((place[3] for place in places if place[3]), kind)
    if any(place[3] not in (None, output_kind) for place in places):
        raise TypeError("outputs: wanted one dtype, got several")
    module = runtime.Module("online.cu", device, {"INPUT": kind, "OUTPUT": output_kind})
    grid = (-(-rows_max // ROWS_AT_ONCE), vectors)
    order = order or runtime.LaunchOrder(False)
    module.kernel("masked_products")(
        grid, THREADS, table, adapter_of, offset_of, x, stride, real, real.shape[1], used, status_address,
        overlap=order.next(),
    )  # fmt: skip
    kernel = module.kernel("add_outputs")
    _prepare_add(
        kernel, table, adapter_of, real, used, vectors, places, advance=True, overlap=order.next()
    )()


def _prepare_add(
    kernel: runtime.Kernel,
    table: Array,
    adapter_of: Array,
    real: Array,
    used: Array,
    vectors: int,
    places: list[Place],
    advance: bool,
    overlap: bool = False,
) -> runtime.Launch:
    width = sum(place[1] for place in places)
    flat = [value for place in places for value in place[:3]]
    grid = (-(-width // THREADS), vectors)
    return kernel.prepare(
        grid, THREADS, table, adapter_of, real, real.shape[1], used, *flat, int(advance), overlap=overlap
    )  # fmt: skip


def _place_key(array: Array) -> tuple[Any, ...]:
    """Gives where an array lies and how: two live arrays with the same key are one to a kernel."""
    if isinstance(array, numpy.ndarray):
        where = array.__array_interface__["data"][0]
        return where, array.shape, array.strides, array.dtype.char
    return array.data_ptr(), array.shape, array.stride(), array.dtype


def _vector_arguments(rows: Array) -> tuple[int, int, int, str]:
    """Gives the vectors, address, stride in elements, and the type's name in the kernels."""
    dtype = str(rows.dtype).removeprefix("torch.")
    if dtype not in _TYPES or len(rows.shape) != 2:
        raise TypeError(
            f"activations: wanted [T, width] of float32 or bfloat16, got {tuple(rows.shape)} of {dtype}"
        )
    if isinstance(rows, numpy.ndarray):
        step, stride = rows.strides[1] // rows.itemsize, rows.strides[0] // rows.itemsize
    else:
        stride, step = rows.stride()
    if step != 1 and rows.shape[1] > 1:
        raise TypeError("activations: wanted rows with contiguous elements")
    return int(rows.shape[0]), arrays.address(rows), int(stride), _TYPES[dtype]


def _output_arguments(outputs: Sequence[Array | None], vectors: int) -> list[Place]:
    """Gives each output [vectors, width] as the kernel takes it, filled up with empty ones to PARTS_MAX."""
    places: list[Place] = []
    for output in outputs:
        if output is None:
            places.append((0, 0, 0, None))
            continue
        count, where, stride, kind = _vector_arguments(output)
        if count != vectors:
            raise ValueError(f"outputs: wanted {vectors} rows, got {count}")
        places.append((where, int(output.shape[1]), stride, kind))
    return places + [(0, 0, 0, None)] * (PARTS_MAX - len(outputs))
