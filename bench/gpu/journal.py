"""The journal of a run in the instrument's own format (docs/records.md), which `confide bench` reads.

Its first line is a record with nothing measured yet; slices, samples and whole blocks follow as they are measured, so
that an interrupted run keeps them. Estimates, intervals and verdicts are not made here: bench/estimate is their one
source, and `confide bench report` computes every row from these samples.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import time
import tomllib
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parent.parent
SUITE = HERE / "suite.toml"
REHEARSAL = "rehearsal on a CPU: says nothing about a GPU"
JOURNAL_FILE = "samples.jsonl"
REHEARSAL_FILE = "rehearsal.jsonl"


class Journal:
    """Appends lines to DIR/samples.jsonl; of a rehearsal to DIR/rehearsal.jsonl, which no reader takes for a record."""

    def __init__(self, folder: Path, head: dict[str, Any], rehearsal: bool) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / (REHEARSAL_FILE if rehearsal else JOURNAL_FILE)
        # A second run never writes over a first one: choosing the run that pleases is choosing the result.
        self._file = open(self.path, "x", encoding="utf-8")
        self._started = time.monotonic()
        # SHA-256 over the link before and the bytes of a line; each `block` line names the link before it.
        self._chain = bytes(32)
        # The reader refuses a record with a field that it does not know, so that no copy of this passes for one.
        refused = {"rehearsal": REHEARSAL} if rehearsal else {}
        self.write_line({"kind": "run", **head, "sessions": [], **refused})
        # The reader counts stretches by these lines.
        self.write_line({"kind": "session", **head["sessions"].pop()})

    def elapsed_s(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._started

    def write_line(self, line: dict[str, Any]) -> None:
        """Writes one line, which is on disk before the next is measured."""
        if line["kind"] == "block":
            line = {**line, "chain": self._chain.hex()}
        text = json.dumps(line, allow_nan=False, separators=(",", ":")) + "\n"
        self._chain = hashlib.sha256(self._chain + text.encode()).digest()
        self._file.write(text)
        self._file.flush()

    def finish(self, partial: str | None) -> None:
        """Writes the last line and closes the file."""
        ended = "interrupted" if partial else "done"
        self.write_line(
            {"kind": "end", "wall_s": self.elapsed_s(), "ended": ended, "partial": partial}
        )
        self._file.close()


def read_suite() -> dict[str, Any]:
    """The suite's tables."""
    return tomllib.loads(SUITE.read_text(encoding="utf-8"))


def make_head(command: list[str], machine: dict[str, Any], seed: int) -> dict[str, Any]:
    """The record before anything was measured."""
    text = SUITE.read_text(encoding="utf-8")
    tables = tomllib.loads(text)
    digest = hashlib.sha256(text.encode()).hexdigest()
    about = tables["suite"]
    started = int(time.time())
    session = {"started_unix_s": started, "wall_s": 0.0, "boot": read_boot_id()}
    session |= {"ended": "killed", "command": command}
    validity = {"outcome": "not_judged", "reason": "rows are computed where the record is read"}
    empty = ("arms", "services", "not_run", "voids")
    figures = [{"arm": None, "params": {}, **one} for one in tables.get("seed_figure", [])]
    names = {name: about[name] for name in ("name", "title", "about")}
    return {
        "schema": 2,
        "version": read_version(),
        "commit": read_commit(),
        "command": command,
        "suite": names | {"sha256": digest, "text": text},
        "effort": "full",
        "seed": seed,
        "blocks_asked": None,
        "started_unix_s": started,
        "wall_s": 0.0,
        "partial": None,
        "machine": machine,
        **{name: [] for name in empty},
        "validity": validity,
        "rows": [],
        "figures": [],
        "seed_figures": figures,
        "plan": {"sha256": plan_digest(digest, seed)},
        "sessions": [session],
    }


def plan_digest(suite_sha256: str, seed: int) -> str:
    """The digest by which the instrument names a plan: keys sorted, no spaces (bench/harness/src/record.rs)."""
    plan = {"plan": 1, "suite": suite_sha256, "effort": "full", "seed": seed, "vars": {}}
    plan |= {"blocks": None, "benches": [], "budget_s": None}
    text = json.dumps(plan, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def read_version() -> str:
    """The workspace's version."""
    manifest = tomllib.loads((CHECKOUT / "Cargo.toml").read_text(encoding="utf-8"))
    found: str = manifest["workspace"]["package"]["version"]
    return found


def read_commit() -> str:
    """The checkout's commit, `-dirty` where tracked files differ; $CONFIDE_COMMIT where there is no repository, or else
    `unknown`.
    """

    def run_git(*words: str) -> str | None:
        try:
            output = subprocess.check_output(["git", *words], cwd=CHECKOUT, text=True,
                                             stderr=subprocess.DEVNULL, timeout=20)  # fmt: skip
        except (OSError, subprocess.SubprocessError):
            return None
        return output.strip()

    found = run_git("rev-parse", "HEAD")
    if not found:
        return os.environ.get("CONFIDE_COMMIT", "unknown")
    return (
        found
        if run_git("status", "--porcelain", "--untracked-files=no") == ""
        else f"{found}-dirty"
    )


def read_boot_id() -> str:
    """The kernel's id of this boot."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"


def case_key(params: dict[str, Any]) -> str:
    """A point of a grid as the instrument writes it: by name, `batch=1 model=qwen2.5-1.5b`."""
    words = {k: v if isinstance(v, str) else json.dumps(v) for k, v in params.items()}
    return " ".join(f"{name}={word}" for name, word in sorted(words.items()))
