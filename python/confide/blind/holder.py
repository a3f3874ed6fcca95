"""The key holder: runs the base model, holds the secret key, and asks an adapter host about vectors it cannot read.

`RemoteAdapter` is an adapter as the worker meets it. Masks are prepared in the background, on a thread and, on a CUDA
device, a stream of their own, while tokens run; online each input of a layer is one round trip. A counter is used once:
what was on its way when a connection broke is lost, and the rest goes on with a new connection of the same session.
Where the host does not know the session any more, everything prepared is thrown away and the generation ends.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from .._extension import native
from ..cuda.parameters import SECURITY_BITS_MIN
from ..sites import source_number
from .batches import CounterRange, MaskBatch, prepare_batch
from .channel import Channel, Dial, translate_error
from .errors import (
    BlindError,
    BudgetExhausted,
    HostRefused,
    HostRestarted,
    NotPrepared,
    ProtocolError,
    Refusal,
    RequestAbandoned,
)
from .host import BATCHES_MAX
from .online_step import VECTORS_MAX, OnlineStep
from .pack import packed_bytes
from .session import HolderOptions, HolderSession, Meter
from .terms import InputTerms, adapter_sites

_LOOK_EVERY_S, _RETRY_S, _MASK_SLICE_S = 2.0, 0.5, 0.002


class RemoteAdapter:
    """An adapter at an adapter host. `close()` says goodbye; generations that still run end with HostLost."""

    def __init__(
        self, name: str, dial: Dial, host: str, options: HolderOptions, prepare_ahead: bool = True
    ) -> None:
        self.name, self.host, self.options = name, host, options
        self._dial = dial
        # What the thread that asks about tokens does while the host computes: others' steps. It raises
        # `RequestAbandoned` where those whose numbers are in `asking` were cancelled.
        self.idle: Callable[[], None] = lambda: None
        self.asking: list[int] = []
        self._online: Channel | None = Channel(dial, host)
        with self._translate_errors():
            self.session = _open_session(self._online, options)
        self.sites = adapter_sites(self.session.terms)
        self._offline: tuple[float, int] | None = None
        self._changed = threading.Condition()
        self._lock, self._stopping = threading.RLock(), False
        tokens = self.session.context.n
        self.wanted = max(tokens // 4, 1) if options.low_water is None else options.low_water
        self._steps: dict[int, OnlineStep] = {}
        if prepare_ahead:
            threading.Thread(
                target=self._prepare_ahead, name="confide-prepare", daemon=True
            ).start()

    @property
    def guarantee(self) -> str:
        """Who is protected from whom, computed from the session."""
        session, welcome = self.session, self.session.welcome
        # No budget keeps an adapter from a key holder whose evidence was not accepted.
        learned = not welcome.trusted
        return native.describe_guarantee(
            host_is_blind=session.parameters.security_bits >= SECURITY_BITS_MIN,
            adapter_stays=session.parameters.flood_bits > 0,
            b_is_handed_over=welcome.protect == "a",
            adapter_can_be_learned=learned or welcome.can_be_learned,
            simulated=welcome.simulated,
        )

    def open(self) -> RemoteDeltas:
        """Begins a generation; a session that the host has forgotten is begun again."""
        with self._lock:
            if self.session.dead:
                self._open_new_session()
        return RemoteDeltas(self, self.session)

    def measure_offline(self) -> tuple[float, int]:
        """Times the preparing of one batch of every input with the host: milliseconds, and the tokens it serves.

        Measured once: the batches are kept for later tokens, and a host holds few of each input.
        """
        if self._offline is None:
            session = self.session
            with self._translate_errors(), side_stream(self.options.device) as wait:
                channel = self._attach_channel(session)
                began = time.perf_counter()
                made = [
                    self._prepare_batch(session, input_index, channel)
                    for input_index in range(len(session.terms))
                ]
                wait()
                self._offline = (time.perf_counter() - began) * 1e3, session.context.n
                for pool, batch in zip(session.pools, made):
                    pool.add_batch(batch)
                channel.say_goodbye(session=False)
        return self._offline

    def prepare(self, vectors: int, seconds: float) -> int:
        """Waits until `vectors` can be asked about each input; gives the least that can."""
        self.wanted = max(self.wanted, min(vectors, self.session.context.n * BATCHES_MAX))
        until = time.monotonic() + seconds
        with self._changed:
            self._changed.notify_all()
            while (least := min(pool.remaining for pool in self.session.pools)) < vectors:
                if self.session.dead or time.monotonic() >= until:
                    raise self._not_prepared(seconds)
                self._changed.wait(min(1.0, max(until - time.monotonic(), 0.01)))
        return least

    def close(self) -> None:
        """Ends the session."""
        self._stopping = True
        with self._changed:
            self._changed.notify_all()
        with self._lock:
            if self._online is not None:
                self._online.say_goodbye(session=True)
                self._online = None
            self.session.wipe()

    def add(
        self,
        layer: int,
        source: str,
        rows: Any,
        outputs: dict[str, Any],
        deltas: list[RemoteDeltas | None],
    ) -> None:
        """Adds the deltas of a decode batch: row i belongs to `deltas[i]`. All rows of this adapter are one request."""
        mine = [(index, one) for index, one in enumerate(deltas) if one is not None]
        for session in {id(one.session): one.session for _, one in mine}.values():
            members = [(index, one) for index, one in mine if one.session is session]
            chosen, meter = [index for index, _ in members], Meter()
            self.asking = [one.number for _, one in members]
            # A recorded step may have more rows than there are generations.
            if len(chosen) == rows.shape[0]:
                self.add_rows(session, layer, source, rows, outputs, meter)
            else:
                some = {name: output[chosen] for name, output in outputs.items()}
                self.add_rows(session, layer, source, rows[chosen], some, meter)
                for name, output in outputs.items():
                    output[chosen] = some[name]
            for _, one in members:
                one.meter.add_share(meter, len(chosen))

    def add_rows(
        self,
        session: HolderSession,
        layer: int,
        source: str,
        rows: Any,
        outputs: dict[str, Any],
        meter: Meter,
    ) -> None:
        """Asks about all rows [T, width] and adds their deltas; the outputs stay as they were after any refusal."""
        input_index = session.by_input.get((layer, source_number(source)))
        if input_index is None or rows.shape[0] == 0:
            return
        if not any(part.projection in outputs for part in session.terms[input_index].parts):
            return
        with self._lock:
            step = self._request_products(session, input_index, rows, meter)
            began = time.perf_counter()
            step.add(outputs)
            meter.add_ms("b_ms", began)

    def _request_products(
        self, session: HolderSession, input_index: int, rows: Any, meter: Meter
    ) -> OnlineStep:
        """Asks about all rows; what has to be added is left in the step."""
        step = self._online_step(session, input_index)
        step.begin(rows)
        done = 0
        while done < rows.shape[0]:
            at_once = min(
                rows.shape[0] - done,
                VECTORS_MAX,
                self._max_vectors_per_frame(session.terms[input_index]),
            )
            with self._translate_errors():
                taken = self._take_counters(session, input_index, at_once)
                try:
                    self._apply_rows(session, input_index, step, taken, done, meter)
                except ProtocolError:
                    # Counters that were on their way are burnt; others are asked with, once.
                    self._reconnect(session)
                    taken = self._take_counters(session, input_index, taken.count)
                    self._apply_rows(session, input_index, step, taken, done, meter)
            done += taken.count
        return step

    def _apply_rows(
        self,
        session: HolderSession,
        input_index: int,
        step: OnlineStep,
        taken: CounterRange,
        done: int,
        meter: Meter,
    ) -> None:
        terms = session.terms[input_index]
        began = time.perf_counter()
        packed = step.mask(taken, done)
        meter.add_ms("mask_ms", began)
        if self._online is None:
            raise ProtocolError("the connection was lost")
        began, before = time.perf_counter(), self._online.byte_count
        request = native.MaskedRequest(
            terms.layer, terms.source, taken.counter, taken.count, packed
        )
        answer = self._online.request(request, native.MaskedAnswer, self.idle)
        if answer.vectors != taken.count or not answer.is_packed(terms.bits, terms.rows):
            raise ProtocolError(
                "products: packed: wanted a product below 2^k for each vector in the request"
            )
        meter.add_ms("network_ms", began)
        meter.online_bytes += self._online.byte_count - before
        step.unmask(taken, done, answer.packed)
        self._record_answers(session, input_index, taken, answer.budget_left, meter)

    def _record_answers(
        self,
        session: HolderSession,
        input_index: int,
        taken: CounterRange,
        left: int | None,
        meter: Meter,
    ) -> None:
        terms = session.terms[input_index]
        session.budget_left[input_index] = left
        meter.round_trips += 1
        meter.answered_vectors += taken.count
        meter.budget_left = (
            left if meter.budget_left is None or left is None else min(meter.budget_left, left)
        )
        # This generation's share of the batch: encryptions, scalar products, decryptions.
        of_batch = terms.columns + terms.rows * terms.columns + terms.rows
        meter.he_operations += -(-of_batch * taken.count // session.context.n)

    def _take_counters(
        self, session: HolderSession, input_index: int, vectors: int
    ) -> CounterRange:
        until = time.monotonic() + self.options.mask_deadline_s
        while True:
            if session.dead or self._stopping:
                raise HostRestarted(self.host)
            if taken := session.pools[input_index].take_counters(vectors):
                with self._changed:
                    self._changed.notify_all()
                return taken
            if session.budget_left[input_index] == 0:
                raise BudgetExhausted(self.host, session.budgets[input_index] or 0)
            if time.monotonic() >= until:
                raise self._not_prepared(self.options.mask_deadline_s)
            with self._changed:
                self._changed.notify_all()
                self._changed.wait(_MASK_SLICE_S)
            self.idle()

    def _not_prepared(self, seconds: float) -> NotPrepared:
        return NotPrepared(f"adapter host {self.host}: no prepared masks within {seconds:.0f} s")

    def _online_step(self, session: HolderSession, input_index: int) -> OnlineStep:
        step = self._steps.get(input_index)
        if step is None or step.session is not session:
            step = self._steps[input_index] = OnlineStep(
                session, session.terms[input_index], self.options.device
            )
        return step

    def _max_vectors_per_frame(self, terms: InputTerms) -> int:
        return max(
            min(
                (4 << 20) // packed_bytes(terms.columns, 36),
                (16 << 20) // packed_bytes(terms.rows, 36),
            )
            - 1,
            1,
        )

    def _reconnect(self, session: HolderSession) -> None:
        """Attaches the same session over a new connection."""
        if self._online is not None:
            self._online.frames.close()
            self._online = None
        self._online = self._attach_channel(session)

    def _attach_channel(self, session: HolderSession) -> Channel:
        channel = Channel(self._dial, self.host)
        try:
            channel.attach(session.attach)
        except BlindError as error:
            channel.frames.close()
            if isinstance(error, Refusal) and error.name == "no-session":
                session.wipe()
            raise
        return channel

    def _open_new_session(self) -> None:
        with self._translate_errors():
            channel = Channel(self._dial, self.host)
            fresh = _open_session(channel, self.options)
        if adapter_sites(fresh.terms) != self.sites:
            channel.say_goodbye(session=True)
            raise HostRefused(f"adapter host {self.host} offers other projections than before")
        self._online, self.session = channel, fresh

    @contextlib.contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except BlindError as error:
            # Neither is there before the first session is.
            session: HolderSession | None = getattr(self, "session", None)
            online: Channel | None = getattr(self, "_online", None)
            if isinstance(error, Refusal) and error.name == "no-session" and session is not None:
                session.wipe()
            if not isinstance(error, (Refusal, ProtocolError, RequestAbandoned)):
                raise
            if not isinstance(error, Refusal) and online is not None:
                # An answer may still be on its way: nothing more is asked there.
                online.frames.close()
                self._online = None
            if isinstance(error, RequestAbandoned):
                raise
            raise translate_error(error, self.host) from error

    def _prepare_ahead(self) -> None:
        channel, held = None, None
        with side_stream(self.options.device) as wait:
            while not self._stopping:
                session = self.session
                input_index = None if session.dead else self._next_to_prepare(session)
                if input_index is None:
                    with self._changed:
                        self._changed.wait(_RETRY_S if session.dead else _LOOK_EVERY_S)
                    continue
                pool = session.pools[input_index]
                try:
                    if channel is None or held is not session:
                        channel, held = self._attach_channel(session), session
                    batch = self._prepare_batch(session, input_index, channel)
                    wait()
                    if session.dead:
                        batch.wipe()
                    else:
                        pool.add_batch(batch)
                except (BlindError, RuntimeError) as error:
                    if channel is not None:
                        channel.frames.close()
                    channel = None
                    # A key that was wiped under this thread is not a fault: the session ended.
                    if isinstance(error, RuntimeError) and not session.dead:
                        raise
                    if not self._stopping:
                        time.sleep(_RETRY_S)
                finally:
                    pool.preparing = False
                    with self._changed:
                        self._changed.notify_all()
        if channel is not None:
            channel.say_goodbye(session=False)

    def _prepare_batch(
        self, session: HolderSession, input_index: int, channel: Channel
    ) -> MaskBatch:
        return prepare_batch(channel, session.context, session.secret, session.terms[input_index])

    def _next_to_prepare(self, session: HolderSession) -> int | None:
        """Picks the input with the fewest vectors left, if any has too few. What no budget allows is not prepared."""
        best = None
        for input_index, pool in enumerate(session.pools):
            left, budget = pool.remaining, session.budget_left[input_index]
            wanted = self.wanted if budget is None else min(self.wanted, budget)
            short = not pool.preparing and left < wanted and pool.batches < BATCHES_MAX
            if short and (best is None or left < session.pools[best].remaining):
                best = input_index
        if best is not None:
            session.pools[best].preparing = True
        return best


def _open_session(channel: Channel, options: HolderOptions) -> HolderSession:
    try:
        return HolderSession(channel, options)
    except BaseException:
        channel.frames.close()
        raise


@contextlib.contextmanager
def side_stream(device: str, first: bool = False) -> Iterator[Callable[[], None]]:
    """Sends work inside to a CUDA stream of its own, ahead of others' with `first`; yields what waits for it."""
    if device == "cpu":
        yield lambda: None
        return
    import torch

    torch.cuda.set_device(device)
    stream = torch.cuda.Stream(device=device, priority=-1 if first else 0)
    # Keys and tables were made on another stream, and may still be on their way.
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        yield stream.synchronize


