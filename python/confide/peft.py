"""PEFT's adapters as arrays. The native part reads the files (crates/lora/src/peft).

What the two files say is taken only where it leads to the output that PEFT itself would give; everything else is
refused by name. DoRA needs the base model's weights and is left to `confide serve`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy

from .adapter_error import AdapterRefused
from .sites import PROJECTIONS, Site

if TYPE_CHECKING:
    from . import _native


@dataclass(frozen=True)
class LoraPair:
    """delta(x) = scale · b · (a · x): a float32 [rank, input], b float32 [output, rank]."""

    a: numpy.ndarray
    b: numpy.ndarray
    scale: float


def load_adapter(
    folder: str | Path, final_hidden: bool = False
) -> tuple[str, dict[Site, LoraPair]]:
    """Reads the adapter in a folder: its name, and a pair for each (layer, projection).

    With `final_hidden` it has the pair of q_proj in layer 0 alone, for the last hidden state: report 003's delta, no
    LoRA. Raises `AdapterRefused`.
    """
    try:
        # A worker without adapters does without it.
        from ._extension import native
    except ImportError as error:
        raise AdapterRefused(f"{folder}: {error}") from error
    read = native.read_peft_adapter(Path(folder), final_hidden)
    return read.name, {
        (pair.layer, PROJECTIONS[pair.projection]): _to_arrays(pair) for pair in read.pairs
    }


def _to_arrays(pair: _native.LoraPair) -> LoraPair:
    return LoraPair(
        numpy.frombuffer(pair.a, "<f4").reshape(pair.rank, pair.input),
        numpy.frombuffer(pair.b, "<f4").reshape(pair.output, pair.rank),
        pair.scale,
    )
