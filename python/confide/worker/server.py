"""The worker's socket: one connection at a time, frames in by a thread, frames out by a thread, steps in between."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from . import protocol
from .adapters import AdapterRegistry, WorkerContext, close, sites_on_wire
from .deltas import Adapter, AdapterError
from .generation import Generation, Request, RequestRefused
from .opening import on_device
from .protocol import ConnectionClosed, MalformedFrame, encode_json_frame, parse_object
from .relay import Mailbox
from .schedule import Scheduler

HELLO_SECONDS = 30.0
ACCEPT_AGAIN_SECONDS = 0.02
WRITE_SECONDS = 30.0
# What may wait to be written: two seconds of tokens of a full batch, or two of the largest frames.
OUTBOX_BYTES_MAX = 40 << 20
INBOX_FRAMES_MAX = 4096
# What is done even while a generation waits for its adapter; an adapter comes and goes between two turns only.
AT_ANY_TIME = frozenset((protocol.GENERATE, protocol.CANCEL, protocol.STATUS))


class Connection:
    """One peer. Reading and writing happen on threads of their own; `inbox` is emptied between steps."""

    def __init__(self, stream: socket.socket, wake: Callable[[], None]) -> None:
        self.stream, self.wake = stream, wake
        self.inbox: deque[tuple[int, bytes]] = deque()
        self.outbox: deque[bytes] = deque()
        self.pending = 0
        self.changed = threading.Condition()
        self.lost: str | None = None
        self.mailbox = Mailbox(
            lambda payload: self.send(protocol.encode_frame(protocol.NEED, payload))
        )
        for target in (self.read, self.write):
            threading.Thread(target=target, name=f"socket-{target.__name__}", daemon=True).start()

    def read(self) -> None:
        """Takes frames until the connection ends. GenerationDeltas go past the inbox, since a step waits for them."""
        try:
            while self.lost is None:
                kind, payload = protocol.read_frame(self.stream)
                if kind == protocol.DELTAS:
                    self.mailbox.deliver_answer(payload)
                    continue
                if len(self.inbox) >= INBOX_FRAMES_MAX:
                    raise MalformedFrame(
                        f"wanted at most {INBOX_FRAMES_MAX} waiting frames, got more"
                    )
                self.inbox.append((kind, payload))
                self.wake()
        except (ConnectionClosed, MalformedFrame, ValueError, OSError) as error:
            self.end_with(f"{error}")

    def send(self, frame: bytes) -> None:
        """Puts a frame into the outbox; one that is never emptied ends the connection."""
        with self.changed:
            if self.lost is not None:
                return
            self.outbox.append(frame)
            self.pending += len(frame)
            full = self.pending > OUTBOX_BYTES_MAX
            self.changed.notify_all()
        if full:
            self.end_with(
                f"peer does not read: wanted at most {OUTBOX_BYTES_MAX} waiting bytes, got more"
            )

    def write(self) -> None:
        """Writes each frame at once."""
        while True:
            with self.changed:
                while not self.outbox and self.lost is None:
                    self.changed.wait()
                if self.lost is not None:
                    return
                frame = self.outbox.popleft()
                self.pending -= len(frame)
            try:
                send_within(self.stream, frame, WRITE_SECONDS)
            except OSError as error:
                self.end_with(f"write: {error}")
                return

    def end_with(self, reason: str) -> None:
        """Ends the connection; the first reason counts."""
        with self.changed:
            if self.lost is None:
                self.lost = reason
            self.changed.notify_all()
        self.mailbox.close(reason)
        with contextlib.suppress(OSError):
            self.stream.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(OSError):
            self.stream.close()
        self.wake()


def send_within(stream: socket.socket, frame: bytes, seconds: float) -> None:
    """Writes a frame; TimeoutError where the peer takes nothing for so long."""
    import select

    view = memoryview(frame)
    while view:
        if not select.select([], [stream], [], seconds)[1]:
            raise TimeoutError(f"peer read nothing for {seconds:.0f} s")
        view = view[stream.send(view, socket.MSG_DONTWAIT) :]


class Server:
    """Listens, and turns the scheduler. Everything that touches the device happens in `run`."""

    def __init__(
        self,
        path: Path,
        scheduler: Scheduler,
        welcome: dict[str, Any],
        status: Callable[[], dict[str, Any]],
    ) -> None:
        self.path, self.scheduler, self.told, self.status = path, scheduler, welcome, status
        scheduler.listener, scheduler.wake = self, self.wake
        self.changed = threading.Condition()
        self.woken = self.stopping = False
        self.connection: Connection | None = None
        self.greeted = False
        self.adapters = self.make_adapters(None)
        self.loading: tuple[str, Future[Adapter]] | None = None
        self.loader = ThreadPoolExecutor(1, "load-adapter", on_device(scheduler.model.device))
        self.listener = self.listen()

    def listen(self) -> socket.socket:
        """Binds the path, which nobody but this user may use."""
        before = os.umask(0o177)
        try:
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            listener.bind(str(self.path))
        finally:
            os.umask(before)
        listener.listen(4)
        threading.Thread(target=self.accept, name="accept", daemon=True).start()
        return listener

    def accept(self) -> None:
        """Takes one connection at a time and closes any other."""
        while not self.stopping:
            try:
                stream, _ = self.listener.accept()
            except (OSError, AttributeError):
                # The thread may run before the field is set.
                if self.stopping:
                    return
                # Or this process has no file left for a stream: not to be asked again at once.
                time.sleep(ACCEPT_AGAIN_SECONDS)
                continue
            if self.connection is not None:
                stream.close()
                continue
            connection = Connection(stream, self.wake)
            self.connection = connection
            # Frames that came before the connection was set here have woken nobody.
            self.wake()
            timer = threading.Timer(HELLO_SECONDS, self.expect_hello, [connection])
            timer.daemon = True
            timer.start()

    def expect_hello(self, connection: Connection) -> None:
        """Ends a connection that has sent no hello: a silent peer must not keep others out."""
        if self.connection is connection and not self.greeted:
            connection.end_with(f"no hello within {HELLO_SECONDS:.0f} s")

    def wake(self) -> None:
        """Wakes the thread that takes turns."""
        with self.changed:
            self.woken = True
            self.changed.notify_all()

    def stop(self) -> None:
        """Ends `run` after the turn under way."""
        self.stopping = True
        self.wake()

    def run(self) -> None:
        """Serves until stopped."""
        with torch.inference_mode():
            while not self.stopping:
                self.take_frames()
                self.finish_load()
                if self.adapters.leaving and self.adapters.close_unused():
                    self.forget_graphs()
                if not self.scheduler.is_idle:
                    self.scheduler.run_round()
                    continue
                with self.changed:
                    if not self.woken:
                        self.changed.wait()
                    self.woken = False
            self.close()

    def close(self) -> None:
        """Ends the connection and takes the socket away."""
        self.drop_connection()
        self.scheduler.close()
        self.loader.shutdown(wait=False, cancel_futures=True)
        self.listener.close()
        self.path.unlink(missing_ok=True)

    # Frames in.

    def run_round_meanwhile(self) -> None:
        """Runs a round for others while one waits for its adapter."""
        self.take_frames(AT_ANY_TIME)
        self.scheduler.run_round_meanwhile()

    def take_frames(self, kinds: frozenset[int] = protocol.ASKED) -> None:
        """Does what the peer asked for since the last turn, in its order, up to the first frame of another kind."""
        connection = self.connection
        if connection is None:
            return
        while connection.inbox and connection.lost is None and connection.inbox[0][0] in kinds:
            kind, payload = connection.inbox.popleft()
            try:
                self.handle_frame(connection, kind, payload)
            except MalformedFrame as error:
                connection.end_with(str(error))
        if connection.lost is not None and kinds is not AT_ANY_TIME:
            self.drop_connection()

    def drop_connection(self) -> None:
        """Ends the connection: cancels its generations, forgets its adapters, and lets the next one in."""
        connection = self.connection
        if connection is None:
            return
        if connection.lost is None:
            connection.end_with("worker stops")
        print(f"connection ended: {connection.lost}", file=sys.stderr, flush=True)
        self.scheduler.cancel_all()
        self.scheduler.drop_cancelled()
        self.scheduler.read_steps(keep=0)
        self.adapters.clear()
        if self.loading is not None:
            self.loading[1].add_done_callback(close_loaded)
            self.loading = None
        self.greeted, self.connection = False, None

    def handle_frame(self, connection: Connection, kind: int, payload: bytes) -> None:
        """Does what one frame asks for."""
        if not self.greeted:
            if kind != protocol.HELLO:
                raise MalformedFrame(f"frame: wanted a hello first, got kind {kind:#04x}")
            self.answer_hello(connection, parse_object(payload))
        elif kind == protocol.GENERATE:
            self.generate(parse_object(payload))
        elif kind == protocol.CANCEL:
            if len(payload) != 4:
                raise MalformedFrame(f"cancel: wanted 4 bytes, got {len(payload)}")
            self.scheduler.cancel(int.from_bytes(payload, "little"))
        elif kind == protocol.LOAD_ADAPTER:
            self.load(parse_object(payload))
        elif kind == protocol.UNLOAD_ADAPTER:
            self.unload(parse_object(payload))
        elif kind == protocol.STATUS:
            connection.send(encode_json_frame(protocol.STATUS_TOLD, self.status()))
        else:
            raise MalformedFrame("frame: a second hello")

    def answer_hello(self, connection: Connection, hello: dict[str, Any]) -> None:
        """Answers a hello."""
        if hello.get("protocol") != protocol.PROTOCOL:
            raise MalformedFrame(
                f"hello: wanted protocol {protocol.PROTOCOL}, got {hello.get('protocol')!r}"
            )
        vocabulary = self.scheduler.rows.vocabulary
        known = hello.get("vocabulary", vocabulary)
        if not isinstance(known, int) or known < 1:
            raise MalformedFrame(f"hello: vocabulary: wanted at least 1, got {known!r}")
        self.scheduler.rows.known = min(known, vocabulary)
        self.adapters = self.make_adapters(connection.mailbox)
        connection.mailbox.pump = self.run_round_meanwhile
        connection.mailbox.is_cancelled = self.is_cancelled
        self.greeted = True
        connection.send(encode_json_frame(protocol.WELCOME, self.told))

    def is_cancelled(self, number: int) -> bool:
        """Whether a generation that waits for deltas was cancelled; later cancels are still in the inbox."""
        inbox = self.connection.inbox if self.connection is not None else ()
        for kind, payload in list(inbox):
            if kind == protocol.CANCEL and payload == number.to_bytes(4, "little"):
                self.scheduler.cancel(number)
        return self.scheduler.is_cancelled(number)

    def make_adapters(self, mailbox: Mailbox | None) -> AdapterRegistry:
        """Returns an empty set of adapters for the model, over `mailbox`."""
        model, cache = self.scheduler.model, self.scheduler.cache
        made = AdapterRegistry(
            WorkerContext(model.config, model.device, model.dtype, cache.size.slots, mailbox)
        )
        made.in_use = self.scheduler.uses
        return made

    def generate(self, raw: dict[str, Any]) -> None:
        """Takes a generation or says why not."""
        try:
            request = Request.parse(
                raw, self.scheduler.rows.vocabulary, self.scheduler.cache.size.context
            )
            adapter = None
            if request.adapter is not None:
                adapter = self.adapters.loaded.get(request.adapter)
                if adapter is None:
                    raise RequestRefused(
                        "unknown_adapter", f"no adapter {request.adapter!r} is loaded"
                    )
            if self.scheduler.is_running(request.number):
                raise MalformedFrame(
                    f"generate: id {request.number} belongs to a running generation"
                )
            self.scheduler.submit(request, adapter)
        except RequestRefused as error:
            told = {"kind": error.kind, "message": protocol.shorten(str(error))}
            self.send(encode_json_frame(protocol.REFUSED, {"id": raw["id"], "error": told}))
        except ValueError as error:
            raise MalformedFrame(str(error)) from error

    # Adapters.

    def load(self, raw: dict[str, Any]) -> None:
        """Begins to load an adapter while steps go on."""
        name, kind, spec = raw.get("name"), raw.get("kind"), raw.get("spec")
        if not isinstance(name, str) or not isinstance(kind, str) or not isinstance(spec, dict):
            raise MalformedFrame("load adapter: wanted name, kind and spec")
        if self.loading is not None:
            self.answer(name, error="another adapter is being loaded")
            return
        future = self.loader.submit(self.adapters.make, name, kind, spec)
        self.loading = (name, future)
        future.add_done_callback(lambda _: self.wake())

    def finish_load(self) -> None:
        """Attaches an adapter that has been made, between two steps."""
        if self.loading is None or not self.loading[1].done():
            return
        (name, future), self.loading = self.loading, None
        try:
            adapter = self.adapters.attach(name, future.result())
        except Exception as error:
            told = (
                str(error)
                if isinstance(error, AdapterError)
                else f"{type(error).__name__}: {error}"
            )
            self.answer(name, error=told)
            return
        guarantee = getattr(adapter, "guarantee", None)
        self.answer(name, sites=sites_on_wire(adapter.sites), guarantee=guarantee)
        self.forget_graphs()

    def unload(self, raw: dict[str, Any]) -> None:
        """Unloads an adapter by name. Raises `MalformedFrame` without a name."""
        name = raw.get("name")
        if not isinstance(name, str):
            raise MalformedFrame("unload adapter: wanted a name")
        try:
            self.adapters.unload(name)
        except AdapterError as error:
            self.answer(name, error=str(error))
            return
        self.answer(name)
        self.forget_graphs()

    def forget_graphs(self) -> None:
        """Forgets steps that were recorded with adapters, since what they read may have moved."""
        self.scheduler.stepper.forget_graphs(lambda keys: True)

    def answer(self, name: str, error: str | None = None, **more: Any) -> None:
        """Answers a request about the adapter `name`: done, or not done for the reason `error`."""
        told = {
            "name": name,
            "ok": error is None,
            **{key: value for key, value in more.items() if value is not None},
        }
        if error is not None:
            told["error"] = protocol.shorten(error)
        self.send(encode_json_frame(protocol.ADAPTER, told))

    # Frames out.

    def send(self, frame: bytes) -> None:
        """Sends a frame, where a connection is."""
        if self.connection is not None:
            self.connection.send(frame)

    def emit_tokens(self, told: list[tuple[int, int]]) -> None:
        """Sends the tokens of a step, each with its generation's number."""
        self.send(protocol.encode_tokens_frame(told))

    def emit_end(self, generation: Generation) -> None:
        """Sends the end of a generation, with its error cut to what a frame takes."""
        told = generation.end_frame()
        if told["error"] is not None:
            told["error"]["message"] = protocol.shorten(told["error"]["message"])
        self.send(encode_json_frame(protocol.ENDED, told))


def close_loaded(future: Future[Adapter]) -> None:
    """Closes an adapter that came after its connection had ended."""
    if not future.cancelled() and future.exception() is None:
        close(future.result())