class RemoteDeltas:
    """One generation's deltas; all generations share the adapter's counters. Never part of a CUDA graph."""

    capturable = False

    def __init__(self, adapter: RemoteAdapter, session: HolderSession) -> None:
        self.adapter, self.session, self.meter = adapter, session, Meter()
        self.guarantee = adapter.guarantee
        self.grouped, self.number = adapter, 0

    def set_generation(self, number: int) -> None:
        """Takes the generation's number."""
        self.number = number

    def add(self, layer: int, source: str, rows: Any, outputs: dict[str, Any]) -> None:
        """Adds, in place, to `outputs` [T, width of each] what the adapter makes of `rows` [T, width]."""
        self.adapter.asking = [self.number]
        self.adapter.add_rows(self.session, layer, source, rows, outputs, self.meter)

    def report(self) -> dict[str, Any]:
        """Reports what the generation has taken until now."""
        meter = self.meter
        return {
            "he_operations": meter.he_operations,
            "answered_vectors": meter.answered_vectors,
            "budget_left": meter.budget_left,
            "round_trips": meter.round_trips,
            "online_bytes": meter.online_bytes,
            "steps_ms": dict(meter.steps_ms),
            "guarantee": self.guarantee,
        }

    def close(self) -> None:
        """Does nothing: nothing is held for one generation alone."""
