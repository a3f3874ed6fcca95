"""Peer arms as processes that speak the instrument's line protocol (bench/PROTOCOL.md), driven within our blocks."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

from blocks import Arm, ArmFailed, Measurement, StageSession
from journal import CHECKOUT
from process import Process, ProcessSilent

HELLO_S, RUN_S = 30.0, 30.0


class PeerMissing(Exception):
    """The peer cannot be run here; the text is the reason."""


class Peer:
    """One arm's process. `hello` is what it says of itself."""

    def __init__(self, command: list[str]) -> None:
        try:
            self._process = Process(command, {"OMP_NUM_THREADS": "1"})
        except OSError as error:
            raise PeerMissing(f"{command[0]}: {error.strerror}") from error
        self._id = 0
        try:
            self.hello = self._process.read_line(time.monotonic() + HELLO_S)
        except ProcessSilent as silent:
            self.end()
            raise PeerMissing(str(silent)) from silent
        if self.hello.get("cannot"):
            self.end()
            raise PeerMissing(self.hello["cannot"])

    def run(self, seed: int, requests: int, params: dict[str, Any]) -> Measurement:
        """Makes one run; a wrong answer voids it."""
        self._id += 1
        work = {"type": "run", "id": self._id, "block": 0, "seed": seed % 2**53}
        self._process.write_line(work | {"requests": requests, "params": params})
        samples, deadline = [], time.monotonic() + RUN_S
        try:
            while (line := self._process.read_line(deadline))["type"] != "done":
                if line["type"] == "error":
                    raise ArmFailed(line["reason"])
                if line.get("answer", {}).get("close") is False:
                    raise ArmFailed(f"wrong answer: {line['metrics']}")
                samples.append(line["metrics"])
        except ProcessSilent as silent:
            raise ArmFailed(str(silent)) from silent
        return Measurement(samples)

    def end(self) -> None:
        """Asks the process to end; kills it where it does not."""
        try:
            self._process.child.communicate(b'{"type":"end"}\n', timeout=5)
        except (subprocess.TimeoutExpired, OSError, ValueError):
            self._process.end()


def try_peer(
    session: StageSession,
    bench: str,
    name: str,
    command: list[str],
    params: dict[str, Any],
    requests: int,
) -> list[Arm]:
    """The peer as an arm of a bench; nothing, and left out by name, where it cannot be had."""
    try:
        peer = Peer(command)
    except PeerMissing as missing:
        session.leave_out(bench, name, str(missing))
        return []
    hello = peer.hello
    return [
        Arm(
            name,
            lambda seed: peer.run(seed, requests, params),
            says=hello["arm"],
            version=hello["version"],
            guarantee=hello.get("guarantee"),
            note=hello.get("note"),
        )
    ]


def find_python(module: str) -> str:
    """The Python that has a peer's module: this one, else the peer's own environment."""
    own = CHECKOUT / ".venv-seal/bin/python"
    return str(own) if module == "tenseal" and own.exists() else sys.executable
