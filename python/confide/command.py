"""`confide` on the command line: runs the program that the wheel carries."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn


def main() -> NoReturn:
    """Takes the place of this process with the program."""
    program = Path(__file__).with_name("bin") / "confide"
    if not program.exists():
        sys.exit(
            "confide: this installation has no program: `make wheel` in a checkout builds a wheel with it\n"
            "hint: `make build` builds the program alone, into target/release"
        )
    os.execv(program, [str(program), *sys.argv[1:]])
