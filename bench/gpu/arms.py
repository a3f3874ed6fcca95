"""Arms of the decode benches: the worker's loop with an adapter of each kind, with and without the offline work."""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import adapter as made
import torch
from blocks import Arm, ArmFailed, Measurement, StageSession
from confide.worker.deltas import Adapter, AdapterError
from decode_loop import PROMPT, TOKENS, DecodeLoop
from device import Device
from probe import choose_decoder
from steps import TOY

LEAST_VECTORS = 64


class AdapterUnavailable(Exception):
    """A kind of adapter cannot be had on this machine; the text is the reason."""


@dataclass
class OfflineWork:
    """The offline work of a batch of masks: milliseconds for all inputs of the adapter, and the tokens it lasts for."""

    milliseconds: float
    tokens: int

    @property
    def token_ms(self) -> float:
        """Milliseconds of offline work for one token."""
        return self.milliseconds / self.tokens


class AdapterKit:
    """A loop's adapters, made once. `folder` holds the PEFT files for as long as the kit lives."""

    def __init__(self, session: StageSession, loop: DecodeLoop) -> None:
        self.session, self.loop = session, loop
        self._folder = tempfile.TemporaryDirectory(prefix="confide-gpu-")
        self.folder = Path(self._folder.name)
        self.path = made.write_random_adapter(self.folder / "lora", loop.config)

    def load(self, label: str, kind: str, **spec: Any) -> Adapter:
        """An adapter of this kind, loaded into the loop's worker."""
        try:
            return self.loop.adapters.load(label, kind, spec)
        except (AdapterError, NotImplementedError, OSError) as error:
            raise AdapterUnavailable(f"{kind}: {error}"[:300]) from error

    def load_plain(self) -> Adapter:
        """The adapter in the clear."""
        return self.load("plain", "plain", path=str(self.path))

    def load_one_graph(self) -> Adapter:
        """The masked deltas of every projection, both roles in this process."""
        return self.load_masked("graph", "one-graph")

    def load_final_hidden(self) -> Adapter:
        """The masked delta on the last hidden state, both roles in this process."""
        return self.load_masked("hidden", "one-graph", mode="final-hidden")

    def load_masked(self, label: str, kind: str, path: str | None = "", **spec: Any) -> Adapter:
        """An adapter of the masked scheme, its batches of masks prepared: what runs later prepares none."""
        where = {} if path is None else {"path": path or str(self.path)}
        held = self.load(label, kind, **where, **(TOY if self.session.cpu else {}), **spec)
        try:
            wait_until_prepared(held, self.session.remaining_s() * 0.45)
        except AdapterError as error:
            raise AdapterUnavailable(f"{kind}: {error}"[:300]) from error
        return held

    def close(self) -> None:
        """Removes the files."""
        self._folder.cleanup()


@contextlib.contextmanager
def open_kit(session: StageSession, **options: Any) -> Iterator[AdapterKit]:
    """A kit of a decode loop with one slot; after a failure the loop stays as it is, since the stage's process ends."""
    kit = AdapterKit(session, DecodeLoop(Device(session.cpu), slots=1, **options))
    choose_decoder(session, kit.loop)
    try:
        yield kit
    finally:
        kit.close()
    kit.loop.close()


def wait_until_prepared(held: Any, seconds: float) -> None:
    """Waits until the batches of every input that a bench uses up are there, so that no preparation runs during what
    is timed. With a host it is one batch, and the one that is timed: it may take seconds over a socket.
    """
    if hasattr(held, "prepare"):
        held.wanted = 0
        timer = threading.Timer(seconds, held.close)
        timer.daemon = True
        timer.start()
        try:
            held.measure_offline()
        except Exception as error:
            raise AdapterUnavailable(f"{error}; masks: wanted in {seconds:.0f} s") from error
        finally:
            timer.cancel()
            # The next batch is begun when hardly anything is left, so that none is prepared while something is timed.
            held.wanted = LEAST_VECTORS
        return
    until, context = time.monotonic() + seconds, getattr(held, "context", held)
    states = getattr(held, "inputs", [])
    while any(
        state.pool.installed - state.pool.next_counter() // context.n < 2 for state in states
    ):
        if time.monotonic() > until:
            raise AdapterUnavailable("its masks were not prepared in time")
        time.sleep(0.02)


def decode_arm(
    session: StageSession,
    loop: DecodeLoop,
    name: str,
    adapter: Any,
) -> Arm:
    """The arm whose slots all decode with this adapter (None for the base, a list for one each)."""
    adapters = adapter if isinstance(adapter, list) else [adapter] * loop.slots
    held = next((one for one in adapters if one is not None), None)
    offline = time_offline_work(loop, held)
    tokens = 12 if session.cpu else TOKENS
    price = session.facts.get("price")

    def run(seed: int) -> Measurement:
        floor = loop.weight_read_floor(loop.slots)
        run_result = loop.run(seed, tokens, PROMPT if not session.cpu else 8, adapters)
        if run_result.seconds <= 0 or run_result.tokens < tokens // 2:
            raise ArmFailed(f"{run_result.tokens} tokens in {run_result.seconds} s")
        online = run_result.tokens / run_result.seconds
        token_ms = 1e3 / online + (offline.token_ms if offline else 0.0)
        metrics = {
            "tokens_per_s": 1e3 / token_ms,
            "online_tokens_per_s": online,
            "token_ms": token_ms * loop.slots,
        }
        if offline:
            metrics["offline_ms"] = offline.token_ms
        if price:
            metrics["dollars_per_mtoken"] = price / 3600 * token_ms / 1e3 * 1e6
        return Measurement([metrics], floor=floor)

    guarantee = "none" if held is None else getattr(held, "guarantee", None)
    version = f"torch {torch.__version__}"
    return Arm(name, run, says=loop.says, version=version, guarantee=guarantee)


def base_arms(session: StageSession, loop: DecodeLoop) -> list[Arm]:
    """The decode without an adapter, and its twin."""
    return decode_arm(session, loop, "base", None).with_twin()


def try_arm(
    session: StageSession, loop: DecodeLoop, bench: str, name: str, make: Callable[[], Any]
) -> list[Arm]:
    """The arm alone, or nothing where its adapter cannot be had: it is then left out by name, and the others go on."""
    arm = session.make_or_leave_out(bench, name, lambda: decode_arm(session, loop, name, make()))
    return [] if arm is None else [arm]


def time_offline_work(loop: DecodeLoop, held: Any) -> OfflineWork | None:
    """The offline work of an adapter, timed from its preparation of a whole batch; None if it has none."""
    measure = getattr(held, "measure_offline", None)
    if measure is None:
        return None
    milliseconds, tokens = measure()
    loop.device.synchronize()
    return OfflineWork(milliseconds, tokens)
