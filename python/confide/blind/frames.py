"""Messages of the blind protocol (docs/blind-protocol.md) over a socket, one write each; the native part encodes and
decodes them.

Every length has a limit that is checked before the payload is read, every wait a deadline.
"""

from __future__ import annotations

import contextlib
import enum
import socket
import time
from collections.abc import Callable
from typing import Any, Protocol

from .._extension import native
from .errors import DeadlineExceeded, ProtocolError, StreamEnded

# Waits of docs/blind-protocol.md, in seconds.
HELLO_DEADLINE_S = 10.0
FRAME_DEADLINE_S = native.FrameReader.FRAME_DEADLINE_S
IDLE_DEADLINE_S = 600.0
BLOCK_DEADLINE_S = 30.0
WRITE_DEADLINE_S = 30.0
ANSWER_DEADLINE_S = 30.0
STEP_DEADLINE_S = 120.0
CONNECT_DEADLINE_S = 20.0
IDLE_SLICE_S = 0.0005
FAREWELL_DEADLINE_S = 1.0

_READ_BYTES = 64 * 1024


class Side(enum.Enum):
    """The side that receives a frame."""

    HOST = "host"
    HOLDER = "holder"


class Message(Protocol):
    """A message of the native part that this side can send."""

    def to_frame(self, request: int) -> bytes:
        """Encodes the message as a frame of a request."""


class FrameStream:
    """Messages over a connected socket: blocking, with a deadline at each step. Reads are one thread's."""

    def __init__(self, stream: socket.socket, side: Side) -> None:
        # Timeouts belong to a socket object: one for each direction, so that neither thread sets the other's.
        self.socket, self._out = stream, stream.dup()
        self.bytes_sent = self.bytes_received = 0
        self._frames, self._received = native.FrameReader(side.value), b""
        if stream.family in (socket.AF_INET, socket.AF_INET6):
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, message: Message, request: int) -> None:
        """Writes a message as one write."""
        self.send_bytes(message.to_frame(request))

    def send_bytes(self, frame: bytes, seconds: float = WRITE_DEADLINE_S) -> None:
        """Writes an encoded frame."""
        try:
            self._out.settimeout(seconds)
            self._out.sendall(frame)
        except TimeoutError as error:
            raise DeadlineExceeded("sending a frame", seconds) from error
        except OSError as error:
            raise ProtocolError(f"stream: {error}") from error
        self.bytes_sent += len(frame)

    def receive(self, what: str, seconds: float) -> tuple[int, Any]:
        """Receives the next message and the id of its request; a refusal is given, not raised. `seconds` are for the
        first bytes, the rest has FRAME_DEADLINE_S.
        """
        if self._is_silent:
            self._receive_available(what, time.monotonic() + seconds, seconds, within=False)
        until = time.monotonic() + FRAME_DEADLINE_S
        while (found := self._parse_received()) is None:
            self._receive_available("the rest of a frame", until, FRAME_DEADLINE_S, within=True)
        return found

    def idle_until_bytes(self, what: str, seconds: float, idle: Callable[[], None]) -> None:
        """Waits for the first bytes of a frame, and calls `idle` each time that none came for a moment."""
        until = time.monotonic() + seconds
        while self._is_silent:
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

    @property
    def _is_silent(self) -> bool:
        """Whether no byte of the next frame has arrived."""
        return not self._received and self._frames.is_empty

    def _parse_received(self) -> tuple[int, Any] | None:
        received, self._received = self._received, b""
        return self._frames.read(received)

    def _receive_available(self, what: str, until: float, seconds: float, within: bool) -> None:
        """Reads what has arrived. Memory grows with what arrives, never with what a length announces."""
        left = until - time.monotonic()
        if left <= 0:
            raise DeadlineExceeded(what, seconds)
        try:
            self.socket.settimeout(left)
            self._received = self.socket.recv(_READ_BYTES)
        except TimeoutError as error:
            raise DeadlineExceeded(what, seconds) from error
        except OSError as error:
            raise ProtocolError(f"stream: {error}") from error
        if not self._received:
            raise StreamEnded(within)
        self.bytes_received += len(self._received)
