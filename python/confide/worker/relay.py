"""Adapters that `confide serve` itself holds: the worker asks for each delta (docs/worker.md, "need")."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy
import torch
from torch import Tensor

from .deltas import PROJECTIONS, SOURCES, AdapterError, GenerationDeltas, points_of

ANSWER_SECONDS = 300.0
# How long a wait sleeps before others get their turn.
TURN_SECONDS = 0.0005
FRAME_BYTES_MAX = 16 << 20
CAUSES = {1: "host_lost", 2: "refused", 3: "budget", 4: "activation"}


class Mailbox:
    """Answers by generation, from the thread that reads the socket to the one that steps."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self.send = send
        self.changed = threading.Condition()
        self.wanted: dict[int, tuple[int, int]] = {}
        self.answers: dict[int, tuple[int, bytes]] = {}
        self.gone: str | None = None
        # Lets other generations go on while one waits; the scheduler sets it.
        self.pump: Callable[[], None] = lambda: None
        # Whether a generation was cancelled meanwhile; the scheduler sets it.
        self.is_cancelled: Callable[[int], bool] = lambda _: False

    def send_request(self, number: int, layer: int, source: int, payload: bytes) -> None:
        """Sends a need; the answer is fetched by `wait_for_answer`."""
        with self.changed:
            self.wanted[number] = (layer, source)
            self.answers.pop(number, None)
        self.send(payload)

    def deliver_answer(self, payload: bytes) -> None:
        """Takes an answer's payload. One that nobody waits for is ignored. Raises ValueError where it is malformed."""
        if len(payload) < 10:
            raise ValueError(f"deltas: wanted at least 10 bytes, got {len(payload)}")
        number, layer, source, error = struct.unpack_from("<IIBB", payload)
        with self.changed:
            wanted = self.wanted.get(number)
            if wanted is None:
                return
            if wanted != (layer, source):
                raise ValueError(f"deltas: wanted layer and source {wanted}, got {(layer, source)}")
            self.answers[number] = (error, payload[10:])
            self.changed.notify_all()

    def wait_for_answer(self, number: int) -> bytes:
        """Waits for an answer, while others go on. Raises `AdapterError`."""
        end = time.monotonic() + ANSWER_SECONDS
        try:
            while True:
                with self.changed:
                    found = self.answers.pop(number, None)
                    if found is None and self.gone is None:
                        self.changed.wait(TURN_SECONDS)
                        found = self.answers.pop(number, None)
                    if self.gone is not None:
                        raise AdapterError(f"adapter host is lost: {self.gone}", "host_lost")
                if found is not None:
                    return self.check_answer(*found)
                if self.is_cancelled(number):
                    raise AdapterError("the generation was cancelled", "cancelled")
                if time.monotonic() > end:
                    raise AdapterError(f"no deltas within {ANSWER_SECONDS:.0f} s", "host_lost")
                self.pump()
        finally:
            with self.changed:
                self.wanted.pop(number, None)

    def check_answer(self, error: int, rest: bytes) -> bytes:
        """Returns the answer's rest, or raises `AdapterError` with the message that came in its stead."""
        if error == 0:
            return rest
        import json

        try:
            (length,) = struct.unpack_from("<I", rest)
            message = str(json.loads(rest[4 : 4 + length])["message"])
        except (struct.error, ValueError, KeyError, TypeError):
            message = f"error {error}"
        raise AdapterError(message, CAUSES.get(error, "host_lost"))

    def close(self, reason: str) -> None:
        """Notes that nobody will answer any more."""
        with self.changed:
            self.gone = reason
            self.changed.notify_all()


class RelayAdapter:
    """An adapter whose deltas come from the other end of the socket."""

    opens_at_once = True

    def __init__(self, name: str, spec: dict[str, Any], context: Any) -> None:
        from .adapters import sites_from_wire

        if context.line is None:
            raise AdapterError(
                "adapter kind relay: wanted a connection to request deltas, got none"
            )
        self.name, self.sites = name, sites_from_wire(spec.get("sites"))
        self.points = points_of(self.sites)
        self.guarantee = str(spec.get("guarantee", "none"))
        self.group = RelayGroup(context.line)

    def open(self) -> GenerationDeltas:
        """Returns the deltas of one generation."""
        return RelayDeltas(self)


