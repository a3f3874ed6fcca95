"""Projections and the vectors that they read, by name and number: docs/blind-protocol.md, docs/worker.md."""

from __future__ import annotations

# The number of each on the wire is its place (docs/blind-protocol.md, "terms"); crates/lora/src/site.rs.
SOURCES = ("attention", "attention_output", "feed_forward", "feed_forward_inner", "final_hidden")
PROJECTIONS = ("q", "k", "v", "o", "gate", "up", "down", "final_hidden")
MODEL_PROJECTIONS = PROJECTIONS[:7]
READERS = (("q", "k", "v"), ("o",), ("gate", "up"), ("down",), ("final_hidden",))

# Layer and projection; final_hidden stands in layer 0.
Site = tuple[int, str]
# Inputs and outputs of a projection.
Width = tuple[int, int]


def source_of(projection: str) -> int:
    """The number of the input that a projection reads."""
    return next(number for number, readers in enumerate(READERS) if projection in readers)


def source_number(name: str) -> int:
    """The number of an input by its name."""
    if name not in SOURCES:
        raise ValueError(f"input: wanted one of {', '.join(SOURCES)}, got {name!r}")
    return SOURCES.index(name)


def module_path(layer: int, projection: str) -> str:
    """The path of a projection within a decoder's layers: `3.self_attn.q_proj`."""
    part = "self_attn" if projection in ("q", "k", "v", "o") else "mlp"
    return f"{layer}.{part}.{projection}_proj"
