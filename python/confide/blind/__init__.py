"""Both roles of the blind protocol (docs/blind-protocol.md) in Python: key holder and adapter host of private LoRA.

The integers, bytes and refusals are those of crates/lora; vectors/lora binds the two. `open_adapter` is what the worker
asks for adapters of the kinds `one-graph`, `ipc` and `blind`.
"""

from __future__ import annotations

from typing import Any


def open_adapter(kind: str, spec: dict[str, Any], context: Any) -> Any:
    """Opens an adapter of `confide.worker.deltas`, of a kind and spec that docs/worker.md has. May take as long as
    preparing the first batch of masks.
    """
    from .adapter import make_adapter

    return make_adapter(kind, spec, context)