class RelayDeltas:
    """A relayed adapter in one generation."""

    capturable = False

    def __init__(self, adapter: RelayAdapter) -> None:
        self.adapter, self.grouped, self.guarantee = adapter, adapter.group, adapter.guarantee
        self.number = 0
        self.error: AdapterError | None = None
        self.trips = self.bytes = 0
        self.seconds = 0.0

    def set_generation(self, number: int) -> None:
        """Takes the generation's id, which frames carry."""
        self.number = number

    def add(self, layer: int, source: str, rows: Tensor, outputs: dict[str, Tensor]) -> None:
        """Has the outputs [T, out] changed in place by what `confide serve` answers for rows [T, in]."""
        mine = self.select_outputs(layer, outputs)
        if not mine:
            return
        started = time.monotonic()
        host = rows.float().cpu().numpy()
        given = {name: output.float().cpu().numpy() for name, output in mine.items()}
        each = 4 * (host.shape[1] + sum(output.shape[1] for output in given.values()))
        most = max((FRAME_BYTES_MAX - 64) // each, 1)
        changed = []
        for first in range(0, host.shape[0], most):
            part = slice(first, first + most)
            asked = {name: output[part] for name, output in given.items()}
            self.ask(layer, source, host[part], asked)
            changed.append(self.fetch(asked))
        for name, output in mine.items():
            whole = numpy.concatenate([part[name] for part in changed])
            output.copy_(torch.from_numpy(whole))
        self.seconds += time.monotonic() - started

    def select_outputs(self, layer: int, outputs: dict[str, Tensor]) -> dict[str, Tensor]:
        """The outputs that the adapter changes, in the order of their numbers."""
        return {
            name: outputs[name]
            for name in PROJECTIONS
            if name in outputs and (layer, name) in self.adapter.sites
        }

    def ask(
        self, layer: int, source: str, rows: numpy.ndarray, outputs: dict[str, numpy.ndarray]
    ) -> None:
        """Sends what the adapter needs at a point."""
        number, kind = self.number, SOURCES.index(source)
        head = struct.pack("<IIBIIB", number, layer, kind, *rows.shape, len(outputs))
        parts = [
            head,
            bytes(PROJECTIONS.index(name) for name in outputs),
            rows.astype("<f4").tobytes(),
        ]
        parts += [output.astype("<f4").tobytes() for output in outputs.values()]
        payload = b"".join(parts)
        self.trips, self.bytes = self.trips + 1, self.bytes + len(payload)
        self.adapter.group.mailbox.send_request(number, layer, kind, payload)

    def fetch(self, asked: dict[str, numpy.ndarray]) -> dict[str, numpy.ndarray]:
        """Gives the outputs as they come back. Raises `AdapterError`."""
        rest = self.adapter.group.mailbox.wait_for_answer(self.number)
        self.bytes += len(rest)
        wanted = sum(output.size for output in asked.values()) * 4
        if len(rest) != wanted:
            raise AdapterError(f"deltas: wanted {wanted} bytes, got {len(rest)}", "host_lost")
        found, place = {}, 0
        for name, output in asked.items():
            found[name] = (
                numpy.frombuffer(rest, "<f4", output.size, place).reshape(output.shape).copy()
            )
            place += output.size * 4
        return found

    def report(self) -> dict[str, Any]:
        """Returns what is said of the adapter at the end of a generation."""
        # What the adapter itself took is in the report of the process that answers; these are the socket's.
        return {"guarantee": self.guarantee, "steps_ms": {"relay_ms": self.seconds * 1e3}}


class RelayGroup:
    """Asks for all rows of a batch before it waits for the first, so that their round trips run side by side."""

    def __init__(self, mailbox: Mailbox) -> None:
        self.mailbox = mailbox

    def add(
        self,
        layer: int,
        source: str,
        rows: Tensor,
        outputs: dict[str, Tensor],
        deltas: list[GenerationDeltas | None],
    ) -> None:
        """Asks for all rows of the batch at once, then waits for the answers; an error stops its generation alone."""
        host = rows.float().cpu().numpy()
        given = {name: output.float().cpu().numpy() for name, output in outputs.items()}
        asked = []
        for row, one in enumerate(deltas):
            if not isinstance(one, RelayDeltas) or one.error is not None:
                continue
            parts = {
                name: given[name][row : row + 1] for name in one.select_outputs(layer, outputs)
            }
            if parts:
                one.ask(layer, source, host[row : row + 1], parts)
                asked.append((row, one, parts, time.monotonic()))
        for row, one, parts, started in asked:
            try:
                for name, changed in one.fetch(parts).items():
                    outputs[name][row : row + 1].copy_(torch.from_numpy(changed))
            except AdapterError as error:
                one.error = error
            one.seconds += time.monotonic() - started
