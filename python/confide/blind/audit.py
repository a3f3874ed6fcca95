"""The host's events in the audit log (docs/blind-protocol.md): counts and names, never a value.

The native part counts and writes; who is who is here.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from .._extension import native
from .errors import Refusal


class AuditLog:
    """Called by the host with an event and what it concerns. Answers and repeated refusals are counted in the
    session's tally, and written by `write_counts`. Without a path the newest lines are kept in memory. Raises `OSError`
    for a file that cannot be opened. A line that cannot be written is reported on standard error, and counted in the
    next one that is.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._log = native.AuditLog(path)

    @property
    def lines(self) -> list[str]:
        """The lines in memory, the oldest first."""
        return self._log.lines

    def __call__(self, event: str, session: Any = None, **fields: Any) -> None:
        """Writes a line of an event with its fields; after that of a session's end its answers are refused."""
        if event == "refused" and not session.tally.count_refusal(Refusal(fields["refusal"]).code):
            return
        if event == "prepared":
            place = native.input_name(fields.pop("source"))
            fields["input"] = f"{fields.pop('layer')}/{place}"
        if event in ("goodbye", "expired", "evicted"):
            self._write_counted(session, session.tally.close())
        self._write(event, session, json.dumps(fields))

    def write_counts(self, session: Any) -> None:
        """Writes what was counted of a session since its last line."""
        self._write_counted(session, session.tally.take_counts())

    def _write_counted(self, session: Any, counts: str | None) -> None:
        if counts is not None:
            self._write("counted", session, counts)

    def _write(self, event: str, session: Any, fields: str) -> None:
        subject: tuple[bytes | None, str | None, str | None] = (None, None, None)
        if session is not None:
            subject = (session.client, session.account_name, session.adapter.name)
        try:
            self._log.write(event, *subject, fields)
        except OSError as error:
            print(f"adapter host: the audit log cannot be written: {error}", file=sys.stderr)
