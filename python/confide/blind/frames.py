"""Frames of the blind protocol (docs/blind-protocol.md): length, kind, request id, payload; one write each.

Every length has a limit that is checked before the payload is read, every wait a deadline.
"""

from __future__ import annotations

import contextlib
import enum
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass

from .errors import DeadlineExceeded, ProtocolError, StreamEnded

VERSION = 1
MAGIC = b"CFDBLIND"
HEADER = struct.Struct("<IBI")
COUNTED_BYTES = 5

# Waits of docs/blind-protocol.md, in seconds.
HELLO_DEADLINE_S = 10.0
FRAME_DEADLINE_S = 30.0
IDLE_DEADLINE_S = 600.0
BLOCK_DEADLINE_S = 30.0
WRITE_DEADLINE_S = 30.0
ANSWER_DEADLINE_S = 30.0
STEP_DEADLINE_S = 120.0
CONNECT_DEADLINE_S = 20.0
IDLE_SLICE_S = 0.0005
FAREWELL_DEADLINE_S = 1.0

_READ_BYTES = 64 * 1024


class FrameKind(enum.IntEnum):
    """The kind of a frame: the key holder's are below 0x80, the host's from there on."""

    HELLO = 0x01
    ATTACH = 0x02
    PREPARE = 0x03
    BLOCK = 0x04
    APPLY = 0x05
    DIRECT = 0x06
    GOODBYE = 0x07
    WELCOME = 0x81
    TERMS = 0x82
    ATTACHED = 0x83
    CREDIT = 0x84
    PREPARED = 0x85
    PRODUCTS = 0x86
    DIRECT_ANSWER = 0x87
    FAREWELL = 0x88
    ERROR = 0xFF


PAYLOAD_MAX = {
    FrameKind.HELLO: 512 << 10,
    FrameKind.ATTACH: 128,
    FrameKind.PREPARE: 256,
    FrameKind.BLOCK: 8 << 20,
    FrameKind.APPLY: 4 << 20,
    FrameKind.DIRECT: 8 << 20,
    FrameKind.GOODBYE: 1,
    FrameKind.WELCOME: 128,
    FrameKind.TERMS: 64 << 20,
    FrameKind.ATTACHED: 128,
    FrameKind.CREDIT: 16,
    FrameKind.PREPARED: (1 << 20) + 64,
    FrameKind.PRODUCTS: 16 << 20,
    FrameKind.DIRECT_ANSWER: 64 << 20,
    FrameKind.FAREWELL: 0,
    FrameKind.ERROR: 9,
}


class Side(enum.Enum):
    """The side that receives a frame."""

    HOST = "host"
    HOLDER = "holder"

    def receives(self, kind: FrameKind) -> bool:
        """Whether frames of this kind come to this side."""
        return (kind < 0x80) == (self is Side.HOST)


@dataclass(frozen=True)
class Frame:
    """A whole frame: its kind, the request's id and the payload."""

    kind: FrameKind
    id: int
    payload: bytes


def encode(kind: FrameKind, request: int, payload: bytes | bytearray = b"") -> bytes:
    """Encodes a frame; a payload beyond its kind's limit is a mistake of this end."""
    if len(payload) > PAYLOAD_MAX[kind]:
        raise ProtocolError(
            f"{kind.name.lower()} frame: wanted at most {PAYLOAD_MAX[kind]} bytes of payload, got {len(payload)}"
        )
    return HEADER.pack(len(payload) + COUNTED_BYTES, kind, request) + payload


def parse_header(header: bytes, side: Side) -> tuple[FrameKind, int, int]:
    """Reads the kind, the request id and the payload's length of a header that `side` received."""
    counted, number, request = HEADER.unpack(header)
    if counted < COUNTED_BYTES:
        raise ProtocolError(f"frame length: wanted at least {COUNTED_BYTES}, got {counted}")
    if number not in FrameKind._value2member_map_ or not side.receives(FrameKind(number)):
        raise ProtocolError(f"frame kind: wanted one for this side, got {number:#04x}")
    kind, count = FrameKind(number), counted - COUNTED_BYTES
    if count > PAYLOAD_MAX[kind]:
        raise ProtocolError(
            f"{kind.name.lower()} frame: wanted at most {PAYLOAD_MAX[kind]} bytes of payload, got {count}"
        )
    return kind, request, count


class FrameStream:
    """Frames over a connected socket: blocking, with a deadline at each step. Reads are one thread's."""

    def __init__(self, stream: socket.socket, side: Side) -> None:
        # Timeouts belong to a socket object: one for each direction, so that neither thread sets the other's.
        self.socket, self._out, self.side = stream, stream.dup(), side
        self.bytes_sent = self.bytes_received = 0
        self._held = bytearray()
        if stream.family in (socket.AF_INET, socket.AF_INET6):
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(
        self,
        kind: FrameKind,
        request: int,
        payload: bytes | bytearray = b"",
        seconds: float = WRITE_DEADLINE_S,
    ) -> None:
        """Writes a whole frame as one write."""
        self.send_bytes(encode(kind, request, payload), seconds)

    def send_bytes(self, frame: bytes, seconds: float = WRITE_DEADLINE_S) -> None:
        """Writes bytes that `encode` made."""
        try:
            self._out.settimeout(seconds)
            self._out.sendall(frame)
        except TimeoutError as error:
            raise DeadlineExceeded("sending a frame", seconds) from error
        except OSError as error:
            raise ProtocolError(f"stream: {error}") from error
        self.bytes_sent += len(frame)

    def receive(self, what: str, seconds: float) -> Frame:
        """Receives the next frame; `seconds` are for its first bytes, the rest has FRAME_DEADLINE_S."""
        if not self._held:
            self._receive_available(what, time.monotonic() + seconds, seconds, within=False)
        until = time.monotonic() + FRAME_DEADLINE_S
        while len(self._held) < HEADER.size:
            self._receive_available("the rest of a frame", until, FRAME_DEADLINE_S, within=True)
        kind, request, count = parse_header(bytes(self._held[: HEADER.size]), self.side)
        end = HEADER.size + count
        while len(self._held) < end:
            self._receive_available("the rest of a frame", until, FRAME_DEADLINE_S, within=True)
        payload = bytes(self._held[HEADER.size : end])
        del self._held[:end]
        self.bytes_received += end
        return Frame(kind, request, payload)

    def idle_until_bytes(self, what: str, seconds: float, idle: Callable[[], None]) -> None:
        """Waits for the first bytes of a frame, and calls `idle` each time that none came for a moment."""
        until = time.monotonic() + seconds
        while not self._held:
            try:
                self._receive_available(
                    what, min(until, time.monotonic() + IDLE_SLICE_S), seconds, within=False
                )
            except DeadlineExceeded:
                if time.monotonic() >= until:
                    raise
                idle()

    def close(self) -> None:
        """Ends both directions."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        self._out.close()

    def _receive_available(self, what: str, until: float, seconds: float, within: bool) -> None:
        """Reads what has arrived. Memory grows with what arrives, never with what a length announces."""
        left = until - time.monotonic()
        if left <= 0:
            raise DeadlineExceeded(what, seconds)
        try:
            self.socket.settimeout(left)
            part = self.socket.recv(_READ_BYTES)
        except TimeoutError as error:
            raise DeadlineExceeded(what, seconds) from error
        except OSError as error:
            raise ProtocolError(f"stream: {error}") from error
        if not part:
            raise StreamEnded(within)
        self._held += part
