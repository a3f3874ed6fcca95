"""Who a session's answers are counted for, and how many there are: crates/lora/src/host/accounts.rs and budget.rs."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from dataclasses import dataclass, field
from pathlib import Path

from .errors import AdapterRefused, Refusal

CLIENTS_MAX, CLIENTS_BYTES_MAX = 4096, 1 << 20
SLOTS_MAX = 1 << 20
BUDGET_LINES_MAX = 4_000_000
# Answers counted ahead by one line, which a restart then counts as given.
AHEAD = 64


@dataclass(frozen=True)
class Slot:
    """What a sequence or a count belongs to: client or account, adapter, layer and input."""

    client: bytes
    adapter: bytes
    layer: int
    source: int


@dataclass(frozen=True)
class Account:
    """What answers are counted for."""

    id: bytes
    name: str


@dataclass
class Clients:
    """Clients that a host knows by a credential; none named: everyone, on one account."""

    known: dict[bytes, str] = field(default_factory=dict)

    @staticmethod
    def parse(text: str) -> Clients:
        """Lines of a name and the SHA-256 of its credential in hexadecimal; `#` begins a comment."""
        clients = Clients()
        for number, line in enumerate(text.splitlines(), 1):
            words = line.split("#")[0].split()
            if not words:
                continue
            if len(words) != 2 or len(words[1]) != 64 or not set(words[1].lower()) <= set("0123456789abcdef"):
                raise AdapterRefused(f"clients, line {number}: wanted NAME and the SHA-256 of its credential")
            digest = bytes.fromhex(words[1])
            if digest in clients.known or words[0] in clients.known.values():
                raise AdapterRefused(f"clients, line {number}: wanted each name and each credential once")
            clients.known[digest] = words[0]
            if len(clients.known) > CLIENTS_MAX:
                raise AdapterRefused(f"clients: wanted at most {CLIENTS_MAX}, got more")
        return clients

    def account(self, credential: bytes) -> Account:
        """The account of a client; strangers are refused where there is a list."""
        name = "everyone"
        if self.known:
            # The digest is what is compared: its bytes tell nothing about the credential's.
            name = self.known.get(hashlib.sha256(credential).digest(), "")
            if not name:
                raise Refusal("unknown-adapter")
        named = b"confide lora account v1" + bytes([not self.known]) + name.encode()
        return Account(hashlib.sha256(named).digest(), name)


class Budgets:
    """Answers that accounts have had. None is ever forgotten: a forgotten budget is a fresh one."""

    def __init__(self, path: Path | None = None):
        self._lock, self._used = threading.Lock(), {}
        self._file = None if path is None else _BudgetFile(path, self._used)

    def take(self, slot: Slot, limit: int | None, vectors: int) -> int | None:
        """Counts `vectors` answers before they are given, all or none; gives those left."""
        with self._lock:
            if slot not in self._used and len(self._used) >= SLOTS_MAX:
                raise Refusal("busy")
            after = self._used.get(slot, 0) + vectors
            if limit is not None and after > limit:
                raise Refusal("budget", limit)
            if self._file is not None:
                try:
                    self._file.reserve(slot, after)
                except OSError as error:
                    # Counts that cannot be kept: nothing is answered.
                    raise Refusal("internal") from error
            self._used[slot] = after
        return None if limit is None else limit - after

    def left(self, slot: Slot, limit: int | None) -> int | None:
        """Answers left; None where there is no budget."""
        with self._lock:
            return None if limit is None else max(limit - self._used.get(slot, 0), 0)

    def used(self, slot: Slot) -> int:
        """Answers that were given."""
        with self._lock:
            return self._used.get(slot, 0)


class _BudgetFile:
    """One JSON object a line, appended before the answers that it counts: the lines of crates/lora."""

    def __init__(self, path: Path, counts: dict[Slot, int]):
        text = path.read_text() if path.exists() else ""
        for number, line in enumerate(text.splitlines(), 1):
            try:
                entry = json.loads(line)
                slot = Slot(bytes.fromhex(entry.pop("client")), bytes.fromhex(entry.pop("adapter")),
                            int(entry.pop("layer")), int(entry.pop("input")))
                used = int(entry.pop("used"))
                whole = not entry and len(slot.client) == len(slot.adapter) == 32 and 0 <= slot.source <= 4
            except (ValueError, KeyError, TypeError, AttributeError):
                whole = False
            if not whole or number > BUDGET_LINES_MAX:
                raise AdapterRefused(
                    f"{path}: line {number} of the budget file is not a count: restore it, do not empty it")
            counts[slot] = max(counts.get(slot, 0), used)
        beside = path.with_name(path.name + ".new")
        beside.write_text("".join(_line(slot, used) for slot, used in counts.items()))
        os.replace(beside, path)
        self._file, self._written = path.open("a"), dict(counts)

    def reserve(self, slot: Slot, used: int) -> None:
        """Has a line on disk that counts at least `used`."""
        if self._written.get(slot, -1) >= used:
            return
        self._file.write(_line(slot, used + AHEAD))
        self._file.flush()
        self._written[slot] = used + AHEAD


def _line(slot: Slot, used: int) -> str:
    return json.dumps({"client": slot.client.hex(), "adapter": slot.adapter.hex(), "layer": slot.layer,
                       "input": slot.source, "used": used}, separators=(",", ":")) + "\n"
