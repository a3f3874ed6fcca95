"""An adapter host in a process of its own on the same device, which the worker starts: the kind `ipc`.

The session is opened by the blind protocol over a Unix socket in a folder of mode 0700. Masked vectors, ciphertexts and
answers then stay where they are: in device memory that both processes opened (CUDA IPC), or in a mapped file where
there is no device. The host process sees what a host sees, and no activation. It was started from the worker's own disk
by the worker, though: whoever runs the worker can read the adapter, and the guarantee says so.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .._extension import native
from ..cuda import arrays, parameters, ring
from ..cuda.mask_stream import TILE
from ..cuda.shared import SharedWords
from .batches import CounterRange, MaskBatch, encrypted_masks
from .channel import dial_unix
from .errors import BlindError, HostLost, ProtocolError, Refusal
from .frames import ANSWER_DEADLINE_S, STEP_DEADLINE_S
from .holder import RemoteAdapter, side_stream
from .host import AdapterHost, HostOptions
from .lane import APPLY, BEGIN, FINISH, PUSH, Lane, Request
from .online_step import VECTORS_MAX
from .serving import Server
from .session import HolderOptions, HolderSession, Meter

UNLIMITED = 1 << 62
_START_S = 120.0
_LINE_BYTES = 4096


class IpcAdapter(RemoteAdapter):
    """A key holder whose host is a child of its own."""

    def __init__(
        self,
        name: str,
        folder: str,
        device: str,
        set_name: str = parameters.DEFAULT,
        protect: str = "a",
        mode: str = "full",
        budget: int | None = None,
        dangerous_parameters: bool = False,
    ) -> None:
        shared = "/dev/shm" if os.path.isdir("/dev/shm") else None
        self._place = Path(tempfile.mkdtemp(prefix="confide-ipc-", dir=shared))
        self._lanes: list[Lane] = []
        self._offline_turn, self._ended = threading.Lock(), False
        try:
            host_options = {
                "folder": folder, "device": device, "parameters": set_name, "protect": protect, "mode": mode,
                "budget": str(UNLIMITED if budget is None else budget),
            }  # fmt: skip
            self._child = _start_host(self._place, name, host_options)
            options = HolderOptions(
                name, set_name, protect, device=device, dangerous_parameters=dangerous_parameters
            )
            super().__init__(
                name,
                dial_unix(str(self._place / "blind")),
                f"process {self._child.pid}",
                options,
                prepare_ahead=False,
            )
            terms = self.session.terms
            columns, rows = max(each.columns for each in terms), max(each.rows for each in terms)
            context = self.session.context
            self._online_lane = self._make_lane("online", VECTORS_MAX * columns, VECTORS_MAX * rows)
            self._offline_lane = self._make_lane(
                "offline", TILE * context.limbs * context.n, 2 * rows * context.n
            )
            threading.Thread(
                target=self._prepare_ahead, name="confide-prepare", daemon=True
            ).start()
        except BaseException:
            self._stop_host()
            raise

    @property
    def guarantee(self) -> str:
        """The host cannot read activations; this process started it, from an adapter that this process can read."""
        chosen = self.session.parameters
        blind = chosen.security_bits >= parameters.SECURITY_BITS_MIN
        return native.describe_guarantee(
            host_is_blind=blind,
            adapter_stays=False,
            b_is_handed_over=self.session.welcome.protect == "a",
            adapter_can_be_learned=True,
        )

    def close(self) -> None:
        """Ends the session and the host."""
        try:
            super().close()
        finally:
            self._stop_host()

    def _stop_host(self) -> None:
        self._ended = True
        for held in self._lanes:
            held.close()
        child = self.__dict__.get("_child")
        if child is not None:
            # The end of its standard input means: stop.
            child.stdin.close()
            try:
                child.wait(5)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
            child.stdout.close()
        # Threads that ask or prepare have left the words by then: their bells are gone.
        with self.__dict__.get("_lock", contextlib.nullcontext()), self._offline_turn:
            while self._lanes:
                self._lanes.pop().release_memory()
        shutil.rmtree(self._place, ignore_errors=True)

    def _make_lane(self, name: str, request_words: int, answer_words: int) -> Lane:
        device = self.options.device
        request = SharedWords(device, self._place / f"{name}.request", request_words)
        answer = SharedWords(device, self._place / f"{name}.answer", answer_words)
        bell = dial_unix(str(self._place / "lanes"))()
        made = Lane(self._place / f"{name}.head", bell, request, answer, make=True)
        self._lanes.append(made)
        attach = self.session.attach
        line = {
            "name": name,
            "client": attach.client.hex(),
            "epoch": attach.epoch.hex(),
            "token": attach.token.hex(),
            "request": [request_words, request.handle.hex()],
            "answer": [answer_words, answer.handle.hex()],
        }
        bell.sendall(json.dumps(line).encode() + b"\n")
        bell.settimeout(ANSWER_DEADLINE_S)
        if bell.recv(1) != b"\n":
            raise HostLost(f"adapter host {self.host}: it did not open the memory of lane {name}")
        return made

    def _apply_rows(
        self,
        session: HolderSession,
        input_index: int,
        step: Any,
        taken: CounterRange,
        done: int,
        meter: Meter,
    ) -> None:
        if self._ended:
            raise ProtocolError("the host was ended")
        terms, lane = session.terms[input_index], self._online_lane
        lane.idle = self.idle
        step.mask_into(taken, done, lane.request.words)
        _, left = lane.send_request(
            Request(APPLY, input_index, taken.counter, taken.count), ANSWER_DEADLINE_S
        )
        answers = lane.answer.words[: taken.count * terms.rows].reshape(taken.count, terms.rows)
        step.unmask_words(taken, done, answers)
        self._record_answers(session, input_index, taken, left, meter)

    def _prepare_batch(self, session: HolderSession, input_index: int, channel: Any) -> MaskBatch:
        """Prepares a batch as `batches.prepare_batch` does, through memory that both see, without the channel."""
        # A lane has one asker at a time.
        with self._offline_turn:
            if self._ended:
                raise ProtocolError("the host was ended")
            return self._prepare_batch_locked(session, input_index)

    def _prepare_batch_locked(self, session: HolderSession, input_index: int) -> MaskBatch:
        terms, context, lane = session.terms[input_index], session.context, self._offline_lane
        number, _ = lane.send_request(Request(BEGIN, input_index, 0, 0), STEP_DEADLINE_S)
        key = os.urandom(32)
        for first, count, seeded in encrypted_masks(context, session.secret, terms, key):
            words = count * context.limbs * context.n
            arrays.copy(lane.request.words[:words], seeded.c0)
            arrays.synchronize(self.options.device)
            if len(set(seeded.seeds)) != 1 or seeded.indices != list(range(first, first + count)):
                raise ProtocolError(
                    "encryptor: wanted one seed and indices in the order of the columns"
                )
            lane.send_request(
                Request(PUSH, input_index, first, count, seeded.seeds[0], seeded.indices[0]),
                STEP_DEADLINE_S,
            )
        lane.send_request(Request(FINISH, input_index, 0, 0), STEP_DEADLINE_S)
        half = terms.rows * context.n
        parts = [
            lane.answer.words[at : at + half].reshape(terms.rows, context.n) for at in (0, half)
        ]
        prepared = arrays.transpose_and_wipe(
            session.secret.decrypt(ring.SmallCiphertexts(context, *parts))
        )
        arrays.synchronize(self.options.device)
        return MaskBatch(context.device, number, key, prepared)


def _start_host(place: Path, name: str, options: dict[str, str]) -> subprocess.Popen[bytes]:
    """Starts the host's process and gives it once it listens; `options` are those of `main` by name."""
    line = [sys.executable, "-m", "confide.blind.ipc", "--place", str(place), "--name", name]
    line += [word for option, value in options.items() for word in (f"--{option}", value)]
    package = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
    child = subprocess.Popen(
        line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": path}
    )
    timer = threading.Timer(_START_S, child.kill)
    timer.start()
    try:
        ready = child.stdout.readline() if child.stdout else b""
    finally:
        timer.cancel()
    if not ready.startswith(b'{"ready":true'):
        child.kill()
        child.wait()
        raise HostLost(
            f"adapter host of {name}: it ended with status {child.returncode} before it was ready"
        )
    return child


