"""Adapter hosts for tests: Python's in a process of its own, and Rust's where its program is given or found."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from confide.blind import channel, holder, session

TOY, REAL = "toy-256-q100-flood40", "rlwe-4096-q100-flood40"
PYTHON_FOLDER = Path(__file__).resolve().parents[3]


def rust_program() -> str:
    """`confide`: $CONFIDE_BIN, the path, or what cargo left in the checkout."""
    built = PYTHON_FOLDER.parent / "target"
    for found in (
        os.environ.get("CONFIDE_BIN"),
        shutil.which("confide"),
        built / "release" / "confide",
        built / "debug" / "confide",
    ):
        if found and os.access(found, os.X_OK):
            return str(found)
    raise unittest.SkipTest(
        "no confide program: CONFIDE_BIN names none, and none is on the path or in target"
    )


def command(kind: str) -> list[str]:
    """How an adapter host of this kind is started."""
    if kind == "rust":
        return [rust_program(), "adapter", "host", "--binding", "none"]
    return [sys.executable, "-m", "confide.blind", "host"]


class Running:
    """A host that runs; its ready line in `ready`."""

    def __init__(
        self, kind: str, folder: Path, listen: str = "127.0.0.1:0", set_name: str = TOY, *more: str
    ) -> None:
        line = [*command(kind), str(folder), "--listen", listen, "--parameters", set_name, *more]
        line += ["--dangerous-parameters"] if set_name == TOY else []
        if not {"--budget-file", "--state"} & set(more):
            line.append("--dangerous-forget-budgets")
        environment = os.environ | {"PYTHONPATH": str(PYTHON_FOLDER), "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        assert self.process.stdout
        first = self.process.stdout.readline()
        if not first:
            raise RuntimeError(f"{kind} host: {self.process.communicate(timeout=10)[1]}")
        self.ready = json.loads(first)
        self.listen, self.set_name = self.ready["listen"], set_name

    @property
    def dial(self) -> channel.Dial:
        """Opens a connection to it."""
        host, _, port = self.listen.rpartition(":")
        return channel.dial_tcp(host, int(port))

    def adapter(self, name: str = "bank", **options: Any) -> holder.RemoteAdapter:
        """A key holder of it."""
        chosen = session.HolderOptions(
            name, self.set_name, dangerous_parameters=self.set_name == TOY, **options
        )
        return holder.RemoteAdapter(name, self.dial, self.listen, chosen)

    def stop(self, kill: bool = False) -> None:
        """Ends it; its status is 0 if it was asked and not killed."""
        self.process.kill() if kill else self.process.terminate()
        self.process.communicate(timeout=20)


@contextlib.contextmanager
def running(
    kind: str, folder: Path, *more: str, set_name: str = TOY, listen: str = "127.0.0.1:0"
) -> Iterator[Running]:
    """A host for as long as it is needed."""
    host = Running(kind, folder, listen, set_name, *more)
    try:
        yield host
    finally:
        host.stop()


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """An empty folder called `bank`."""
    with tempfile.TemporaryDirectory() as parent:
        yield Path(parent) / "bank"
