"""Peer arms as processes that speak the instrument's line protocol (bench/PROTOCOL.md), driven within our blocks."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from typing import Any

from blocks import Arm, Failed, Session, Took
from journal import CHECKOUT

HELLO_S, RUN_S = 30.0, 30.0


class Missing(Exception):
    """The peer cannot be asked here; the text is the reason."""


class Peer:
    """One arm's process. `hello` is what it says of itself."""

    def __init__(self, command: list[str]) -> None:
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        # A file, not a pipe: one that nobody reads would stop a peer that complains at length.
        self._errors = tempfile.TemporaryFile()
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self._errors}
        try:
            self._process = subprocess.Popen(command, cwd=CHECKOUT, env=environment, **pipes)
        except OSError as error:
            raise Missing(f"{command[0]}: {error.strerror}") from error
        self._rest, self._id = b"", 0
        try:
            self.hello = self._line(time.monotonic() + HELLO_S)
        except Failed as failed:
            self.end()
            raise Missing(str(failed)) from failed
        if self.hello.get("cannot"):
            self.end()
            raise Missing(self.hello["cannot"])

    def run(self, seed: int, requests: int, params: dict[str, Any]) -> Took:
        """One run; a wrong answer voids it."""
        self._id += 1
        asked = {
            "type": "run",
            "id": self._id,
            "block": 0,
            "seed": seed % 2**53,
            "requests": requests,
            "params": params,
        }
        self._process.stdin.write(json.dumps(asked).encode() + b"\n")
        self._process.stdin.flush()
        samples, deadline = [], time.monotonic() + RUN_S
        while (line := self._line(deadline))["type"] != "done":
            if line["type"] == "error":
                raise Failed(line["reason"])
            if line.get("answer", {}).get("close") is False:
                raise Failed(f"wrong answer: {line['metrics']}")
            samples.append(line["metrics"])
        return Took(samples)

    def end(self) -> None:
        """The process is asked to end, then made to."""
        try:
            self._process.communicate(b'{"type":"end"}\n', timeout=5)
        except (subprocess.TimeoutExpired, OSError, ValueError):
            self._process.kill()
            self._process.wait()

    def _line(self, deadline: float) -> dict[str, Any]:
        while b"\n" not in self._rest:
            ready, _, _ = select.select(
                [self._process.stdout], [], [], max(0.0, deadline - time.monotonic())
            )
            piece = os.read(self._process.stdout.fileno(), 1 << 16) if ready else None
            if not ready:
                # What it would still say must not pass for the answer to the next run.
                self._process.kill()
                raise Failed("silent past its deadline")
            if not piece:
                self._process.wait()
                self._errors.seek(0)
                last = self._errors.read().decode(errors="replace").strip().splitlines()
                raise Failed(f"ended: {last[-1][:200] if last else 'it said nothing'}")
            self._rest += piece
        line, self._rest = self._rest.split(b"\n", 1)
        return json.loads(line)


def arm(
    session: Session,
    bench: str,
    name: str,
    command: list[str],
    params: dict[str, Any],
    requests: int,
) -> Arm | None:
    """The peer as an arm of a bench; None, and left out by name, where it cannot be had."""
    try:
        peer = Peer(command)
    except Missing as missing:
        session.missing(bench, name, str(missing))
        return None
    hello = peer.hello
    return Arm(
        name,
        lambda seed: peer.run(seed, requests, params),
        says=hello["arm"],
        version=hello["version"],
        guarantee=hello.get("guarantee"),
        note=hello.get("note"),
    )


def python(module: str) -> str:
    """The Python that has a peer's module: this one, else the peer's own environment."""
    own = CHECKOUT / ".venv-seal/bin/python"
    return str(own) if module == "tenseal" and own.exists() else sys.executable