def main(arguments: list[str] | None = None) -> int:
    """Runs the host's process. The worker starts it; it is not for people."""
    parser = argparse.ArgumentParser(prog="python -m confide.blind.ipc", description=main.__doc__)
    for option in ("place", "name", "folder", "device", "parameters", "protect", "mode"):
        parser.add_argument(f"--{option}", required=True)
    parser.add_argument("--budget", type=int, required=True)
    given = parser.parse_args(arguments)
    chosen = parameters.find_set(given.parameters, dangerous=True)
    host = AdapterHost(
        HostOptions(chosen, given.protect, given.budget, rank_max=1024, device=given.device)
    )
    host.load(given.folder, given.mode == "final-hidden", given.name)
    place = Path(given.place)
    listeners = [_listen(place / name) for name in ("blind", "lanes")]
    server = Server(host, listeners[0])
    threading.Thread(target=server.run, daemon=True).start()
    threading.Thread(target=_accept_lanes, args=(host, listeners[1], place), daemon=True).start()
    print('{"ready":true}', flush=True)
    # The end of standard input means: stop.
    sys.stdin.buffer.read()
    server.stop()
    # Where the worker was killed nobody else takes this away.
    shutil.rmtree(place, ignore_errors=True)
    return 0


def _listen(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen(16)
    return listener


def _accept_lanes(host: AdapterHost, listener: socket.socket, place: Path) -> None:
    while True:
        bell, _ = listener.accept()
        threading.Thread(target=_serve_lane, args=(host, bell, place), daemon=True).start()


def _serve_lane(host: AdapterHost, bell: socket.socket, place: Path) -> None:
    bell.settimeout(ANSWER_DEADLINE_S)
    raw = b""
    while not raw.endswith(b"\n") and len(raw) < _LINE_BYTES:
        part = bell.recv(_LINE_BYTES - len(raw))
        if not part:
            return
        raw += part
    line = json.loads(raw)
    if line["name"] not in ("online", "offline"):
        return
    session, _ = host.attach_connection(
        native.Attach(*(bytes.fromhex(line[field]) for field in ("client", "epoch", "token")))
    )
    device = host.options.device
    words = {
        part: SharedWords(
            device,
            place / f"{line['name']}.{part}",
            line[part][0],
            bytes.fromhex(line[part][1]),
            make=False,
        )
        for part in ("request", "answer")
    }
    lane = Lane(place / f"{line['name']}.head", bell, words["request"], words["answer"], make=False)
    bell.sendall(b"\n")
    # Each lane has a stream of its own, and that of the tokens goes first.
    with (
        contextlib.suppress(BlindError),
        side_stream(device, first=line["name"] == "online") as wait,
    ):
        _answer_all(host, session, lane, wait)
    host.record_disconnect(session)


def _answer_all(host: AdapterHost, session: Any, lane: Lane, wait: Callable[[], None]) -> None:
    state: dict[str, Any] = {}
    while True:
        request = lane.next_request()
        try:
            detail, left = _answer(host, session, lane, request, state)
            wait()
        except Refusal as refusal:
            lane.reply(refusal=refusal)
        except (ValueError, RuntimeError) as error:
            print(f"adapter host: operation {request.operation}: {error}", file=sys.stderr)
            lane.reply(refusal=Refusal("internal"))
        else:
            lane.reply(detail, left)


def _answer(
    host: AdapterHost, session: Any, lane: Lane, request: Request, state: dict[str, Any]
) -> tuple[int, int | None]:
    """Does one operation; gives its detail and the budget left. Its words are left in the lane."""
    if request.input_index >= len(session.adapter.products):
        raise Refusal("not-offered")
    terms, context = session.adapter.products[request.input_index].terms, host.context
    if request.operation == APPLY:
        if not 1 <= request.count <= VECTORS_MAX:
            raise Refusal("malformed")
        words = lane.request.words[: request.count * terms.columns].reshape(
            request.count, terms.columns
        )
        answers, left = host.answer_vectors(session, request.input_index, request.first, words)
        arrays.copy(lane.answer.words[: request.count * terms.rows], answers)
        return 0, left
    if request.operation == BEGIN:
        state["preparing"] = host.begin_batch(session, request.input_index)
        return state["preparing"].batch, None
    preparing = state.get("preparing")
    if preparing is None or preparing.index != request.input_index:
        raise Refusal("malformed")
    if request.operation == PUSH:
        if not 1 <= request.count <= TILE or request.first != preparing.pushed:
            raise Refusal("malformed")
        words = lane.request.words[: request.count * context.limbs * context.n]
        c0 = words.reshape(request.count, context.limbs, context.n)
        indices = list(range(request.index, request.index + request.count))
        preparing.push(
            ring.SeededCiphertexts(context, c0, [request.seed] * request.count, indices),
            request.count,
        )
        return 0, None
    if request.operation == FINISH:
        small = state.pop("preparing").finish()
        half = terms.rows * context.n
        for at, part in ((0, small.c0), (half, small.c1)):
            arrays.copy(lane.answer.words[at : at + half], part)
        return 0, None
    raise Refusal("malformed")


if __name__ == "__main__":
    ended = main()
    sys.stdout.flush()
    # Threads that wait for a lane, or are on the device, must not keep the process.
    os._exit(ended)
