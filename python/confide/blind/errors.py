"""The errors between a key holder and an adapter host, by name."""

from __future__ import annotations

from .._extension import native
from ..adapter_error import AdapterError
from ..adapter_error import AdapterRefused as AdapterRefused


class BlindError(AdapterError):
    """The base of this package's errors. `kind` is the word of docs/worker.md for it."""

    KIND = "adapter"

    def __init__(self, message: str) -> None:
        super().__init__(message, self.KIND)


class ProtocolError(BlindError):
    """A frame could not be sent, received or read. The connection is not used again."""


class StreamEnded(ProtocolError):
    """The peer ended the stream, between frames or within one."""

    def __init__(self, within_frame: bool) -> None:
        self.within_frame = within_frame
        super().__init__("stream ended " + ("within a frame" if within_frame else "by the peer"))


class DeadlineExceeded(ProtocolError):
    """The peer was silent for too long."""

    def __init__(self, what: str, seconds: float) -> None:
        self.what, self.seconds = what, seconds
        super().__init__(f"{what}: timed out after {seconds * 1000:.0f} ms")


class FieldError(ProtocolError):
    """A field of a message is not as it must be."""

    def __init__(self, message: str, field: str, wanted: str) -> None:
        self.message, self.field, self.wanted = message, field, wanted
        super().__init__(f"{message}: {field}: wanted {wanted}")


class RequestAbandoned(BlindError):
    """Nobody wants the answer any more: the generations that asked were cancelled."""

    KIND = "cancelled"


# Names by their code on the wire.
REFUSALS = dict(enumerate(native.refusal_names(), 1))
_CODES = {name: code for code, name in REFUSALS.items()}


class Refusal(BlindError):
    """The host does not answer: coarse, so that it tells an attacker nothing new."""

    def __init__(self, name: str, detail: int = 0) -> None:
        self.name, self.detail = name, detail
        super().__init__(native.describe_refusal(name, detail))

    @property
    def code(self) -> int:
        """The refusal's byte on the wire."""
        return _CODES[self.name]

    def to_frame(self, request: int) -> bytes:
        """Encodes the refusal as a frame of a request."""
        return native.encode_refusal(request, self.name, self.detail)


class HostLost(BlindError):
    """The adapter host went away, was never there, or broke the protocol."""

    KIND = "host_lost"


class HostRestarted(HostLost):
    """The host was started again or forgot the session: what was prepared with it is worthless."""

    def __init__(self, host: str) -> None:
        super().__init__(
            f"adapter host {host} was restarted or forgot the session: prepared masks are discarded"
        )


class HostRefused(BlindError):
    """The adapter host refused, by name."""

    KIND = "refused"


class BudgetExhausted(HostRefused):
    """As many vectors were answered as this client may have."""

    KIND = "budget"

    def __init__(self, host: str, limit: int) -> None:
        self.limit = limit
        super().__init__(f"adapter host {host}: {native.describe_used_budget(limit)}")


class NotPrepared(HostLost):
    """No prepared masks were ready in time."""


class ActivationRefused(BlindError):
    """An activation cannot be sent: not finite, or too coarse under the adapter's norm limit."""

    KIND = "activation"
