"""One way between two processes: a small mapped file to signal through, and words that both see (cuda/shared.py).

A request is written, then its number; the other side looks for the number, first in a bounded spin, then waiting on a
socket that rings. Nothing on a device ever spins: without MPS two processes share a GPU by time slices.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy

from ..cuda.shared import SharedWords
from .errors import REFUSALS, DeadlineExceeded, ProtocolError, Refusal, StreamEnded

HEADER_WORDS = 32
# In place of the budget left, where there is no budget.
NO_BUDGET = (1 << 64) - 1
SPIN_S = 300e-6
# A ring can be missed where both sides move at once: nobody waits longer than this before looking again.
_SLICE_S = 0.002
_ASKED, _ANSWERED, _ASKER_SLEEPS, _ANSWERER_SLEEPS = range(4)
_OPERATION, _GROUP, _FIRST, _COUNT, _STATUS, _DETAIL, _LEFT = range(4, 11)
_SEED, _INDEX = 12, 16

APPLY, BEGIN, PUSH, FINISH = range(1, 5)


@dataclass(frozen=True)
class Request:
    """A request: an operation on an input, and two numbers whose meaning is the operation's."""

    operation: int
    input_index: int
    first: int
    count: int
    seed: bytes = bytes(32)
    index: int = 0


class Lane:
    """One end of the lane: asker and answerer use the same class. `bell` is a connected socket between them."""

    def __init__(
        self, path: Path, bell: socket.socket, request: SharedWords, answer: SharedWords, make: bool
    ) -> None:
        self.bell, self.request, self.answer = bell, request, answer
        # In the host's memory, wherever the words are.
        self._shared_head = SharedWords("cpu", path, HEADER_WORDS, make=make)
        self._head = self._shared_head.words
        self._number = 0
        # What the asker does meanwhile, where it has something to do.
        self.idle: Callable[[], None] = lambda: None

    def send_request(self, request: Request, seconds: float) -> tuple[int, int | None]:
        """Asks and waits; gives the answer's detail and what is left of the budget. Raises the other side's refusal."""
        head = self._head
        head[_OPERATION:_STATUS] = (
            request.operation,
            request.input_index,
            request.first,
            request.count,
        )
        head[_SEED : _SEED + 4] = numpy.frombuffer(request.seed, "<u8")
        head[_INDEX] = request.index
        self._number += 1
        head[_ASKED] = self._number
        self._wake(_ANSWERER_SLEEPS)
        self._wait(
            _ANSWERED, self._number, _ASKER_SLEEPS, "an answer", time.monotonic() + seconds, seconds
        )
        status, detail, left = (int(head[at]) for at in (_STATUS, _DETAIL, _LEFT))
        if status:
            raise Refusal(REFUSALS.get(status, "internal"), detail)
        return detail, None if left == NO_BUDGET else left

    def next_request(self) -> Request:
        """Waits for the next request, as long as the asker lives."""
        self._number += 1
        self._wait(_ASKED, self._number, _ANSWERER_SLEEPS, "a request", None, 0.0)
        head = self._head
        operation, input_index, first, count = (int(head[at]) for at in range(_OPERATION, _STATUS))
        return Request(
            operation,
            input_index,
            first,
            count,
            head[_SEED : _SEED + 4].tobytes(),
            int(head[_INDEX]),
        )

    def reply(
        self, detail: int = 0, left: int | None = None, refusal: Refusal | None = None
    ) -> None:
        """Answers the last request."""
        head = self._head
        head[_STATUS] = 0 if refusal is None else refusal.code
        head[_DETAIL] = detail if refusal is None else refusal.detail
        head[_LEFT] = NO_BUDGET if left is None else left
        head[_ANSWERED] = self._number
        self._wake(_ASKER_SLEEPS)

    def close(self) -> None:
        """Ends the lane for both sides."""
        self.bell.close()

    def release_memory(self) -> None:
        """Gives the memory back, after `close`; nobody may use the words any more."""
        self.request.close()
        self.answer.close()

    def _wake(self, sleeper: int) -> None:
        if self._head[sleeper]:
            try:
                self.bell.send(b"!", socket.MSG_DONTWAIT)
            except BlockingIOError:
                pass  # it is full of rings that nobody took: the other side is awake
            except OSError as error:
                raise ProtocolError(f"stream: {error}") from error

    def _wait(
        self, word: int, number: int, sleeper: int, what: str, until: float | None, seconds: float
    ) -> None:
        head = self._head
        spin = time.perf_counter() + SPIN_S
        while head[word] != number:
            if time.perf_counter() < spin:
                continue
            head[sleeper] = 1
            try:
                if head[word] != number:
                    self._sleep()
            finally:
                head[sleeper] = 0
            if until is not None and time.monotonic() >= until:
                raise DeadlineExceeded(what, seconds)
            self.idle()

    def _sleep(self) -> None:
        try:
            self.bell.settimeout(_SLICE_S)
            if not self.bell.recv(64):
                raise StreamEnded(within_frame=False)
        except TimeoutError:
            pass
        except OSError as error:
            raise ProtocolError(f"stream: {error}") from error
