"""What one prefill and one token move over the bus, counted; and how busy the card is meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import crossings
from arms import Kit
from bed import MODEL, Bed
from blocks import Arm, Session, Took
from device import Device, Sampler

PREFILL, PASSES = 128, 32
USE_S = 1.2


def run(session: Session) -> None:
    device = Device(session.cpu)
    prefill, passes = sizes(session.cpu)
    bed = Bed(device, session.cpu, MODEL, slots=1, context=prefill + passes + 8)
    kit = Kit(session, bed)
    makers: dict[str, Callable[[], Any]] = {
        "base": lambda: None,
        "plain-lora": lambda: kit.load("plain", "plain", path=str(kit.path)),
        "one-graph": lambda: kit.masked("graph", "one-graph"),
    }
    for name, make in makers.items():
        held = session.made("crossings", name, lambda make=make: [make()])
        if held is None:
            continue
        (adapter,) = held
        count(session, bed, name, adapter)
        if name in ("base", "one-graph"):
            use = Arm(name, lambda _seed, held=adapter: used(bed, held, session.cpu), says=bed.says)
            session.bench("utilisation", {"model": MODEL, "batch": 1}, [use])
    kit.close()
    bed.close()


def sizes(cpu: bool) -> tuple[int, int]:
    """Tokens of the prompt, and of what follows."""
    return (8, 2) if cpu else (PREFILL, PASSES)


def count(session: Session, bed: Bed, name: str, adapter: Any, blocks: int | None = None) -> None:
    """Both phases of an arm."""
    for phase, arm in arms(bed, name, [adapter], *sizes(session.cpu)).items():
        session.bench("crossings", {"model": MODEL, "phase": phase}, [arm], blocks)


def arms(bed: Bed, name: str, adapters: list[Any], prefill: int, passes: int) -> dict[str, Arm]:
    """Counts of a prompt alone, and of a token: a run of many less a run of one."""

    def of_prefill(seed: int) -> Took:
        bed.run(seed, 1, prefill, adapters)
        return Took([crossings.counted(lambda: bed.run(seed, 1, prefill, adapters), 1)])

    def of_token(seed: int) -> Took:
        bed.run(seed, passes + 1, prefill, adapters)
        one = crossings.counted(lambda: bed.run(seed, 1, prefill, adapters), 1)
        many = crossings.counted(lambda: bed.run(seed, passes + 1, prefill, adapters), 1)
        return Took([{key: max(0.0, many[key] - one[key]) / passes for key in many}])

    return {
        "prefill": Arm(name, of_prefill, says=bed.says),
        "token": Arm(name, of_token, says=bed.says),
    }


def used(bed: Bed, adapter: Any, cpu: bool) -> Took:
    """Decodes for a while beside nvidia-smi."""
    sampler, began = Sampler(cpu), time.monotonic()
    while time.monotonic() - began < (0.1 if cpu else USE_S):
        bed.run(1, 8 if cpu else 64, 8, [adapter])
    found = sampler.end()
    return Took([found] if found else [])
