"""What can go wrong between a key holder and an adapter host, by name."""

from __future__ import annotations

from .._extension import native
from ..adapter_error import AdapterError
from ..adapter_error import AdapterRefused as AdapterRefused


class BlindError(AdapterError):
    """Base of all that this package raises on purpose. `kind` is the word of docs/worker.md for it."""

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
        if name not in _CODES:
            raise ValueError(f"refusal: wanted one of docs/blind-protocol.md, got {name!r}")
        self.name, self.detail = name, detail
        limit = f": all {detail} answers are used up" if name == "budget" else ""
        super().__init__(f"{name}{limit}")

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


class HostRefused(BlindError):
    """The adapter host refused, by name."""

    KIND = "refused"


class BudgetExhausted(HostRefused):
    """As many vectors were answered as this client may have."""

    KIND = "budget"

    def __init__(self, host: str, limit: int) -> None:
        self.limit = limit
        super().__init__(
            f"adapter host {host}: adapter budget is used up: {limit} answers were allowed; hint: "
            "its owner can raise --budget or accept this key holder's evidence (--client-policy); trying "
            "again changes nothing"
        )


class NotPrepared(HostLost):
    """No prepared masks were ready in time."""


class ActivationRefused(BlindError):
    """An activation cannot be sent: not finite, or too coarse under the adapter's norm limit."""

    KIND = "activation"
