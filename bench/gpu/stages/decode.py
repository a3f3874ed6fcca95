"""The headline: base decode at batch 1, and what each scheme in one process adds to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import steps
from arms import Kit, decode
from bed import MODEL, Bed
from blocks import Arm, Session
from device import Device


def run(session: Session) -> None:
    device = Device(session.cpu)
    bed = Bed(device, session.cpu, MODEL, slots=1)
    kit = Kit(session, bed)
    arms = [decode(session, bed, "base", None), decode(session, bed, "base", None, twin=True)]
    makers: dict[str, Callable[[], Any]] = {
        "plain-lora": lambda: kit.load("plain", "plain", path=str(kit.path)),
        "final-hidden": kit.final_hidden,
        "one-graph": lambda: kit.masked("graph", "one-graph"),
        "ckks-slots": lambda: steps.CkksAdapter(device, bed.config),
    }
    for name, make in makers.items():
        if (arm := try_arm(session, bed, name, make)) is not None:
            arms.append(arm)
    session.bench("decode", {"model": MODEL, "batch": 1}, arms)
    kit.close()
    bed.close()


def try_arm(
    session: Session, bed: Bed, name: str, make: Callable[[], Any], bench: str = "decode"
) -> Arm | None:
    """The arm, or None where its adapter cannot be had: it is then left out by name, and the others go on."""
    return session.made(bench, name, lambda: decode(session, bed, name, make()))
