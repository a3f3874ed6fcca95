"""Continuous batching: who runs in which slot, and what is launched next.

A *turn* launches one decode step for all who decode, one chunk of one prompt, and then reads the tokens of the step
before. So the device always has the next step when one ends, and prompts delay others by a chunk, never by a prompt.
Generations whose adapters have to be waited for step in a group of their own; while one waits the others take turns.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from .cache import Cache
from .deltas import Adapter, AdapterError, GenerationDeltas, Point, add_each, graph_key, points_of
from .faults import OutOfMemory, free_cached_memory, is_fatal, is_out_of_memory, to_adapter_error
from .generation import NO_SLOT, Failure, Generation, Request, RequestRefused
from .graphs import RING, Shape, Stepper, TokenCopy
from .model import Model
from .opening import Openings, close_late
from .prefill import Limits, read_chunk
from .rows import FAST, SLOW, Rows
from .sample import KINDS, NOT_FOUND

# Steps and first tokens that were launched and not read; the ring of pinned memory holds them.
UNREAD_MAX = RING - 2


class Listener(Protocol):
    """What receives the tokens and ends of generations."""

    def emit_tokens(self, told: list[tuple[int, int]]) -> None:
        """Takes the tokens of one step, each with its generation's number."""

    def emit_end(self, generation: Generation) -> None:
        """Takes a generation that ended; nothing follows for it."""


@dataclass
class UnreadStep:
    """A step whose tokens are on their way: (index in what is told, generation)."""

    told: TokenCopy
    rows: list[tuple[int, Generation]]


class RecordingFailed(Exception):
    """An adapter failed while a step was recorded, so the recording is thrown away."""


