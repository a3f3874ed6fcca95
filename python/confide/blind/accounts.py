"""Who a session's answers are counted for, and how many there are: crates/lora/src/host/accounts.rs and budget.rs."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import stat
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from .errors import AdapterRefused, Refusal

CLIENTS_MAX, CLIENTS_BYTES_MAX = 4096, 1 << 20
SLOTS_MAX = 1 << 20
BUDGET_LINES_MAX = 4_000_000
# Answers counted ahead by one line, at most and as a share of the budget: a restart after a crash counts them as given.
AHEAD_MAX, AHEAD_SHARE = 64, 32
BUDGET_FILE_NAME = "adapter-budgets.jsonl"


@dataclass(frozen=True)
class CountKey:
    """The owner of a sequence or a count: client or account, adapter's name or its A by digest, layer and input."""

    client: bytes
    adapter: bytes
    layer: int
    source: int


@dataclass(frozen=True)
class AccountId:
    """The account that answers are counted for: its digest and its name."""

    id: bytes
    name: str


@dataclass
class ClientList:
    """The clients that a host knows by a credential; an empty list serves everyone on one account."""

    known: dict[bytes, str] = field(default_factory=dict)

    @staticmethod
    def parse(text: str) -> ClientList:
        """Reads lines of a name and the SHA-256 of its credential in hexadecimal; `#` begins a comment."""
        clients = ClientList()
        for number, line in enumerate(text.splitlines(), 1):
            words = line.split("#")[0].split()
            if not words:
                continue
            if (
                len(words) != 2
                or len(words[1]) != 64
                or not set(words[1].lower()) <= set("0123456789abcdef")
            ):
                raise AdapterRefused(
                    f"clients, line {number}: wanted NAME and the SHA-256 of its credential"
                )
            digest = bytes.fromhex(words[1])
            if digest in clients.known or words[0] in clients.known.values():
                raise AdapterRefused(
                    f"clients, line {number}: wanted each name and each credential once"
                )
            clients.known[digest] = words[0]
            if len(clients.known) > CLIENTS_MAX:
                raise AdapterRefused(f"clients: wanted at most {CLIENTS_MAX}, got more")
        return clients

    def account_of(self, credential: bytes) -> AccountId:
        """Gives the account of a client; strangers are refused if there is a list."""
        name = "everyone"
        if self.known:
            # The digest is what is compared: its bytes tell nothing about the credential's.
            name = self.known.get(hashlib.sha256(credential).digest(), "")
            if not name:
                raise Refusal("unknown-adapter")
        named = b"confide lora account v1" + bytes([not self.known]) + name.encode()
        return AccountId(hashlib.sha256(named).digest(), name)


class Budgets:
    """The answers that accounts have had. None is ever forgotten: a forgotten budget is a fresh one."""

    def __init__(self, path: Path | None = None) -> None:
        self._lock = threading.Lock()
        self._used: dict[CountKey, int] = {}
        self._file = None if path is None else _BudgetFile(path, self._used)

    def charge(self, slot: CountKey, limit: int | None, vectors: int) -> int | None:
        """Counts `vectors` answers before they are given, all or none; gives those left."""
        with self._lock:
            if slot not in self._used and len(self._used) >= SLOTS_MAX:
                raise Refusal("busy")
            after = self._used.get(slot, 0) + vectors
            if limit is not None and after > limit:
                raise Refusal("budget", limit)
            if self._file is not None:
                try:
                    self._file.reserve(slot, after, limit)
                except OSError as error:
                    # Counts that cannot be kept: nothing is answered.
                    raise Refusal("internal") from error
            self._used[slot] = after
        return None if limit is None else limit - after

    def write_exact_counts(self) -> None:
        """Writes exactly what was answered to disk, at a clean end."""
        with self._lock:
            if self._file is not None:
                self._file.write_exact_counts(self._used)

    def remaining(self, slot: CountKey, limit: int | None) -> int | None:
        """Gives the answers left; None if there is no budget."""
        with self._lock:
            return None if limit is None else max(limit - self._used.get(slot, 0), 0)


