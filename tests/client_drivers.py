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

import codecs
import contextlib
import http.client
import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

# No step takes this long unless it hangs.
STEP_S = 60


@dataclass(frozen=True)
class ClientOptions:
    """The options of a client: where it finds the host, and what it accepts there."""

    server: str
    policy: Path
    binding: str
    tunnel: str | None = None
    evidence_age_s: int = 900
    session_version: int | None = None


@dataclass(frozen=True)
class Outcome:
    """The outcome of a step, as the user of the client sees it."""

    status: int = 0
    pieces: list[str] = field(default_factory=list)
    # What the user reads where the evidence was refused, and the name of the check.
    refused: str = ""
    check: str = ""
    # What the user reads where something else went wrong.
    failed: str = ""


class LineProgram:
    """A program that reads lines of JSON on standard input and writes lines of JSON on standard output."""

    def __init__(self, command: list[str], environment: dict[str, str] | None = None) -> None:
        self.command = command
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env={**os.environ, **(environment or {})},
            text=True,
        )

    def read(self) -> dict[str, Any]:
        """The next line, an object."""
        assert self.process.stdout
        with self._limit_step():
            line = self.process.stdout.readline()
        try:
            return dict(json.loads(line))
        except ValueError:
            text = f"{self.command}: wanted a line of JSON within {STEP_S} s, got {line!r}"
            raise AssertionError(f"{text}: {self.read_errors()}") from None

    def ask(self, line: dict[str, Any]) -> dict[str, Any]:
        """Writes a line, and reads the one that answers it."""
        assert self.process.stdin
        # A program that has ended says why where its line is read.
        with self._limit_step(), contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(line) + "\n")
            self.process.stdin.flush()
        return self.read()

    @contextlib.contextmanager
    def _limit_step(self) -> Iterator[None]:
        """Ends the program where it takes longer over a step, and so what waits for it."""
        watchdog = threading.Timer(STEP_S, self.process.kill)
        watchdog.start()
        try:
            yield
        finally:
            watchdog.cancel()

    def wait(self) -> int:
        """Waits for the end of the program, and gives its status."""
        with self._limit_step():
            return self.process.wait()

    def read_errors(self) -> str:
        """What the program has written to standard error so far."""
        self.errors.seek(0)
        return self.errors.read()

    def close(self) -> int:
        """Waits for the end of the program, whose input ends, and gives its status."""
        assert self.process.stdin and self.process.stdout
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            return self.wait()
        finally:
            self.process.stdout.close()
            self.errors.close()

    def stop(self) -> None:
        """Stops the program, which must end with status 0."""
        self.process.terminate()
        status = self.close()
        assert status == 0, f"{self.command}: wanted status 0 after SIGTERM, got {status}"


class DriverClient:
    """A client behind a driver."""

    def __init__(
        self, name: str, command: list[str], environment: dict[str, str] | None = None
    ) -> None:
        self.name = name
        self.driver = LineProgram(command, environment)

    def open(self, options: ClientOptions) -> Outcome:
        """Makes a client with these options."""
        members = {**vars(options), "policy": options.policy.read_text()}
        return Outcome(**self.driver.ask({"do": "open", **members}))

    def ask(self, body: str) -> Outcome:
        """Sends a chat, and reads its answer to the end."""
        return Outcome(**self.driver.ask({"do": "ask", "body": body}))

    def close(self) -> None:
        """Closes the client that was opened last."""
        outcome = Outcome(**self.driver.ask({"do": "close"}))
        assert outcome == Outcome(), f"{self.name}: close: {outcome}"

    def end(self) -> None:
        """Ends the driver."""
        status = self.driver.close()
        assert status == 0, f"{self.driver.command}: wanted status 0, got {status}"


class ConnectClient:
    """`confide connect`, and a program that asks at its address."""

    name = "connect"

    def __init__(self, confide: str) -> None:
        self.confide = confide
        self.program: LineProgram | None = None
        self.address = ""

    def open(self, options: ClientOptions) -> Outcome:
        """Starts `confide connect` with these options."""
        command = [self.confide, "connect", options.server, "--listen", "127.0.0.1:0"]
        command += ["--policy", str(options.policy), "--binding", options.binding, "--json"]
        command += ["--evidence-age-s", str(options.evidence_age_s), "--deadline-ms", "60000"]
        if options.tunnel:
            command += ["--via", options.tunnel]
        if options.session_version:
            command += ["--session-version", str(options.session_version)]
        program = LineProgram(command)
        try:
            ready = program.read()
        except AssertionError:
            program.close()
            raise
        if ready.get("ready"):
            self.program, self.address = program, ready["base_url"]
            return Outcome()
        status = program.wait()
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
            decoder = codecs.getincrementaldecoder("utf-8")()
            pieces = []
            while piece := answer.read1():
                pieces.append(decoder.decode(piece))
        finally:
            connection.close()
        if answer.status == http.client.OK:
            return Outcome(answer.status, pieces)
        text = "".join(pieces)
        assert text.startswith('{"error":'), f"connect: status {answer.status} with {text!r}"
        error = json.loads(text)["error"]
        if error["code"] == "evidence_rejected":
            return read_refusal(error["message"])
        return Outcome(failed=error["message"])

    def close(self) -> None:
        """Stops `confide connect`."""
        program, self.program = self.program, None
        if program:
            program.stop()

    def end(self) -> None:
        """Stops `confide connect` if it still runs."""
        self.close()


def read_refusal(text: str) -> Outcome:
    """A refusal whose check is named in its text only."""
    return Outcome(refused=text, check=text.partition("check `")[2].partition("`")[0])


Client = ConnectClient | DriverClient
