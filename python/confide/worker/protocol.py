"""Frames between `confide serve` and the worker, version 1 (docs/worker.md)."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

PROTOCOL = 1

HELLO, GENERATE, CANCEL, LOAD_ADAPTER, UNLOAD_ADAPTER, DELTAS, STATUS = range(0x01, 0x08)
WELCOME, TOKENS, ENDED, NEED, ADAPTER, STATUS_TOLD, REFUSED = range(0x81, 0x88)

FRAME_BYTES_MAX = 16 << 20
# Payloads of what `confide serve` sends.
PAYLOAD_MAX = {
    HELLO: 64 << 10, GENERATE: FRAME_BYTES_MAX - 1, CANCEL: 4, LOAD_ADAPTER: 1 << 20, UNLOAD_ADAPTER: 64 << 10,
    DELTAS: FRAME_BYTES_MAX - 1, STATUS: 0,
}  # fmt: skip
ASKED = frozenset(PAYLOAD_MAX)
# A payload is read in pieces, so that memory grows with what comes.
PIECE_BYTES = 1 << 16
TEXT_MAX = 4000


class MalformedFrame(Exception):
    """The other end does not speak the protocol; the connection ends."""


class ConnectionClosed(Exception):
    """The other end closed the connection."""


def read_frame(stream: socket.socket) -> tuple[int, bytes]:
    """Reads the next frame: kind and payload. Raises `MalformedFrame` before a payload that is too long is read,
    `ConnectionClosed` at the end of the stream, and OSError.
    """
    (length,) = struct.unpack("<I", read_exactly(stream, 4, may_end=True))
    if length == 0:
        raise MalformedFrame("frame: wanted a length of at least 1, got 0")
    kind = read_exactly(stream, 1)[0]
    most = PAYLOAD_MAX.get(kind)
    if most is None:
        raise MalformedFrame(f"frame: kind {kind:#04x} is not known")
    if length - 1 > most:
        raise MalformedFrame(f"frame {kind:#04x}: wanted at most {most} bytes, got {length - 1}")
    return kind, read_exactly(stream, length - 1)


def read_exactly(stream: socket.socket, count: int, may_end: bool = False) -> bytes:
    """Reads `count` bytes. Raises `ConnectionClosed` where the stream `may_end` and does so before them, otherwise
    `MalformedFrame`.
    """
    pieces: list[bytes] = []
    left = count
    while left:
        piece = stream.recv(min(left, PIECE_BYTES))
        if not piece:
            raise (
                ConnectionClosed("closed")
                if may_end and left == count
                else MalformedFrame("frame: the stream ends within it")
            )
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def parse_object(payload: bytes) -> dict[str, Any]:
    """Reads the object in a payload. Raises `MalformedFrame`."""
    try:
        found = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise MalformedFrame(f"frame: not JSON: {error}") from error
    if not isinstance(found, dict):
        raise MalformedFrame("frame: wanted an object")
    return found


def encode_frame(kind: int, payload: bytes) -> bytes:
    """Encodes a whole frame."""
    return struct.pack("<IB", 1 + len(payload), kind) + payload


def encode_json_frame(kind: int, content: dict[str, Any]) -> bytes:
    """Encodes a frame with an object."""
    return encode_frame(
        kind, json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
    )


def encode_tokens_frame(told: list[tuple[int, int]]) -> bytes:
    """Encodes the tokens of one step."""
    flat = [number for pair in told for number in pair]
    return encode_frame(TOKENS, struct.pack(f"<H{len(flat)}I", len(told), *flat))


def shorten(text: str) -> str:
    """Cuts a message to what a frame takes."""
    return text if len(text) <= TEXT_MAX else text[:TEXT_MAX] + " …"
