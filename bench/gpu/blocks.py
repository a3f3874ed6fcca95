"""Blocks: every arm once on the same work, in random order from the seed; the reference arm twice, as its own twin.

A stage builds its arms and gives them to `StageSession.run_case_blocks`; lines go to the journal as each block ends.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from journal import REHEARSAL, case_key, read_suite

# Of what is left of a stage's budget the most that one arm may take to be ready: the others are to be measured too.
MAKING_SHARE = 0.45
Emit = Callable[[dict[str, Any]], None]


@dataclass
class Measurement:
    """The result of one run of one arm: `samples` of metrics by name, the answer that arms share, a floor and marks."""

    samples: list[dict[str, float]]
    answer: Any = None
    floor: dict[str, Any] | None = None
    marks: list[str] = field(default_factory=list)
    void: str | None = None


@dataclass(eq=False)
class Arm:
    """One arm: `run(seed)` does the block's work. `says`, `guarantee` and `note` are its own words in the record."""

    name: str
    run: Callable[[int], Measurement]
    says: str = ""
    version: str = ""
    guarantee: str | None = None
    note: str | None = None
    twin: bool = False

    def with_twin(self) -> list[Arm]:
        """The arm, and the same again as the reference's twin."""
        return [self, replace(self, twin=True)]


class StageSession:
    """One stage's view of the run: where lines go, what earlier stages found, until when it may go on."""

    def __init__(
        self,
        emit: Emit,
        facts: dict[str, Any],
        seed: int,
        deadline: float,
        started: float,
        cpu: bool,
    ) -> None:
        self.emit, self.facts, self.seed, self.cpu = emit, facts, seed, cpu
        self._deadline, self._started = deadline, started
        self._suite = read_suite()

    def remaining_s(self) -> float:
        """Seconds until this stage is cut."""
        return self._deadline - time.monotonic()

    def share_fact(self, name: str, value: Any) -> None:
        """Shares a fact that later stages need; it is not part of the record."""
        self.facts[name] = value
        self.emit({"kind": "fact", "name": name, "value": value})

    def print_line(self, text: str) -> None:
        """Prints a line at the terminal, labelled in a rehearsal; it is not part of the record."""
        label = f"{REHEARSAL}: " if self.cpu else ""
        self.emit({"kind": "say", "text": label + text})

    def report_service(self, name: str, command: list[str], ready: dict[str, Any]) -> None:
        """Reports the outcome of a build or a check in the record's list of services."""
        line = {"kind": "service", "name": name, "command": command, "simulated": False}
        self.emit(line | {"ready": ready})

    def report_not_run(self, bench: str, reason: str) -> None:
        """Reports the part of a bench that is not measured, and the reason."""
        self.emit({"kind": "not_run", "bench": bench, "reason": reason})

    def make_or_leave_out(self, bench: str, name: str, make: Callable[[], Any]) -> Any:
        """The result of `make`; None if it fails, and the arm is then left out by name, so that the others go on."""
        if reason := self.facts.get("left_out", {}).get(f"{bench}/{name}"):
            self.leave_out(bench, name, reason)
            return None
        try:
            with time_limit(max(self.remaining_s() * MAKING_SHARE, 1.0)):
                return make()
        except Exception as error:
            self.raise_if_card_lost(bench, name, error)
            self.leave_out(bench, name, one_line(error))
            return None

    def raise_if_card_lost(self, bench: str, name: str, error: Exception) -> None:
        """Raises `CardLost` where a fault took the card with it: this process can measure nothing more."""
        torch = sys.modules.get("torch")
        if self.cpu or torch is None:
            return
        try:
            torch.cuda.synchronize()
        except RuntimeError:
            raise CardLost(f"{bench}/{name}", one_line(error)) from error

    def leave_out(self, bench: str, name: str, reason: str) -> None:
        """Reports an arm that is left out, and the reason."""
        self.emit(self._arm_line(bench, Arm(name, lambda _: Measurement([])), given_up=reason))
        self.print_line(f"{bench}: {name} is left out: {reason}")

    def run_case_blocks(
        self, bench: str, params: dict[str, Any], arms: list[Arm], blocks: int | None = None
    ) -> int:
        """Runs the blocks of one case; gives the number of whole ones. A stage near its end stops at a whole block."""
        table = next(entry for entry in self._suite["bench"] if entry["name"] == bench)
        planned = blocks or table["blocks"]["quick" if self.cpu else "full"]
        warmup = table.get("warmup", 1)
        key = case_key(params)
        for arm in arms:
            self.emit(self._arm_line(bench, arm))
        arms = [arm for arm in arms if self.make_or_leave_out(bench, arm.name, lambda: True)]
        begun = self.facts.get("done", {}).get(f"{bench}/{key}", 0)
        longest, done = 0.0, max(0, begun - warmup)
        if begun >= warmup + planned or not arms:
            return done
        if begun:
            # In an earlier process: here everything is to be compiled and recorded again.
            self._run_warm_up(bench, arms)
        for block in range(begun, warmup + planned):
            if self.remaining_s() < longest * 1.2:
                reason = f"its stage's budget: {done} of {planned} blocks"
                line = {"kind": "cut", "bench": bench, "blocks": done, "planned": planned}
                self.emit(line | {"reason": reason})
                self.print_line(f"{bench} {key}: cut, {reason}")
                break
            began = time.monotonic()
            self._run_block(bench, key, arms, block, warmup=block < warmup)
            # The warm-up compiles and captures: its length says nothing of the next.
            longest = max(longest, time.monotonic() - began) if block >= warmup else 0.0
            done += block >= warmup
        return done

    def _run_warm_up(self, bench: str, arms: list[Arm]) -> None:
        for arm in list(arms):
            try:
                arm.run(self.seed)
            except ArmFailed:
                pass
            except Exception as error:
                self._give_up(bench, arms, arm, error)

    def _give_up(self, bench: str, arms: list[Arm], arm: Arm, error: Exception) -> None:
        """Takes out an arm that broke; what it measured before stays."""
        traceback.print_exception(error)
        self.raise_if_card_lost(bench, arm.name, error)
        arms.remove(arm)
        self.emit(self._arm_line(bench, arm, given_up=one_line(error)))
        self.print_line(f"{bench}: {arm.name} is given up: {one_line(error)}")

    def _run_block(self, bench: str, key: str, arms: list[Arm], block: int, warmup: bool) -> None:
        generator = random.Random(_derive_seed(self.seed, "order", bench, key, block))
        work_seed = _derive_seed(self.seed, "work", bench, key, block) >> 11
        order = list(range(len(arms)))
        generator.shuffle(order)
        for position, arm in enumerate([arms[index] for index in order]):
            load, began = MachineLoad(), time.monotonic()
            try:
                measured = arm.run(work_seed)
            except ArmFailed as failed:
                measured = Measurement([], void=str(failed))
            except Exception as error:
                measured = Measurement([], void=one_line(error))
                self._give_up(bench, arms, arm, error)
            values = [value for metrics in measured.samples for value in metrics.values()]
            if not all(map(math.isfinite, values)):
                measured = Measurement([], void="a figure that is no number")
            place = {"bench": bench, "case": key, "block": block, "arm": arm.name}
            place |= {"twin": True} if arm.twin else {}
            place |= {"warmup": True} if warmup else {}
            times = {"started_s": began - self._started, "wall_s": time.monotonic() - began}
            self._emit_slice(place, {"order": position, **times}, measured, load.finish())
        self.emit({"kind": "block", "bench": bench, "case": key, "block": block})

    def _emit_slice(
        self,
        place: dict[str, Any],
        times: dict[str, Any],
        measured: Measurement,
        quiet: dict[str, Any],
    ) -> None:
        for index, metrics in enumerate(measured.samples):
            answer = {"answer": measured.answer} if measured.answer is not None else {}
            self.emit({"kind": "sample", **place, "index": index, "metrics": metrics, **answer})
        line = {"kind": "slice", **place, **times, "samples": len(measured.samples), "metrics": {}}
        optional = {"floor": measured.floor, "marks": measured.marks, "void": measured.void}
        kept = {name: value for name, value in optional.items() if value}
        self.emit(line | {"quiet": quiet} | kept)

    def _arm_line(self, bench: str, arm: Arm, given_up: str | None = None) -> dict[str, Any]:
        table = next(entry for entry in self._suite["arm"] if entry["name"] == arm.name)
        line = {"kind": "arm", "bench": bench, "name": arm.name, "label": table["label"]}
        line |= {"twin": arm.twin}
        line |= {name: table[name] for name in ("command", "description", "protects")}
        line |= {name: getattr(arm, name) for name in ("says", "version", "guarantee", "note")}
        return line | {"simulated": False, "given_up": given_up}


