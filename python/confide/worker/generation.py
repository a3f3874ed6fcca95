"""A request on its way: what was asked, where it stands, how it ended."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from .deltas import NO_POINTS, Adapter, AdapterError, GenerationDeltas, Points
from .faults import is_out_of_memory
from .rows import FAST, SLOW
from .sample import choice_kind

# The place of a generation that waits for one.
NO_SLOT = -1
CAUSES = ("host_lost", "refused", "budget", "activation")


class RequestRefused(Exception):
    """A generation that never began; `kind` as in the frame."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass
class Request:
    """What `confide serve` asks for; the fields of a generate frame."""

    number: int
    ids: list[int]
    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    stop_ids: frozenset[int] = frozenset()
    banned_ids: list[int] = field(default_factory=list)
    adapter: str | None = None

    @staticmethod
    def parse(raw: dict[str, Any], vocabulary: int, context: int) -> Request:
        """Checks a frame's object. Raises `RequestRefused`; a frame without an id raises ValueError."""
        number: Any = raw.get("id")
        if not is_whole(number, 0, (1 << 32) - 1):
            raise ValueError("generate: wanted an id")
        ids: Any = raw.get("ids")
        most: Any = raw.get("max_tokens")
        stops, banned = raw.get("stop_ids", []), raw.get("banned_ids", [])
        for name, listed in (("ids", ids), ("stop_ids", stops), ("banned_ids", banned)):
            if not isinstance(listed, list) or not all(
                is_whole(one, 0, (1 << 32) - 1) for one in listed
            ):
                raise RequestRefused("malformed", f"{name}: wanted a list of token numbers")
        if not ids or max(ids) >= vocabulary:
            raise RequestRefused("malformed", f"ids: wanted at least one, all below {vocabulary}")
        if len(ids) > context - 1:
            raise RequestRefused(
                "prompt_too_long", f"prompt: wanted at most {context - 1} tokens, got {len(ids)}"
            )
        if not is_whole(most, 1, context - len(ids)):
            raise RequestRefused(
                "malformed", f"max_tokens: wanted 1 to {context - len(ids)}, got {most!r}"
            )
        heat, share, seed = raw.get("temperature", 0.0), raw.get("top_p", 1.0), raw.get("seed", 0)
        if (
            not is_number(heat, 0.0, 1e6)
            or not is_number(share, 0.0, 1.0)
            or not is_whole(seed, 0, (1 << 64) - 1)
        ):
            raise RequestRefused(
                "malformed", "temperature, top_p, seed: wanted numbers within their bounds"
            )
        adapter = raw.get("adapter")
        if adapter is not None and not isinstance(adapter, str):
            raise RequestRefused("malformed", "adapter: wanted a name or null")
        kept = [one for one in banned if one < vocabulary]
        return Request(
            number, ids, most, float(heat), float(share), seed, frozenset(stops), kept, adapter
        )


def is_whole(value: Any, least: int, most: int) -> bool:
    """Whether it is a whole number within bounds."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def is_number(value: Any, least: float, most: float) -> bool:
    """Whether it is a number within bounds."""
    return (
        isinstance(value, (int, float)) and not isinstance(value, bool) and least <= value <= most
    )


@dataclass
class Failure:
    """Why a generation failed; `kind` and `cause` as in the frame."""

    kind: str
    message: str
    cause: str | None = None

    @staticmethod
    def from_error(error: Exception) -> Failure:
        """Gives the failure that an exception means for one generation."""
        if isinstance(error, AdapterError):
            return Failure("adapter", str(error), error.kind if error.kind in CAUSES else None)
        if is_out_of_memory(error):
            return Failure("out_of_memory", f"out of memory: {str(error).splitlines()[0][:300]}")
        return Failure("internal", f"{type(error).__name__}: {str(error)[:300]}")


@dataclass(eq=False)
class Generation:
    """A request in a slot, or waiting for one."""

    request: Request
    adapter: Adapter | None = None
    slot: int = NO_SLOT
    # The adapter's opening, where it takes time.
    opening: Future[GenerationDeltas] | None = None
    deltas: GenerationDeltas | None = None
    points: Points = NO_POINTS
    prefilled: int = 0
    launched: int = 0
    sent: int = 0
    cancelled: bool = False
    ended: str | None = None
    failure: Failure | None = None

    @property
    def group(self) -> int:
        """Whether its adapter has to be waited for."""
        return SLOW if self.deltas is not None and not self.deltas.capturable else FAST

    @property
    def kind(self) -> str:
        """How the generation's tokens are chosen."""
        return choice_kind(self.request.temperature, self.request.top_p)

    @property
    def is_decoding(self) -> bool:
        """Whether steps are to be launched for it."""
        return self.launched > 0 and self.launched < self.request.max_tokens and not self.ended

    @property
    def is_prefilling(self) -> bool:
        """Whether part of its prompt is still to be read."""
        return (
            self.slot != NO_SLOT and self.opening is None and self.launched == 0 and not self.ended
        )

    @property
    def tokens(self) -> int:
        """Tokens in the cache once all that was launched has run."""
        return len(self.request.ids) + max(self.launched - 1, 0)

    def call_hook(self, name: str, *arguments: Any) -> None:
        """Calls what its deltas offer under this name, if anything."""
        offered: Callable[..., None] | None = getattr(self.deltas, name, None)
        if offered is not None:
            offered(*arguments)

    def report(self) -> dict[str, Any] | None:
        """Reports what the generation's adapter took; None without one."""
        if self.deltas is None:
            return None
        return {"guarantee": self.deltas.guarantee, **self.deltas.report()}

    def end_frame(self) -> dict[str, Any]:
        """Gives the object of the frame that ends it."""
        error = None
        if self.failure is not None:
            error = {"kind": self.failure.kind, "message": self.failure.message}
            if self.failure.cause:
                error["cause"] = self.failure.cause
        usage = {"prompt_tokens": len(self.request.ids), "completion_tokens": self.sent}
        report = self.report()
        return {
            "id": self.request.number,
            "reason": self.ended,
            "error": error,
            "usage": usage,
            "adapter": report,
        }
