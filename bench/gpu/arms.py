"""Arms of the decode benches: the worker's loop with an adapter of each kind, with and without the offline work."""

from __future__ import annotations

import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import adapter as made
import torch
from bed import PROMPT, TOKENS, Bed
from blocks import Arm, Failed, Session, Took
from confide.worker.deltas import Adapter, AdapterError
from steps import TOY

LEAST_VECTORS = 64


class NotHere(Exception):
    """A kind of adapter cannot be had on this machine; the text is the reason."""


@dataclass
class Offline:
    """What a batch of masks took: milliseconds for all inputs of the adapter, and tokens that it lasts for."""

    milliseconds: float
    tokens: int

    @property
    def token_ms(self) -> float:
        """Of one token."""
        return self.milliseconds / self.tokens


class Kit:
    """A bed's adapters, made once. `folder` holds the PEFT files for as long as the kit lives."""

    def __init__(self, session: Session, bed: Bed) -> None:
        self.session, self.bed = session, bed
        self._folder = tempfile.TemporaryDirectory(prefix="confide-gpu-")
        self.folder = Path(self._folder.name)
        self.path = made.write(self.folder / "lora", bed.config)

    def load(self, label: str, kind: str, **spec: Any) -> Adapter:
        """An adapter of this kind, loaded into the bed's worker."""
        try:
            return self.bed.adapters.load(label, kind, spec)
        except (AdapterError, NotImplementedError, OSError) as error:
            raise NotHere(f"{kind}: {error}"[:300]) from error

    def final_hidden(self) -> Adapter:
        """The masked delta on the last hidden state, both roles in this process."""
        return self.masked("hidden", "one-graph", mode="final-hidden")

    def masked(self, label: str, kind: str, path: str | None = "", **spec: Any) -> Adapter:
        """An adapter of the masked scheme, its batches of masks prepared: what runs later prepares none."""
        where = {} if path is None else {"path": path or str(self.path)}
        held = self.load(label, kind, **where, **(TOY if self.session.cpu else {}), **spec)
        try:
            wait_until_prepared(held, self.session.left_s() * 0.45)
        except AdapterError as error:
            raise NotHere(f"{kind}: {error}"[:300]) from error
        return held

    def close(self) -> None:
        """Files go."""
        self._folder.cleanup()


def wait_until_prepared(held: Any, seconds: float) -> None:
    """Until the batches of every input that a bench uses up are there, so that no preparation runs beside what is
    timed. With a host it is one batch, and the one that is timed: it may take seconds over a socket.
    """
    if hasattr(held, "prepare"):
        held.wanted = 0
        timer = threading.Timer(seconds, held.close)
        timer.daemon = True
        timer.start()
        try:
            held.time_offline()
        except Exception as error:
            raise NotHere(f"{error}; masks: wanted in {seconds:.0f} s") from error
        finally:
            timer.cancel()
            # The next batch is begun when hardly anything is left: beside what is timed or counted nothing is prepared.
            held.wanted = LEAST_VECTORS
        return
    until, context = time.monotonic() + seconds, getattr(held, "context", None)
    states = getattr(held, "inputs", [])
    while any(state.pool.installed - state.pool.next() // context.n < 2 for state in states):
        if time.monotonic() > until:
            raise NotHere("its masks were not prepared in time")
        time.sleep(0.02)


def decode(
    session: Session,
    bed: Bed,
    name: str,
    adapter: Any,
    twin: bool = False,
    marks: tuple[str, ...] = (),
) -> Arm:
    """One run: every slot decodes with this adapter (None for the base, a list for one each)."""
    adapters = adapter if isinstance(adapter, list) else [adapter] * bed.slots
    held = next((one for one in adapters if one is not None), None)
    offline = offline_of(bed, held)
    tokens = 12 if session.cpu else TOKENS
    price = session.facts.get("price")

    def run(seed: int) -> Took:
        floor = bed.floor(bed.slots)
        ran = bed.run(seed, tokens, PROMPT if not session.cpu else 8, adapters)
        if ran.seconds <= 0 or ran.tokens < tokens // 2:
            raise Failed(f"{ran.tokens} tokens in {ran.seconds} s")
        online = ran.tokens / ran.seconds
        token_ms = 1e3 / online + (offline.token_ms if offline else 0.0)
        metrics = {
            "tokens_per_s": 1e3 / token_ms,
            "online_tokens_per_s": online,
            "token_ms": token_ms * bed.slots,
        }
        if offline:
            metrics["offline_ms"] = offline.token_ms
        if price:
            metrics["dollars_per_mtoken"] = price / 3600 * token_ms / 1e3 * 1e6
        return Took([metrics], floor=floor, marks=list(marks))

    guarantee = "none" if held is None else getattr(held, "guarantee", None)
    return Arm(
        name,
        run,
        says=bed.says,
        version=f"torch {torch.__version__}",
        guarantee=guarantee,
        twin=twin,
    )


def offline_of(bed: Bed, held: Any) -> Offline | None:
    """The offline work of an adapter, timed from its preparation of a whole batch; None where it has none."""
    measure = getattr(held, "time_offline", None)
    if measure is None:
        return None
    milliseconds, tokens = measure()
    bed.device.wait()
    return Offline(milliseconds, tokens)