class Scheduler:
    """Owns the slots. All methods are called by one thread, the one that turns."""

    def __init__(
        self,
        model: Model,
        cache: Cache,
        rows: Rows,
        stepper: Stepper,
        listener: Listener,
        limits: Limits | None = None,
    ) -> None:
        self.model, self.cache, self.rows, self.stepper = model, cache, rows, stepper
        self.listener, self.limits = listener, limits or Limits()
        self.waiting: deque[Generation] = deque()
        self.slots: list[Generation | None] = [None] * cache.size.slots
        self.unread: deque[UnreadStep] = deque()
        # Whose chunk is next; prompts take turns.
        self.prefills: deque[Generation] = deque()
        self.slow_runs = False
        self.wake: Callable[[], None] = lambda: None
        self.openings = Openings(model.device, lambda: self.wake())
        counted = ("prompt_tokens", "completion_tokens", "steps", "chunks", "generations", "failed")
        self.totals = dict.fromkeys(counted, 0)

    # What the connection asks for.

    def submit(self, request: Request, adapter: Adapter | None = None) -> Generation:
        """Takes a request. Raises `RequestRefused` where as many wait as may."""
        idle = sum(slot is None for slot in self.slots)
        if len(self.waiting) >= self.limits.queue + idle:
            raise RequestRefused(
                "queue_full",
                f"queue is full: wanted at most {self.limits.queue} waiting generations",
            )
        generation = Generation(request, adapter)
        self.waiting.append(generation)
        self.totals["generations"] += 1
        return generation

    def cancel(self, number: int) -> None:
        """Ends a generation before the next step. One that has ended is not known and nothing happens."""
        for generation in [*self.waiting, *filter(None, self.slots)]:
            if generation.request.number == number:
                generation.cancelled = True

    def is_running(self, number: int) -> bool:
        """Whether a generation of this number has not ended."""
        return any(
            one.request.number == number for one in [*self.waiting, *filter(None, self.slots)]
        )

    def uses(self, adapter: Adapter) -> bool:
        """Whether a generation that has not ended was begun with this adapter."""
        return any(one.adapter is adapter for one in [*self.waiting, *filter(None, self.slots)])

    def cancel_all(self) -> None:
        """Ends all, telling nobody."""
        for generation in [*self.waiting, *filter(None, self.slots)]:
            generation.cancelled = True

    def is_cancelled(self, number: int) -> bool:
        """Whether a running generation was cancelled and is not yet ended."""
        running = [
            slot for slot in self.slots if slot is not None and slot.request.number == number
        ]
        return all(generation.cancelled for generation in running)

    @property
    def is_idle(self) -> bool:
        """Whether a turn would find nothing to do."""
        opening = [slot for slot in self.slots if slot is not None and not self.is_opening(slot)]
        startable = bool(self.waiting) and any(slot is None for slot in self.slots)
        return not opening and not self.unread and not startable

    def is_opening(self, generation: Generation) -> bool:
        """Whether a generation only waits for its adapter to open."""
        return (
            generation.opening is not None
            and not generation.opening.done()
            and not generation.cancelled
        )

    # A turn.

    def run_round(self) -> None:
        """Runs one round for everybody."""
        self.drop_cancelled()
        self.fill_free_slots()
        launched = self.launch_step(FAST)
        launched |= self.prefill()
        if not self.slow_runs:
            launched |= self.run_slow_step()
        self.read_steps(keep=1 if launched else 0)

    def run_round_meanwhile(self) -> None:
        """Runs a round for those who need not wait, while a slow step or prefill does."""
        self.drop_cancelled()
        self.fill_free_slots()
        launched = self.launch_step(FAST)
        launched |= self.prefill()
        self.read_steps(keep=1 if launched else 0)

    def drop_cancelled(self) -> None:
        """Ends those who were cancelled. One that is in a slow pass ends when the pass lets go of it."""
        for generation in [one for one in self.waiting if one.cancelled]:
            self.waiting.remove(generation)
            self.end_generation(generation, "cancelled")
        for generation in [one for one in self.slots if one is not None and one.cancelled]:
            if not (self.slow_runs and generation.group == SLOW):
                self.end_generation(generation, "cancelled")

    def fill_free_slots(self) -> None:
        """Gives free slots to those who wait, first come first served, the lowest slot first."""
        for slot, held in enumerate(self.slots):
            if held is None and self.waiting:
                self.begin_in_slot(self.waiting.popleft(), slot)
        for generation in filter(None, list(self.slots)):
            if generation.opening is not None and generation.opening.done():
                self.finish_opening(generation)

    def begin_in_slot(self, generation: Generation, slot: int) -> None:
        """Puts a generation into a slot and begins to open its adapter."""
        generation.slot, self.slots[slot] = slot, generation
        request = generation.request
        self.rows.admit(
            slot,
            request.temperature,
            request.top_p,
            request.seed,
            request.max_tokens,
            request.banned_ids,
        )
        if generation.adapter is None:
            self.prefills.append(generation)
            return
        generation.opening = self.openings.begin(generation.adapter)
        if generation.opening.done():
            self.finish_opening(generation)

    def finish_opening(self, generation: Generation) -> None:
        """Takes the deltas of an adapter that has opened, or ends the generation where it could not."""
        opening, adapter = generation.opening, generation.adapter
        if opening is None or adapter is None:
            return
        generation.opening = None
        try:
            generation.deltas = opening.result()
            generation.points = points_of(adapter.sites)
            generation.call_hook("set_generation", generation.request.number)
        except Exception as error:
            self.end_by_error(generation, to_adapter_error(error))
            return
        self.prefills.append(generation)

    # Decode.

    def launch_step(self, group: int) -> bool:
        """Launches one step of a group, if anybody in it decodes."""
        self.move_into_lower_slot()
        chosen = [
            one for one in self.slots if one is not None and one.is_decoding and one.group == group
        ]
        chosen = [one for one in chosen if self.try_hook(one, "before_step", 1)]
        if not chosen:
            return False
        while len(self.unread) >= UNREAD_MAX:
            self.read_oldest_step()
        deltas = self.deltas_of(chosen)
        try:
            told = self.stepper.step(
                self.shape(chosen, group, deltas),
                lambda point, rehearsal: self.add(point, deltas, rehearsal),
            )
        except RecordingFailed:
            # Nothing has run. Those whose adapters failed end; the others step at the next turn.
            for one in chosen:
                if one.failure is not None:
                    self.end_generation(one, "failed")
            return True
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            for one in chosen:
                self.end_by_error(one, error)
            free_cached_memory(error, self.model.device)
            return True
        for one in chosen:
            one.launched += 1
        self.totals["steps"] += 1
        self.unread.append(UnreadStep(told, [(one.slot, one) for one in chosen]))
        return True

    def shape(
        self, chosen: list[Generation], group: int, deltas: list[GenerationDeltas | None]
    ) -> Shape:
        """Gives what the step of these generations depends on."""
        # Where adapters are called between graphs, no graph depends on which they are.
        adapted = [one.deltas for one in chosen if one.deltas is not None and group == FAST]
        keys = sorted({repr(graph_key(one)) for one in adapted})
        if any(getattr(one, "grouped", None) is None for one in adapted):
            # Rows count where each row is added to by itself.
            keys = [repr(graph_key(one)) for one in deltas]
        points = frozenset().union(*(one.points for one in chosen))
        kind = max((one.kind for one in chosen), key=KINDS.index)
        rows, tokens = chosen[-1].slot + 1, max(one.tokens for one in chosen) + 1
        more = {"group": group, "points": points, "adapters": tuple(keys), "waits": group == SLOW}
        return self.stepper.shape(rows, tokens, kind, **more)

    def run_slow_step(self) -> bool:
        """Runs one step of those whose adapters have to be waited for; others take turns meanwhile."""
        if any(one is not None and one.is_decoding and one.group == SLOW for one in self.slots):
            # Nobody may leave a slot that a slow step, once begun, still writes.
            self.read_steps(keep=0)
        self.slow_runs = True
        try:
            return self.launch_step(SLOW)
        finally:
            self.slow_runs = False

    def deltas_of(self, chosen: list[Generation]) -> list[GenerationDeltas | None]:
        """Gives the deltas by row; None for rows that take no part."""
        deltas: list[GenerationDeltas | None] = [None] * (chosen[-1].slot + 1)
        for one in chosen:
            deltas[one.slot] = one.deltas
        return deltas

    def add(self, point: Point, deltas: list[GenerationDeltas | None], rehearsal: bool) -> None:
        """Adds what the adapters of a step give at a point. A row whose adapter fails goes on without it; its tokens
        are not read.
        """
        if rehearsal:
            deltas = [one if getattr(one, "rehearsable", False) else None for one in deltas]
        here = (point.layer, point.source)
        chosen = [
            one if held is not None and here in held.points else None
            for one, held in zip(deltas, self.slots)
        ]
        wrong: list[int] = []

        def note_failure(row: int, error: Exception) -> None:
            deltas[row] = None
            wrong.append(row)
            generation = self.slots[row]
            if generation is not None and generation.failure is None:
                generation.failure = Failure.from_error(
                    error if is_out_of_memory(error) else to_adapter_error(error)
                )

        add_each(point, chosen, note_failure)
        if wrong and self.stepper.is_recording:
            # A graph without an adapter's part would serve later generations without it.
            raise RecordingFailed

    def try_hook(self, generation: Generation, hook: str, *arguments: object) -> bool:
        """Calls a hook of the adapter; its failure ends the generation."""
        try:
            generation.call_hook(hook, *arguments)
            return True
        except Exception as error:
            self.end_by_error(generation, to_adapter_error(error))
            return False

    def move_into_lower_slot(self) -> None:
        """Moves the last generation into the lowest free slot where that makes the batch's bucket smaller."""
        if self.slow_runs:
            return
        held = [one for one in self.slots if one is not None]
        if not held or self.waiting:
            return
        last = held[-1]
        free = next((slot for slot, one in enumerate(self.slots) if one is None), None)
        bucket = self.stepper.shape(len(held), 1, "greedy").batch
        if free is None or free > last.slot or last.slot < bucket or not last.is_decoding:
            return
        source, last.slot = last.slot, free
        self.rows.move(source, free)
        self.cache.move(source, free, last.tokens)
        self.slots[source], self.slots[free] = None, last
        last.call_hook("assign_row", free)

    # Prefill.

    def prefill(self) -> bool:
        """Runs one chunk of one prompt. Whatever goes wrong ends that generation alone."""
        for _ in range(len(self.prefills)):
            generation = self.prefills.popleft()
            if not generation.is_prefilling:
                continue
            if self.slow_runs and generation.group == SLOW:
                self.prefills.append(generation)
                continue
            self.slow_runs, before = self.slow_runs or generation.group == SLOW, self.slow_runs
            try:
                self.run_chunk(generation)
            except Exception as error:
                if is_fatal(error):
                    raise
                self.end_by_error(generation, error)
                free_cached_memory(error, self.model.device)
            finally:
                self.slow_runs = before
            if generation.is_prefilling:
                self.prefills.append(generation)
            return True
        return False

    def run_chunk(self, generation: Generation) -> None:
        """Runs the next chunk; after the last the first token is chosen and the generation decodes."""
        logits = read_chunk(generation, self.model, self.cache, self.rows, self.limits)
        self.totals["chunks"] += 1
        if generation.prefilled < len(generation.request.ids) or generation.cancelled:
            return
        slot = generation.slot
        generation.call_hook("assign_row", slot)
        self.rows.begin(slot, generation.group, generation.prefilled, logits, generation.kind)
        while len(self.unread) >= UNREAD_MAX:
            self.read_oldest_step()
        generation.launched = 1
        self.totals["prompt_tokens"] += generation.prefilled
        told = self.stepper.copy_chosen(slice(slot, slot + 1), generation.group)
        self.unread.append(UnreadStep(told, [(0, generation)]))

    # Results.

    def read_steps(self, keep: int) -> None:
        """Reads steps, the oldest first, until so many are left unread."""
        while len(self.unread) > keep:
            self.read_oldest_step()

    def read_oldest_step(self) -> None:
        """Reads one step and tells what came of it."""
        step = self.unread.popleft()
        tokens = step.told.read()
        told: list[tuple[int, int]] = []
        ended: list[tuple[Generation, str]] = []
        for index, generation in step.rows:
            if generation.ended:
                continue
            reason = self.record_token(generation, tokens[index], told)
            if reason:
                ended.append((generation, reason))
        if told:
            self.totals["completion_tokens"] += len(told)
            self.listener.emit_tokens(told)
        for generation, reason in ended:
            self.end_generation(generation, reason)

    def record_token(
        self, generation: Generation, token: int, told: list[tuple[int, int]]
    ) -> str | None:
        """Takes one token of a generation; gives the reason where it is the last."""
        if generation.failure is not None:
            return "failed"
        try:
            generation.call_hook("after_step")
        except Exception as error:
            generation.failure = Failure.from_error(to_adapter_error(error))
            return "failed"
        if token == NOT_FOUND:
            generation.failure = Failure("internal", "no allowed token has a finite logit")
            return "failed"
        if token in generation.request.stop_ids:
            return "stop"
        generation.sent += 1
        told.append((generation.request.number, token))
        return "length" if generation.sent == generation.request.max_tokens else None

    def end_by_error(self, generation: Generation, error: Exception) -> None:
        """Ends a generation by an error."""
        if isinstance(error, AdapterError) and error.kind == "cancelled":
            self.end_generation(generation, "cancelled")
            return
        if not isinstance(error, (AdapterError, OutOfMemory)):
            told = f"generation {generation.request.number}: {type(error).__name__}: {error}"
            print(told, file=sys.stderr, flush=True)
        generation.failure = Failure.from_error(error)
        self.end_generation(generation, "failed")

    def end_generation(self, generation: Generation, reason: str) -> None:
        """Frees the slot and tells the listener. Tokens that are still on their way are not read."""
        if generation.ended:
            return
        if generation.cancelled and reason == "failed":
            reason, generation.failure = "cancelled", None
        generation.ended = reason
        self.totals["failed"] += reason == "failed"
        if generation.slot != NO_SLOT:
            if reason not in ("length", "stop"):
                # What was not read may have been no number; masked places of the next text are multiplied by 0.
                self.cache.clear(generation.slot)
            self.rows.release(generation.slot)
            self.slots[generation.slot] = None
        if generation.opening is not None:
            generation.opening.add_done_callback(close_late)
        self.listener.emit_end(generation)
        if generation.deltas is not None:
            try:
                generation.call_hook("close")
            except Exception as error:
                told = f"adapter {generation.request.adapter}: close: {error}"
                print(told, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Stops the helpers."""
        self.openings.close()
