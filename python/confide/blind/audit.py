"""Who was answered how often: JSON lines as docs/blind-protocol.md has them. Counts and names, never a value."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

FILE_BYTES_MAX, LINES_KEPT = 16 << 20, 8640
_INPUTS = ("attention", "attention-output", "feed-forward", "feed-forward-inner", "final-hidden")


class AuditLog:
    """Called by the host with an event and what it concerns. Answers and repeated refusals are counted, and written by
    `flush`.
    """

    def __init__(self, path: Path | None = None, now: Callable[[], float] = time.time) -> None:
        self.lines: deque[str] = deque(maxlen=LINES_KEPT)
        self._path, self._now, self._lock = path, now, threading.Lock()
        self._file = None if path is None else path.open("a")
        self._tally: dict[bytes, dict[str, Any]] = {}

    def __call__(self, event: str, session: Any = None, **fields: Any) -> None:
        """Appends an event with its fields to the file, in JSON; answers are counted and written together."""
        with self._lock:
            if event == "answered":
                counts = self._counts(session)["inputs"]
                place = f"{fields['layer']}/{_INPUTS[fields['source']]}"
                counts[place] = counts.get(place, 0) + fields["vectors"]
                return
            if event == "refused":
                counts = self._counts(session)["refused"]
                counts[fields["refusal"]] = counts.get(fields["refusal"], 0) + 1
                if counts[fields["refusal"]] > 1:
                    return
            if event == "prepared":
                fields["input"] = f"{fields.pop('layer')}/{_INPUTS[fields.pop('source')]}"
            if event in ("goodbye", "expired"):
                self._flush_one(None if session is None else session.client)
            self._write(event, session, fields)

    def flush(self) -> None:
        """Writes what was counted."""
        with self._lock:
            for client in list(self._tally):
                self._flush_one(client)

    def _counts(self, session: Any) -> dict[str, Any]:
        client = b"" if session is None else session.client
        return self._tally.setdefault(client, {"session": session, "inputs": {}, "refused": {}})

    def _flush_one(self, client: bytes | None) -> None:
        counts = self._tally.pop(client or b"", None)
        if counts is None:
            return
        fields: dict[str, Any] = {}
        if counts["inputs"]:
            fields = {"vectors": sum(counts["inputs"].values()), "inputs": counts["inputs"]}
        if counts["refused"]:
            fields["refused"] = counts["refused"]
        self._write("counted", counts["session"], fields)

    def _write(self, event: str, session: Any, fields: dict[str, Any]) -> None:
        line: dict[str, Any] = {"time": int(self._now()), "event": event}
        if session is not None:
            line |= {
                "client": session.client[:8].hex(),
                "account": session.account_name,
                "adapter": session.adapter.name,
            }
        text = json.dumps(line | fields, separators=(",", ":"))
        if self._file is None or self._path is None:
            self.lines.append(text)
            return
        if self._file.tell() + len(text) > FILE_BYTES_MAX:
            self._file.close()
            os.replace(self._path, f"{self._path}.1")
            self._file = self._path.open("a")
        self._file.write(text + "\n")
        self._file.flush()
