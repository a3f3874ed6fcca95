"""The projections that read one vector, as one matrix of integers, and their terms for a key holder. Integers and bytes
come from the native part, and are arrays here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy

from .._extension import native
from ..cuda import arrays, online
from ..cuda.parameters import ParameterSet
from ..peft import LoraPair
from ..sites import PROJECTIONS, Site, Width

# What stays at the host: A, or A and B.
PROTECTS = tuple(native.protect_names())


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
    """The terms of one input for a key holder. `bits` is k, `norm_limit` bounds the integers' norm."""

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
        """Reads the terms in a message of the host. Raises `FieldError`."""
        return _to_arrays(native.decode_terms(payload))


def adapter_sites(inputs: Iterable[InputTerms]) -> dict[Site, Width]:
    """Every projection that an adapter with these inputs changes, with its widths."""
    return {
        (terms.layer, part.projection): (terms.columns, part.outputs)
        for terms in inputs
        for part in terms.parts
    }


@dataclass(frozen=True)
class HostWeights:
    """The weights of one input at the host: the matrix, int16 [rows, columns], its terms and their encoding, and the
    digest for which answers are counted. All weights with the same A share one count (docs/blind-protocol.md).
    """

    matrix: numpy.ndarray
    terms: InputTerms
    terms_bytes: bytes
    weights_digest: bytes


def quantise_pairs(
    layer: int,
    pairs: list[tuple[str, LoraPair]],
    protect: str,
    parameters: ParameterSet,
    noise_sigma: float = 0.0,
) -> HostWeights:
    """Stacks and rounds the projections that read one vector. Raises `AdapterRefused`."""
    given = [
        (
            PROJECTIONS.index(projection),
            numpy.asarray(pair.a, numpy.float32),
            numpy.asarray(pair.b, numpy.float32),
            pair.scale,
        )
        for projection, pair in pairs
    ]
    made = native.quantise_weights(layer, given, protect, parameters.name, noise_sigma)
    terms = _to_arrays(made.terms)
    matrix = numpy.frombuffer(made.matrix, "<i2").reshape(terms.rows, terms.columns)
    return HostWeights(matrix, terms, made.terms_bytes, made.weights_digest)


def _to_arrays(terms: native.InputTerms) -> InputTerms:
    parts = tuple(
        ProjectionPart(
            PROJECTIONS[part.projection],
            part.rows,
            None
            if part.factor is None
            else numpy.frombuffer(part.factor, "<f4").reshape(part.outputs, part.rows),
            part.scale,
        )
        for part in terms.parts
    )
    return InputTerms(
        terms.layer,
        terms.source,
        terms.columns,
        terms.bits,
        terms.norm_limit,
        terms.noise_sigma,
        terms.outputs_max,
        parts,
    )
