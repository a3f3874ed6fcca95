"""Report 003's step, one vector through one projection of rank 32, by ours and by the peers whose wheels are there."""

from __future__ import annotations

import functools
from typing import Any

import peers
import steps
from blocks import Arm, StageSession
from device import Device
from journal import CHECKOUT

PARAMS = {"width": 1536, "rank": 32}
REQUESTS = 6
ARM, SEAL = str(CHECKOUT / "bench/peers/gpu/arm.py"), str(CHECKOUT / "bench/peers/seal/arm.py")


def run(session: StageSession) -> None:
    device = Device(session.cpu)
    arms: list[Arm] = []
    for name, make in (("ckks-step", steps.ckks_step), ("masked-step", steps.masked_step)):
        arm = session.make_or_leave_out("step", name, functools.partial(make, device))
        if arm is not None:
            arms += [arm] if arms else arm.with_twin()
    for name, command in peer_commands(session.cpu).items():
        arms += peers.try_peer(session, "step", name, command, PARAMS, REQUESTS)
    if arms:
        session.run_case_blocks("step", {}, arms)


def peer_commands(cpu: bool) -> dict[str, list[str]]:
    """The command of each peer."""
    form: list[Any] = ["--cpu"] if cpu else []
    found = {
        name: [peers.find_python(name), ARM, name, *form]
        for name in ("cukks", "desilofhe", "concrete-ml-extensions")
    }
    found["tenseal"] = [peers.find_python("tenseal"), SEAL, "ckks-slots", "--n", "16384"]
    if cpu:
        # Key generation of a hundred MB takes ten seconds of a CPU: its arm is tried by hand.
        del found["concrete-ml-extensions"]
    return found
