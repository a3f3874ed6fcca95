"""The key holder's end of one connection: requests, answers, and the bytes that they took."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable

from .errors import (
    BlindError,
    BudgetExhausted,
    HostLost,
    HostRefused,
    HostRestarted,
    ProtocolError,
    Refusal,
)
from .frames import (
    ANSWER_DEADLINE_S,
    CONNECT_DEADLINE_S,
    FAREWELL_DEADLINE_S,
    Frame,
    FrameKind,
    FrameStream,
    Side,
)
from .messages import Attach, decode_error

Dial = Callable[[], socket.socket]


def dial_tcp(host: str, port: int) -> Dial:
    """Opens plain TCP: for loopback, or where the caller was asked for it by name."""
    return lambda: socket.create_connection((host, port), CONNECT_DEADLINE_S)


def dial_unix(path: str) -> Dial:
    """Opens a Unix stream socket."""

    def connect() -> socket.socket:
        stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            stream.settimeout(CONNECT_DEADLINE_S)
            stream.connect(path)
        except OSError:
            stream.close()
            raise
        return stream

    return connect


class Channel:
    """One connection to a host, driven by the thread that waits for it."""

    def __init__(self, dial: Dial, name: str) -> None:
        self.name, self._next = name, 1
        try:
            self.frames = FrameStream(dial(), Side.HOLDER)
        except OSError as error:
            raise HostLost(f"adapter host {name}: {error}") from error

    @property
    def byte_count(self) -> int:
        """The bytes sent and received until now."""
        return self.frames.bytes_sent + self.frames.bytes_received

    def begin_request(self, kind: FrameKind, payload: bytes) -> int:
        """Begins a request of several frames; gives its id."""
        request = self._next
        self._next = request % 0xFFFFFFFF + 1
        self.send(kind, request, payload)
        return request

    def send(self, kind: FrameKind, request: int, payload: bytes) -> None:
        """Sends one more frame of a request."""
        self.frames.send(kind, request, payload, ANSWER_DEADLINE_S)

    def receive(self, request: int, what: str, seconds: float) -> Frame:
        """Receives the next frame, which has to belong to the request; raises a refusal that comes instead."""
        frame = self.frames.receive(what, seconds)
        if frame.kind is FrameKind.ERROR:
            raise decode_error(frame.payload)
        if frame.id != request:
            raise ProtocolError(
                f"frame: wanted an answer to this request, got {frame.kind.name.lower()}"
            )
        return frame

    def expect(self, request: int, kind: FrameKind, seconds: float = ANSWER_DEADLINE_S) -> bytes:
        """Receives the next frame, which has to be of this kind; gives its payload."""
        frame = self.receive(request, f"the host's {kind.name.lower()}", seconds)
        if frame.kind is not kind:
            raise ProtocolError(f"frame: wanted {kind.name.lower()}, got {frame.kind.name.lower()}")
        return frame.payload

    def request(
        self,
        kind: FrameKind,
        payload: bytes,
        answer: FrameKind,
        idle: Callable[[], None] | None = None,
    ) -> bytes:
        """Sends one frame and receives one; `idle` is called now and then while nothing comes."""
        request = self.begin_request(kind, payload)
        if idle is not None:
            self.frames.idle_until_bytes(
                f"the host's {answer.name.lower()}", ANSWER_DEADLINE_S, idle
            )
        return self.expect(request, answer)

    def attach(self, attach: Attach) -> None:
        """Joins the session of an earlier hello."""
        self.request(FrameKind.ATTACH, attach.encode(), FrameKind.ATTACHED)

    def say_goodbye(self, session: bool) -> None:
        """Says that nothing more comes, of the whole session where `session` is set, and closes."""
        with contextlib.suppress(BlindError):
            self.expect(
                self.begin_request(FrameKind.GOODBYE, bytes([session])),
                FrameKind.FAREWELL,
                FAREWELL_DEADLINE_S,
            )
        self.frames.close()


def translate_error(error: BlindError, host: str) -> BlindError:
    """Translates a refusal or a broken stream into what it means to a key holder."""
    if isinstance(error, Refusal):
        if error.name == "no-session":
            return HostRestarted(f"adapter host {host} was restarted: prepared masks are lost")
        if error.name == "budget":
            return BudgetExhausted(host, error.detail)
        if error.name == "stopping":
            return HostLost(f"adapter host {host}: stopping: the host is shutting down")
        return HostRefused(f"adapter host {host}: {error}")
    if isinstance(error, ProtocolError):
        return HostLost(f"adapter host {host}: {error}")
    return error
