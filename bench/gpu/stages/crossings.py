"""Counts what one prefill and one token move over the bus, and measures how busy the card is."""

from __future__ import annotations

import time
from typing import Any

import crossings
from arms import open_kit
from blocks import Arm, Measurement, StageSession
from decode_loop import DecodeLoop
from device import UtilisationSampler
from variants import MODEL

PREFILL, PASSES = 128, 32
USE_S = 1.2


def run(session: StageSession) -> None:
    with open_kit(session, context=sum(token_counts(session.cpu)) + 8) as kit:
        count_phases(session, kit.loop, "base", None)
        measure_utilisation(session, kit.loop, "base", None)
        for name, make in (("plain-lora", kit.load_plain), ("one-graph", kit.load_one_graph)):
            if (adapter := session.make_or_leave_out("crossings", name, make)) is not None:
                count_phases(session, kit.loop, name, adapter)
                if name == "one-graph":
                    measure_utilisation(session, kit.loop, name, adapter)


def token_counts(cpu: bool) -> tuple[int, int]:
    """Tokens of the prompt, and of what follows."""
    return (8, 2) if cpu else (PREFILL, PASSES)


def count_phases(
    session: StageSession, loop: DecodeLoop, name: str, adapter: Any, blocks: int | None = None
) -> None:
    """Counts both phases of an arm."""
    for phase, arm in crossing_arms(loop, name, [adapter], *token_counts(session.cpu)).items():
        session.run_case_blocks("crossings", {"model": MODEL, "phase": phase}, [arm], blocks)


def crossing_arms(
    loop: DecodeLoop, name: str, adapters: list[Any], prefill: int, passes: int
) -> dict[str, Arm]:
    """The arms that count for a prompt alone and for a token, which is a run of many less a run of one."""

    def measure_prefill(seed: int) -> Measurement:
        loop.run(seed, 1, prefill, adapters)
        return Measurement(
            [crossings.count_crossings(lambda: loop.run(seed, 1, prefill, adapters), 1)]
        )

    def measure_token(seed: int) -> Measurement:
        loop.run(seed, passes + 1, prefill, adapters)
        one = crossings.count_crossings(lambda: loop.run(seed, 1, prefill, adapters), 1)
        many = crossings.count_crossings(lambda: loop.run(seed, passes + 1, prefill, adapters), 1)
        return Measurement([{key: max(0.0, many[key] - one[key]) / passes for key in many}])

    return {
        "prefill": Arm(name, measure_prefill, says=loop.says),
        "token": Arm(name, measure_token, says=loop.says),
    }


def measure_utilisation(session: StageSession, loop: DecodeLoop, name: str, adapter: Any) -> None:
    """Measures the card's utilisation by nvidia-smi while the loop decodes."""

    def measure(_seed: int) -> Measurement:
        sampler, began = UtilisationSampler(session.cpu), time.monotonic()
        while time.monotonic() - began < (0.1 if session.cpu else USE_S):
            loop.run(1, 8 if session.cpu else 64, 8, [adapter])
        found = sampler.end()
        return Measurement([found] if found else [])

    arm = Arm(name, measure, says=loop.says)
    session.run_case_blocks("utilisation", {"model": MODEL, "batch": 1}, [arm])