class _BudgetFile:
    """One JSON object a line, synchronised before the answers that it counts: the lines of crates/lora."""

    def __init__(self, path: Path, counts: dict[CountKey, int]) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path = _follow_links(path)
            # Two hosts that count in one file would each miss the other's answers.
            self._lock = open(f"{path}.lock", "a")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise AdapterRefused(f"budget file {path}: another adapter host uses it") from error
        except OSError as error:
            raise AdapterRefused(f"budget file {path}: {error}") from error
        text = path.read_text() if path.exists() else ""
        # What a crash cut short was not on the disk yet, so nothing was answered for it.
        for number, line in enumerate(text[: text.rfind("\n") + 1].splitlines(), 1):
            slot, used = _parse_line(path, number, line)
            counts[slot] = max(counts.get(slot, 0), used)
        self._path, self._written = path, dict(counts)
        self._file = self._rewrite(counts)

    def reserve(self, slot: CountKey, used: int, limit: int | None) -> None:
        """Puts a line on disk that counts at least `used` of a budget of `limit`."""
        if self._written.get(slot, -1) >= used:
            return
        ahead = used + (AHEAD_MAX if limit is None else min(limit // AHEAD_SHARE, AHEAD_MAX))
        self._file.write(_format_line(slot, ahead))
        self._file.flush()
        os.fdatasync(self._file.fileno())
        self._written[slot] = ahead

    def write_exact_counts(self, counts: dict[CountKey, int]) -> None:
        """Writes the true counts in place of those written ahead."""
        self._file = self._rewrite(counts)
        self._written = dict(counts)

    def _rewrite(self, counts: dict[CountKey, int]) -> TextIO:
        beside = self._path.with_name(self._path.name + ".new")
        with beside.open("w") as file:
            file.write("".join(_format_line(slot, used) for slot, used in counts.items()))
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, self._path)
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return self._path.open("a")


def _follow_links(path: Path) -> Path:
    """The file that `path` leads to. It is replaced when it is written again, so a device or a pipe would be lost, and
    of two names of one file each would go on with counts of its own.
    """
    if not os.path.lexists(path):
        return path
    path = path.resolve(strict=True)
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise OSError("wanted an ordinary file, got a device, a pipe or a folder")
    if found.st_nlink > 1:
        raise OSError("wanted a file with only one hard link, got one with more")
    return path


def _parse_line(path: Path, number: int, line: str) -> tuple[CountKey, int]:
    by_name = False
    try:
        entry = json.loads(line)
        by_name = "adapter" in entry
        slot = CountKey(
            bytes.fromhex(entry.pop("account")),
            bytes.fromhex(entry.pop("weights")),
            int(entry.pop("layer")),
            int(entry.pop("input")),
        )
        used = int(entry.pop("used"))
        whole = not entry and len(slot.client) == len(slot.adapter) == 32 and 0 <= slot.source <= 4
    except (ValueError, KeyError, TypeError, AttributeError):
        whole = False
    if whole and number <= BUDGET_LINES_MAX:
        return slot, used
    got = "a count by the adapter's name, from an earlier version" if by_name else "something else"
    raise AdapterRefused(
        f"budget file {path}: line {number}: wanted a count by the digest of the weights, got {got}\n"
        "hint: restore the file, or move it away and reduce --budget by the answers already given"
    )


def _format_line(slot: CountKey, used: int) -> str:
    return (
        json.dumps(
            {
                "account": slot.client.hex(),
                "weights": slot.adapter.hex(),
                "layer": slot.layer,
                "input": slot.source,
                "used": used,
            },
            separators=(",", ":"),
        )
        + "\n"
    )


def default_budget_file(environment: dict[str, str] | os._Environ[str]) -> Path | None:
    """Gives the file of counts by default, which `confide adapter host` and this host share."""
    for name, below in (("XDG_STATE_HOME", ""), ("HOME", ".local/state")):
        folder = environment.get(name, "")
        if os.path.isabs(folder):
            return Path(folder) / below / "confide" / BUDGET_FILE_NAME
    return None
