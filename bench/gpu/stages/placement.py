"""True LoRA with the adapter host in a process of its own: by CUDA IPC, over loopback, and on the CPU."""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path
from typing import Any

from arms import AdapterUnavailable, base_arms, open_kit, try_arm
from blocks import StageSession
from journal import CHECKOUT
from process import Process, ProcessSilent
from steps import TOY
from variants import MODEL

from stages import crossings

READY_S = 60.0
HOST = ("adapter", "host", "--binding", "none")
# Nothing here measures how much a host may tell.
BUDGET = "1000000000"
LISTEN = ("--budget", BUDGET, "--dangerous-forget-budgets", "--listen", "127.0.0.1:0")
TOY_OPTIONS = ("--parameters", str(TOY["parameters"]), "--dangerous-parameters")


def run(session: StageSession) -> None:
    options = [*LISTEN, *(TOY_OPTIONS if session.cpu else ())]
    adapters: dict[str, Any] = {}
    params = {"model": MODEL, "batch": 1}

    # Hosts end last: the loop's adapters take their leave of them.
    with contextlib.ExitStack() as hosts, open_kit(session) as kit:
        loop = kit.loop

        def load_remote(name: str, command: list[str]) -> Any:
            process, address = start_host(name, command)
            hosts.callback(process.end)
            return kit.load_masked(name, "blind", path=None, address=address, name=kit.path.name)

        def load_ipc() -> Any:
            adapters["ipc"] = kit.load_masked("ipc", "ipc")
            return adapters["ipc"]

        def load_loopback() -> Any:
            command = [
                sys.executable,
                "-m",
                "confide.blind",
                "host",
                str(kit.path),
                "--device",
                loop.device.name,
            ]
            adapters["loopback"] = load_remote("loopback", command + options)
            return adapters["loopback"]

        def load_on_cpu() -> Any:
            confide = session.facts.get("confide")
            if not confide:
                raise AdapterUnavailable("no confide binary: --confide PATH carries it")
            return load_remote("cpu-host", [confide, *HOST, str(kit.path), *options])

        base = base_arms(session, loop)
        arms = [
            *base,
            *try_arm(session, loop, "placement", "ipc", load_ipc),
            *try_arm(session, loop, "placement", "loopback", load_loopback),
        ]
        session.run_case_blocks("placement", params, arms)
        for name, adapter in adapters.items():
            # Here, where their masks are, and once: counts do not scatter, and masks are few.
            crossings.count_phases(session, loop, name, adapter, blocks=1)
        # Apart and last: a CPU may take long for its first batch, and the others do not wait for it.
        if remote := try_arm(session, loop, "host-on-cpu", "cpu-host", load_on_cpu):
            session.run_case_blocks("host-on-cpu", params, [*base, *remote])


def start_host(name: str, command: list[str]) -> tuple[Process, str]:
    """An adapter host's process and its address, which its first line says."""
    process = Process(command, {"PYTHONPATH": str(CHECKOUT / "python")})
    try:
        return process, process.read_line(time.monotonic() + READY_S)["listen"]
    except (ProcessSilent, ValueError, KeyError) as error:
        process.end()
        raise AdapterUnavailable(f"{Path(command[0]).name} {name}: {error}") from error
