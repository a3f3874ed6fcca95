"""A worker as a process, and the other end of its socket, for tests."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from confide.worker import protocol

SECONDS = 20.0


class Worker:
    """A started worker process; `close` ends it by its standard input."""

    def __init__(self, *arguments: str) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "worker.sock"
        command = [sys.executable, "-m", "confide.worker", "--socket", str(self.path), *arguments]
        python = str(Path(__file__).parents[3])
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": python}
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            text=True,
        )
        assert self.process.stdout and self.process.stderr
        self.output, self.errors = self.process.stdout, self.process.stderr
        self.ready = self.output.readline()
        if not self.ready:
            error = self.process.communicate()[1]
            self.folder.cleanup()
            raise RuntimeError(f"worker did not start: {error[-2000:]}")

    def close(self) -> tuple[int, str]:
        """Ends it; exit status and standard error."""
        if self.process.stdin and not self.process.stdin.closed:
            self.process.stdin.close()
        code = self.process.wait(SECONDS)
        error = self.errors.read()
        self.output.close()
        self.errors.close()
        self.folder.cleanup()
        return code, error


class Peer:
    """One connection, after hello and welcome."""

    def __init__(self, path: Path, hello: dict[str, Any] | None = None) -> None:
        self.stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.stream.settimeout(SECONDS)
        self.stream.connect(str(path))
        self.tokens: dict[int, list[int]] = {}
        self.ended: dict[int, dict[str, Any]] = {}
        self.frames: list[list[int]] = []
        try:
            self.send(protocol.HELLO, {"protocol": 1, **(hello or {})})
            self.welcome = self.until(protocol.WELCOME)
        except Exception:
            self.stream.close()
            raise

    def send(self, kind: int, content: dict[str, Any] | bytes = b"") -> None:
        payload = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.stream.sendall(protocol.encode_frame(kind, payload))

    def generate(self, number: int, ids: list[int], count: int, **more: Any) -> None:
        self.send(
            protocol.GENERATE,
            {"id": number, "ids": ids, "max_tokens": count, "temperature": 0, **more},
        )

    def read(self) -> tuple[int, Any]:
        """The next frame; tokens and ends are also kept."""
        head = protocol.read_exactly(self.stream, 5, may_end=True)
        length, kind = struct.unpack("<IB", head)
        payload = protocol.read_exactly(self.stream, length - 1)
        if kind == protocol.NEED:
            return kind, payload
        if kind != protocol.TOKENS:
            content = json.loads(payload)
            if kind == protocol.ENDED:
                self.ended[content["id"]] = content
            return kind, content
        (count,) = struct.unpack_from("<H", payload)
        flat = struct.unpack_from(f"<{2 * count}I", payload, 2)
        for number, token in zip(flat[::2], flat[1::2]):
            self.tokens.setdefault(number, []).append(token)
        self.frames.append(list(flat[::2]))
        return kind, flat

    def until(self, wanted: int) -> Any:
        """The next frame of a kind."""
        while True:
            kind, content = self.read()
            if kind == wanted:
                return content

    def finish(self, *numbers: int) -> None:
        """Reads until these generations have ended."""
        while any(number not in self.ended for number in numbers):
            self.read()

    def close(self) -> None:
        self.stream.close()
