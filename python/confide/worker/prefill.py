"""A chunk of a prompt: the part of a prefill that runs between two decode steps of others."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .cache import Cache
from .config import ModelConfig
from .deltas import Point
from .faults import OutOfMemory, is_fatal, is_out_of_memory, to_adapter_error
from .generation import Generation
from .model import Model, PrefillSpan, run_pass
from .rows import Rows

CHUNK_TOKENS = 512


@dataclass
class Limits:
    """Bounds of a scheduler. `prefill_bytes` bounds the activations of one chunk, 0 for no bound."""

    queue: int = 64
    chunk: int = CHUNK_TOKENS
    prefill_bytes: int = 0


def read_chunk(
    generation: Generation, model: Model, cache: Cache, rows: Rows, limits: Limits
) -> Tensor:
    """Runs the next chunk of a generation's prompt; gives the logits of its last row [1, vocabulary]."""
    start = generation.prefilled
    part = generation.request.ids[start : start + limits.chunk]
    refuse_too_large(
        model.config, model.dtype.itemsize, len(part), start + len(part), limits.prefill_bytes
    )
    generation.call_hook("before_step", len(part))
    span = PrefillSpan(generation.slot, start, len(part))
    run = model.prefill(rows.to_device(torch.tensor(part)), span, cache, generation.points)

    def add(point: Point) -> None:
        try:
            if generation.deltas is None:
                raise RuntimeError("a pass stopped at a point, and no adapter adds there")
            generation.deltas.add(point.layer, point.source, point.rows, point.outputs)
        except Exception as error:
            if is_out_of_memory(error) or is_fatal(error):
                raise
            raise to_adapter_error(error) from error

    logits = run_pass(run, add)
    generation.prefilled += len(part)
    return logits


def refuse_too_large(
    config: ModelConfig, element_bytes: int, rows: int, length: int, most: int
) -> None:
    """Refuses a chunk whose activations would take more than the worker was given for them."""
    wide = config.query_width + 2 * config.key_width + 3 * config.ffn + 4 * config.hidden
    need = rows * (wide + config.heads * length) * element_bytes
    if most and need > most:
        raise OutOfMemory(
            f"prefill: wanted {need} bytes for {rows} rows at {length} tokens, got {most}"
        )
