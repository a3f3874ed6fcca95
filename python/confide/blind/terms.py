"""The projections that read one vector, as one matrix of integers, and what a key holder is told of them.

As crates/lora/src/terms.rs and protocol/message/terms.rs: same integers, same bytes.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy

from ..cuda import arrays, online
from ..cuda.parameters import ParameterSet
from ..peft import LoraPair
from ..sites import PROJECTIONS, Site, Width, source_of
from .errors import AdapterRefused
from .messages import Fields
from .quantise import VECTOR_BITS_MAX, norm_limit, quantise_rows, quantise_with_one_scale

WIDTH_MAX = 1 << 16
RANK_MAX = 1024
PARTS_MAX = 8
NORM_LIMIT_WIRE_MAX = 1 << 62
NOISE_SIGMA_MAX = float(1 << 30)


@dataclass(frozen=True)
class ProjectionPart:
    """One projection: its rows in the product, and what follows from them: a factor or a scale, never both."""

    projection: str
    rows: int
    factor: numpy.ndarray | None = None
    """float32 [outputs, rows]: B with all scales in it."""
    scale: float = 0.0

    @property
    def outputs(self) -> int:
        """The width of the projection's output."""
        return self.rows if self.factor is None else self.factor.shape[0]


@dataclass(frozen=True)
class InputTerms:
    """What a key holder must know of one input. `bits` is k, `norm_limit` bounds the integers' norm."""

    layer: int
    source: int
    columns: int
    bits: int
    norm_limit: int
    noise_sigma: float
    outputs_max: int
    parts: tuple[ProjectionPart, ...]

    @property
    def rows(self) -> int:
        """Rows of all parts: the length of a product."""
        return sum(part.rows for part in self.parts)

    @property
    def is_merged(self) -> bool:
        """Whether the products are the deltas themselves, so that B stays too."""
        return all(part.factor is None for part in self.parts)

    def encode(self) -> bytes:
        """Encodes the terms."""
        out = [
            struct.pack(
                "<IBIBQdIB",
                self.layer,
                self.source,
                self.columns,
                self.bits,
                self.norm_limit,
                self.noise_sigma,
                self.outputs_max,
                len(self.parts),
            )
        ]
        for part in self.parts:
            out.append(struct.pack("<BI", PROJECTIONS.index(part.projection), part.rows))
            if part.factor is None:
                out.append(struct.pack("<Bd", 0, part.scale))
            else:
                out.append(
                    struct.pack("<BI", 1, part.outputs) + part.factor.astype("<f4").tobytes()
                )
        return b"".join(out)

    def to_device(
        self,
        device: str,
        matrix: numpy.ndarray | None = None,
        tokens: int = 1,
        places: Sequence[str] = (),
    ) -> online.InputOnDevice:
        """The input as the kernels read it: with `matrix` int16 [rows, columns] where the role has one, and with its
        parts, by the place of their projection in `places`, where the role adds them.
        """
        parts, first = {}, 0
        for part in self.parts if places else ():
            factor = None
            if part.factor is not None:
                factor = arrays.upload(numpy.ascontiguousarray(part.factor.T), device)
            parts[places.index(part.projection)] = online.PartOnDevice(
                first, part.rows, part.outputs, factor, part.scale
            )
            first += part.rows
        return online.InputOnDevice(
            device, matrix, self.columns, self.bits, self.norm_limit, tokens, parts
        )

    @staticmethod
    def decode(payload: bytes) -> InputTerms:
        """Reads the terms. Raises `FieldError`."""
        fields = Fields("terms", payload)
        layer, source = fields.read_integer("layer", "I"), fields.read_integer("input", "B")
        if source > 4:
            raise fields.field_error("input", "a known code")
        columns, bits = (
            _decode_dimension(fields, "width", WIDTH_MAX),
            fields.read_integer("bits", "B"),
        )
        if not 2 <= bits <= VECTOR_BITS_MAX:
            raise fields.field_error("bits", f"2 to {VECTOR_BITS_MAX}")
        limit = fields.read_integer("norm limit", "Q")
        if not 1 <= limit <= NORM_LIMIT_WIRE_MAX:
            raise fields.field_error("norm limit", "1 to 2^62")
        sigma, outputs_max = (
            fields.read_magnitude("noise sigma"),
            fields.read_integer("rows of a tile", "I"),
        )
        count = fields.read_integer("parts", "B")
        if not 1 <= count <= PARTS_MAX:
            raise fields.field_error("parts", "1 to 8")
        parts: list[ProjectionPart] = []
        for _ in range(count):
            part = _decode_part(fields)
            if source_of(part.projection) != source:
                raise fields.field_error("projection", "one that reads the input")
            if any(other.projection == part.projection for other in parts):
                raise fields.field_error("projection", "each once")
            parts.append(part)
        fields.expect_end()
        return InputTerms(layer, source, columns, bits, limit, sigma, outputs_max, tuple(parts))


def adapter_sites(inputs: Iterable[InputTerms]) -> dict[Site, Width]:
    """Every projection that an adapter with these inputs changes, with its widths."""
    return {
        (terms.layer, part.projection): (terms.columns, part.outputs)
        for terms in inputs
        for part in terms.parts
    }


