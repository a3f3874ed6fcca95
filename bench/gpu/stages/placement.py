"""True LoRA with the adapter host in a process of its own: by CUDA IPC, over loopback, and on the CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from arms import Kit, NotHere, decode
from bed import MODEL, Bed
from blocks import Session
from device import Device
from journal import CHECKOUT
from steps import TOY

from stages import crossings
from stages.decode import try_arm

READY_S = 60.0
# Nothing here measures how much a host may tell.
BUDGET = "1000000000"


def run(session: Session) -> None:
    device = Device(session.cpu)
    bed = Bed(device, session.cpu, MODEL, slots=1)
    kit = Kit(session, bed)
    hosts: list[Host] = []
    held: dict[str, Any] = {}

    def kept(name: str, adapter: Any) -> Any:
        held[name] = adapter
        return adapter

    def remote(name: str, command: list[str]) -> Any:
        hosts.append(Host(name, command))
        return kit.masked(name, "blind", path=None, address=hosts[-1].address, name=kit.path.name)

    def on_cpu() -> Any:
        confide = session.facts.get("confide")
        if not confide:
            raise NotHere("no confide binary: --confide PATH carries it")
        return remote("cpu-host", [confide, *HOST, str(kit.path), *LISTEN, *toy(session.cpu)])

    arms = [decode(session, bed, "base", None), decode(session, bed, "base", None, twin=True)]
    makers = {
        "ipc": lambda: kept("ipc", kit.masked("ipc", "ipc")),
        "loopback": lambda: kept(
            "loopback", remote("loopback", of_python(kit.path, device.name, session.cpu))
        ),
    }
    params = {"model": MODEL, "batch": 1}
    try:
        base = list(arms)
        for name, make in makers.items():
            if (arm := try_arm(session, bed, name, make, "placement")) is not None:
                arms.append(arm)
        session.bench("placement", params, arms)
        for name, adapter in held.items():
            # Here, where their masks are, and once: counts do not scatter, and masks are few.
            crossings.count(session, bed, name, adapter, blocks=1)
        # Apart and last: a CPU may take long for its first batch, and the others do not wait for it.
        if (arm := try_arm(session, bed, "cpu-host", on_cpu, "host-on-cpu")) is not None:
            session.bench("host-on-cpu", params, [*base, arm])
    finally:
        bed.close()
        for host in hosts:
            host.end()
        kit.close()


HOST = ("adapter", "host", "--binding", "none")
LISTEN = ("--budget", BUDGET, "--dangerous-forget-budgets", "--listen", "127.0.0.1:0")


def toy(cpu: bool) -> list[str]:
    """What a host is told in a rehearsal."""
    return ["--parameters", TOY["parameters"], "--dangerous-parameters"] if cpu else []


def of_python(folder: Path, device: str, cpu: bool) -> list[str]:
    """The command of an adapter host on the same device."""
    return [
        sys.executable,
        "-m",
        "confide.blind",
        "host",
        str(folder),
        "--device",
        device,
        *LISTEN,
        *toy(cpu),
    ]


class Host:
    """An adapter host's process; its first line on standard output says where it listens."""

    def __init__(self, name: str, command: list[str]) -> None:
        environment = os.environ | {"PYTHONPATH": str(CHECKOUT / "python")}
        self._errors = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=self._errors
        )
        line = first_line(self._process, READY_S)
        if line is None:
            self.end()
            self._errors.seek(0)
            last = self._errors.read().decode(errors="replace").strip().splitlines()
            raise NotHere(
                f"{Path(command[0]).name} {name}: {last[-1][:200] if last else 'it said nothing'}"
            )
        self.address = json.loads(line)["listen"]

    def end(self) -> None:
        """SIGTERM, then SIGKILL."""
        self._process.terminate()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def first_line(process: subprocess.Popen, seconds: float) -> bytes | None:
    """The first line, or None where the process ends or is silent."""
    import select

    ready, _, _ = select.select([process.stdout], [], [], seconds)
    line = process.stdout.readline() if ready else b""
    return line if line.startswith(b"{") else None
