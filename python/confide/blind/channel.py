"""The key holder's end of one connection: requests, answers, and the bytes that they took."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from typing import Any, TypeVar

from .._extension import native
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
    FrameStream,
    Message,
    Side,
)

Answer = TypeVar("Answer")
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

    def begin_request(self, message: Message) -> int:
        """Begins a request of several frames; gives its id."""
        request = self._next
        self._next = request % 0xFFFFFFFF + 1
        self.send(message, request)
        return request

    def send(self, message: Message, request: int) -> None:
        """Sends one message of a request."""
        self.frames.send(message, request)

    def receive(self, request: int, what: str, seconds: float) -> Any:
        """Receives the next message, which has to belong to the request; raises a refusal that comes instead."""
        found, message = self.frames.receive(what, seconds)
        if isinstance(message, Refusal):
            raise message
        if found != request:
            raise ProtocolError(
                f"frame: wanted an answer to this request, got {type(message).__name__}"
            )
        return message

    def expect(
        self, request: int, kind: type[Answer], seconds: float = ANSWER_DEADLINE_S
    ) -> Answer:
        """Receives the next message, which has to be of this kind."""
        message = self.receive(request, f"the host's {kind.__name__}", seconds)
        if not isinstance(message, kind):
            raise ProtocolError(f"frame: wanted {kind.__name__}, got {type(message).__name__}")
        return message

    def request(
        self, message: Message, answer: type[Answer], idle: Callable[[], None] | None = None
    ) -> Answer:
        """Sends one message and receives one; `idle` is called now and then while nothing comes."""
        request = self.begin_request(message)
        if idle is not None:
            self.frames.idle_until_bytes(f"the host's {answer.__name__}", ANSWER_DEADLINE_S, idle)
        return self.expect(request, answer)

    def attach(self, attach: native.Attach) -> None:
        """Joins the session of an earlier hello."""
        self.request(attach, native.AttachAnswer)

    def say_goodbye(self, session: bool) -> None:
        """Says that nothing more comes, of the whole session where `session` is set, and closes."""
        with contextlib.suppress(BlindError):
            request = self.begin_request(native.Goodbye(session))
            self.expect(request, native.Farewell, FAREWELL_DEADLINE_S)
        self.frames.close()


def translate_error(error: BlindError, host: str) -> BlindError:
    """Translates a refusal or a broken stream into what it means to a key holder."""
    if isinstance(error, Refusal):
        if error.name == "no-session":
            return HostRestarted(host)
        if error.name == "budget":
            return BudgetExhausted(host, error.detail)
        if error.name == "stopping":
            return HostLost(f"adapter host {host}: {error}")
        return HostRefused(f"adapter host {host}: {error}")
    if isinstance(error, ProtocolError):
        return HostLost(f"adapter host {host}: {error}")
    return error