class ArmFailed(Exception):
    """An arm's answer was wrong, or it could not give one: the pair is void with this reason."""


class NotReady(Exception):
    """An arm was not ready in its time. No code handles this class, so that nothing tries again after it."""


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises `NotReady` in what runs longer; for the main thread."""

    def raise_not_ready(*_: Any) -> None:
        raise NotReady(f"not ready within {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, raise_not_ready)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class CardLost(Exception):
    """The card no longer answers this process; `place` is the arm with which it was lost, BENCH/ARM."""

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(reason)
        self.place = place


def one_line(error: BaseException) -> str:
    """Renders an error in one line."""
    first = (str(error).splitlines() or [""])[0][:300]
    return first if isinstance(error, CardLost) else f"{type(error).__name__}: {first}"


class MachineLoad:
    """The other load of the machine during a slice: pressure and steal. The calibration is a loop of Python, not the
    instrument's own, so it compares with records of this script only.
    """

    def __init__(self) -> None:
        self._before, self._began = _read_load_counters(), time.monotonic()
        self._calibration = _time_calibration_loop_us()

    def finish(self) -> dict[str, Any]:
        wall_us = max(1.0, (time.monotonic() - self._began) * 1e6)
        after = _read_load_counters()

        def pressure_share(name: str) -> float | None:
            return max(0.0, after[name] - self._before[name]) / wall_us if name in after else None

        total = after.get("total", 0) - self._before.get("total", 0)
        steal = (after["steal"] - self._before["steal"]) / total if total > 0 else None
        pressure = {"psi_cpu": pressure_share("cpu"), "psi_memory": pressure_share("memory")}
        return pressure | {"steal": steal, "calibration_us": self._calibration}


def _time_calibration_loop_us() -> float:
    began, value = time.perf_counter(), 1
    for _ in range(10_000):
        value = value * 5 & 0xFFFF
    return (time.perf_counter() - began) * 1e6


def _read_load_counters() -> dict[str, float]:
    found: dict[str, float] = {}
    for name in ("cpu", "memory"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            text = Path(f"/proc/pressure/{name}").read_text()
            found[name] = float(text.split("total=")[1].split()[0])
    with contextlib.suppress(OSError, IndexError, ValueError):
        ticks = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
        found |= {"total": float(sum(ticks)), "steal": float(ticks[7])}
    return found


def _derive_seed(seed: int, *place: Any) -> int:
    text = "\0".join(str(part) for part in (seed, *place))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