@dataclass(frozen=True)
class HostWeights:
    """What the host computes with, int16 [rows, columns], and the terms on which."""

    matrix: numpy.ndarray
    terms: InputTerms


def quantise_pairs(
    layer: int,
    pairs: list[tuple[str, LoraPair]],
    protect: str,
    parameters: ParameterSet,
    noise_sigma: float = 0.0,
) -> HostWeights:
    """Stacks and rounds the projections that read one vector."""
    if not 1 <= len(pairs) <= PARTS_MAX:
        raise AdapterRefused(f"an input: wanted 1 to {PARTS_MAX} projections, got {len(pairs)}")
    if not 0.0 <= noise_sigma <= NOISE_SIGMA_MAX:
        raise AdapterRefused(
            f"noise on answers: wanted a standard deviation from 0 to 2^30, got {noise_sigma}"
        )
    source, columns = source_of(pairs[0][0]), pairs[0][1].a.shape[1]
    matrices, parts = [], []
    for projection, pair in pairs:
        _check_pair(projection, pair, source, columns)
        if protect == "a":
            matrix, scales = quantise_rows(pair.a, parameters.row_l1_max)
            factor = ((pair.b.astype(numpy.float64) * pair.scale) * scales[None, :]).astype(
                numpy.float32
            )
            parts.append(ProjectionPart(projection, matrix.shape[0], factor=factor))
        else:
            matrix, scale = quantise_with_one_scale(multiply_pair(pair), parameters.row_l1_max)
            parts.append(ProjectionPart(projection, matrix.shape[0], scale=scale))
        matrices.append(matrix)
    matrix = numpy.ascontiguousarray(numpy.concatenate(matrices))
    bits = min(parameters.plaintext_bits, VECTOR_BITS_MAX)
    limit = norm_limit(matrix, bits, noise_headroom(noise_sigma))
    terms = InputTerms(
        layer,
        source,
        columns,
        bits,
        limit,
        noise_sigma,
        outputs_max(matrix, parameters),
        tuple(parts),
    )
    return HostWeights(matrix, terms)


def multiply_pair(pair: LoraPair) -> numpy.ndarray:
    """Returns scale · b · a in float64, summed rank after rank."""
    total = numpy.zeros((pair.b.shape[0], pair.a.shape[1]))
    for rank in range(pair.a.shape[0]):
        total += (pair.b[:, rank].astype(numpy.float64) * pair.scale)[:, None] * pair.a[
            rank
        ].astype(numpy.float64)
    return total


def outputs_max(matrix: numpy.ndarray, parameters: ParameterSet) -> int:
    """Most rows that can stand together anywhere while their magnitudes keep to the set's bound."""
    sums = numpy.abs(matrix.astype(numpy.int64)).sum(axis=1)
    before = numpy.concatenate(([0], numpy.cumsum(sums)))
    best = 0
    for count in range(1, len(sums) + 1):
        if int((before[count:] - before[:-count]).max()) > parameters.row_l1_max:
            break
        best = count
    return best


def noise_headroom(sigma: float) -> int:
    """What noise may add to an answer: it is cut at eight standard deviations and half a unit."""
    return 0 if sigma == 0.0 else math.ceil(8.0 * sigma) + 1


def _check_pair(projection: str, pair: LoraPair, source: int, columns: int) -> None:
    rank, width, outputs = pair.a.shape[0], pair.a.shape[1], pair.b.shape[0]
    reasons = (
        (source_of(projection) != source, "it reads another vector"),
        (width != columns or rank != pair.b.shape[1], "widths do not fit together"),
        (
            width > WIDTH_MAX or outputs > WIDTH_MAX or rank > RANK_MAX,
            "it is wider than the limits",
        ),
        (0 in (width, outputs, rank), "it is empty"),
    )
    for wrong, reason in reasons:
        if wrong:
            raise AdapterRefused(f"{projection} does not belong to this input: {reason}")


def _decode_part(fields: Fields) -> ProjectionPart:
    number, rows = fields.read_integer("projection", "B"), 0
    if number >= len(PROJECTIONS):
        raise fields.field_error("projection", "a known code")
    rows, effect = _decode_dimension(fields, "rows", WIDTH_MAX), fields.read_integer("effect", "B")
    if effect == 0:
        return ProjectionPart(PROJECTIONS[number], rows, scale=fields.read_magnitude("scale"))
    if effect != 1 or rows > RANK_MAX:
        raise fields.field_error("effect", "0, or 1 with at most 1024 rows")
    outputs = _decode_dimension(fields, "outputs", WIDTH_MAX)
    factor = numpy.frombuffer(fields.read_bytes("factor", outputs * rows * 4), "<f4").reshape(
        outputs, rows
    )
    if not numpy.isfinite(factor).all():
        raise fields.field_error("factor", "finite numbers")
    return ProjectionPart(PROJECTIONS[number], rows, factor=factor.astype(numpy.float32))


def _decode_dimension(fields: Fields, field: str, limit: int) -> int:
    side = fields.read_integer(field, "I")
    if not 1 <= side <= limit:
        raise fields.field_error(field, "1 to its limit")
    return side
