"""The clients of tests/clients.py: each opens a client of one language, asks through it, and says what its user sees.

A driver is a program that reads one command in JSON from each line of standard input, and writes the answer to it in
JSON on a line of standard output:

| command | members | answer |
| --- | --- | --- |
| `open` | `server`, `policy` (text), `binding`, `session_version`, `tunnel`, `evidence_age_s` | an empty object |
| `ask` | `body` of a chat | `status`, and `pieces` of the answer's body as they came |
| `close` | | an empty object |

`session_version` and `tunnel` may be `null`. Instead of this, an answer has `refused`, the text of the client's own
exception, and `check` where the evidence is refused, or `failed`, a text, where something else went wrong. A client may
open its connection with the first `ask`.
"""

import contextlib
import http.client
import json
import os
import subprocess
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

# No step takes this long unless it hangs.
STEP_S = 60


@dataclass(frozen=True)
class Place:
    """Where a client finds the host, and what it accepts there."""

    server: str
    policy: Path
    binding: str
    tunnel: str | None = None
    evidence_age_s: int = 900
    session_version: int | None = None


@dataclass(frozen=True)
class Outcome:
    """What a step came to."""

    status: int = 0
    pieces: list[str] = field(default_factory=list)
    # What the user reads where the evidence was refused, and the name of the check.
    refused: str = ""
    check: str = ""
    # What the user reads where something else went wrong.
    failed: str = ""


class Lines:
    """A program, which is written to and read from by lines."""

    def __init__(self, command: list[str], environment: dict[str, str] | None = None) -> None:
        self.command = command
        self.complaints = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.complaints,
            env={**os.environ, **(environment or {})},
            text=True,
        )

    def read(self) -> dict[str, Any]:
        """The next line, an object."""
        assert self.process.stdout
        watchdog = threading.Timer(STEP_S, self.process.kill)
        watchdog.start()
        line = self.process.stdout.readline()
        watchdog.cancel()
        if not line:
            raise AssertionError(f"{self.command}: no line within {STEP_S} s: {self.read_errors()}")
        return dict(json.loads(line))

    def ask(self, line: dict[str, Any]) -> dict[str, Any]:
        """Writes a line, and reads the one that answers it."""
        assert self.process.stdin
        self.process.stdin.write(json.dumps(line) + "\n")
        self.process.stdin.flush()
        return self.read()

    def read_errors(self) -> str:
        """What the program has written to standard error so far."""
        self.complaints.seek(0)
        return self.complaints.read()

    def close(self) -> int:
        """Waits for the end of the program, whose input ends, and gives its status."""
        assert self.process.stdin and self.process.stdout
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            return self.process.wait(STEP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        finally:
            self.process.stdout.close()
            self.complaints.close()


class DriverClient:
    """A client behind a driver."""

    def __init__(
        self, name: str, command: list[str], environment: dict[str, str] | None = None
    ) -> None:
        self.name = name
        self.driver = Lines(command, environment)

    def open(self, place: Place) -> Outcome:
        """Makes a client for a place."""
        members = {**vars(place), "policy": place.policy.read_text()}
        return Outcome(**self.driver.ask({"do": "open", **members}))

    def ask(self, body: str) -> Outcome:
        """Sends a chat, and reads its answer to the end."""
        return Outcome(**self.driver.ask({"do": "ask", "body": body}))

    def close(self) -> None:
        """Closes the client that was opened last."""
        self.driver.ask({"do": "close"})

    def end(self) -> None:
        """Ends the driver."""
        self.driver.close()


class ConnectClient:
    """`confide connect`, and a program that asks at its address."""

    name = "connect"

    def __init__(self, confide: str) -> None:
        self.confide = confide
        self.program: Lines | None = None
        self.address = ""

    def open(self, place: Place) -> Outcome:
        """Starts `confide connect` for a place."""
        command = [self.confide, "connect", place.server, "--listen", "127.0.0.1:0"]
        command += ["--policy", str(place.policy), "--binding", place.binding, "--json"]
        command += ["--evidence-age-s", str(place.evidence_age_s), "--deadline-ms", "60000"]
        if place.tunnel:
            command += ["--via", place.tunnel]
        if place.session_version:
            command += ["--session-version", str(place.session_version)]
        program = Lines(command)
        ready = program.read()
        if ready.get("ready"):
            self.program, self.address = program, ready["base_url"]
            return Outcome()
        status = program.process.wait(STEP_S)
        # What a person reads, not what a program does.
        text = program.read_errors().partition("confide: ")[2].strip()
        program.close()
        return read_refusal(text) if status == 1 else Outcome(failed=text)

    def ask(self, body: str) -> Outcome:
        """Sends a chat to the address, and reads its answer to the end."""
        url = urlsplit(self.address)
        connection = http.client.HTTPConnection(url.netloc, timeout=STEP_S)
        try:
            headers = {"content-type": "application/json"}
            connection.request("POST", f"{url.path}/chat/completions", body, headers)
            answer = connection.getresponse()
            pieces = []
            while piece := answer.read1():
                pieces.append(piece.decode())
        finally:
            connection.close()
        if answer.status == http.client.OK:
            return Outcome(answer.status, pieces)
        error = json.loads("".join(pieces))["error"]
        if error["code"] == "evidence_rejected":
            return read_refusal(error["message"])
        return Outcome(failed=error["message"])

    def close(self) -> None:
        """Stops `confide connect`."""
        if self.program:
            self.program.process.terminate()
            status = self.program.close()
            assert status == 0, f"confide connect ended with {status}"
        self.program = None

    def end(self) -> None:
        """Stops `confide connect` if it still runs."""
        self.close()


def read_refusal(text: str) -> Outcome:
    """A refusal whose check is named in its text only."""
    return Outcome(refused=text, check=text.partition("check `")[2].partition("`")[0])


Client = ConnectClient | DriverClient
