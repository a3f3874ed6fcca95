"""Programs that answer in lines of JSON: adapter hosts and peers of a measurement."""

from __future__ import annotations

import json
import os
import select
import subprocess
import tempfile
import time
from typing import Any

from journal import CHECKOUT


class ProcessSilent(Exception):
    """The program gave no line: it ended, or its time was over; the text says which."""


class Process:
    """A running program. Lines of JSON go in and out; its standard error is kept for the reason of its end."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        # A file, not a pipe: one that nobody reads would stop a program that complains at length.
        self._errors = tempfile.TemporaryFile()
        self.child = subprocess.Popen(command, cwd=CHECKOUT, env=os.environ | environment, stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, stderr=self._errors)  # fmt: skip
        assert self.child.stdin is not None and self.child.stdout is not None
        self._input, self._output, self._rest = self.child.stdin, self.child.stdout, b""

    def write_line(self, line: dict[str, Any]) -> None:
        """Sends one line."""
        self._input.write(json.dumps(line).encode() + b"\n")
        self._input.flush()

    def read_line(self, deadline: float) -> dict[str, Any]:
        """The next line; kills the program and raises `ProcessSilent` where none comes by `deadline` (monotonic)."""
        while b"\n" not in self._rest:
            ready, _, _ = select.select(
                [self._output], [], [], max(0.0, deadline - time.monotonic())
            )
            piece = os.read(self._output.fileno(), 1 << 16) if ready else None
            if not ready:
                # What it would still say must not pass for the answer to the next line.
                self.child.kill()
                raise ProcessSilent("silent past its deadline")
            if not piece:
                self.child.wait()
                self._errors.seek(0)
                last = self._errors.read().decode(errors="replace").strip().splitlines()
                raise ProcessSilent(f"ended: {last[-1][:200] if last else 'without a word'}")
            self._rest += piece
        line, self._rest = self._rest.split(b"\n", 1)
        answer: dict[str, Any] = json.loads(line)
        return answer

    def end(self) -> None:
        """Sends SIGTERM, then SIGKILL."""
        self.child.terminate()
        try:
            self.child.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
