"""Keys of the answers' masks, as crates/lora/src/mask.rs derives them; the masks are cuda/mask_stream.cu's."""

from __future__ import annotations

import hashlib
import hmac
import struct

_ANSWER_DOMAIN = b"confide lora answer mask v1"


def answer_key(
    process_key: bytes,
    epoch: bytes,
    client: bytes,
    adapter: bytes,
    layer: int,
    source: int,
    nonce: bytes,
    batch: int,
) -> bytes:
    """Derives the key of one batch's answer masks: HMAC-SHA-256 of all that names it, under the process key."""
    named = _ANSWER_DOMAIN + epoch + client + adapter + struct.pack("<IB", layer, source) + nonce
    return hmac.new(process_key, named + struct.pack("<Q", batch), hashlib.sha256).digest()
