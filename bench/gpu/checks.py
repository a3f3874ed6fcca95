"""The checks that an arm's figures rest on: test files that have to pass on the same card in the same run.

Until they have, the arm's note in the record is *not checked on this card*: a fast wrong answer is void.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping

from journal import HERE

NOT_CHECKED = "not checked on this card"
OF_ARM: dict[str, list[str]] = tomllib.loads((HERE / "table.toml").read_text(encoding="utf-8"))[
    "checks"
]


def describe_outcomes(arm: str, outcomes: Mapping[str, str]) -> str | None:
    """The note on an arm, from the outcomes of checks by name (`passed: …`, `failed …`, `no time left`). None if all
    that it rests on passed, and for an arm with nothing of ours in it.
    """
    wanted = OF_ARM.get(arm, [])
    failed = [name for name in wanted if outcomes.get(name, "").startswith("failed")]
    if failed:
        return f"checks failed on this card: {', '.join(short_name(name) for name in failed)}"
    if all(outcomes.get(name, "").startswith("passed") for name in wanted):
        return None
    return NOT_CHECKED


def short_name(module: str) -> str:
    """The last part of a test file's name, as notes have it: `test_decode`."""
    return module.rsplit(".", 1)[-1]
