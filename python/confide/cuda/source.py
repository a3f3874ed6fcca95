"""A .cu file before a compiler sees it: its includes, its digest, its kernels with their parameters, its variants."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
_KERNEL = re.compile(
    r'extern\s+"C"\s+__global__\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?void\s+'
    r"(?:__launch_bounds__\s*\([^)]*\)\s*)?(\w+)\s*\(([^)]*)\)"
)
_VARIANT = re.compile(r"^// compile with:(.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel: `pointer` to (`writes` or not) or a scalar of the named C type."""

    name: str
    type: str
    pointer: bool
    writes: bool


@dataclass(frozen=True)
class Source:
    """A .cu file with everything it includes; `digest` changes with any of them and with the defines."""

    path: Path
    text: str
    defines: tuple[tuple[str, str], ...]
    digest: str
    kernels: dict[str, tuple[Parameter, ...]]


def read(file: str | os.PathLike[str], defines: Mapping[str, str | int] | None = None) -> Source:
    """Reads the source named by `file`, relative to this package's folder or absolute."""
    path = (FOLDER / file).resolve()
    if not path.is_file():
        raise FileNotFoundError(f"kernel file {file}: wanted a .cu file in {FOLDER}, found none")
    given = tuple(sorted((name, str(value)) for name, value in (defines or {}).items()))
    digest = hashlib.sha256(repr(given).encode())
    for included in _closure(path):
        digest.update(included.name.encode() + b"\0" + included.read_bytes() + b"\0")
    text = path.read_text()
    return Source(path, text, given, digest.hexdigest(), _kernels(text, dict(given)))


def variants(file: str | os.PathLike[str]) -> list[dict[str, str]]:
    """Gives the defines of each `// compile with: NAME=VALUE …` line; one empty set where there is none."""
    lines = _VARIANT.findall((FOLDER / file).read_text())
    return [dict(word.split("=", 1) for word in line.split()) for line in lines] or [{}]


def _closure(path: Path) -> list[Path]:
    """The file and, depth first and once each, what it includes from its own folder or this package's."""
    found: list[Path] = []
    waiting = [path]
    while waiting:
        current = waiting.pop()
        if current in found:
            continue
        found.append(current)
        for name in _INCLUDE.findall(current.read_text()):
            for folder in (current.parent, FOLDER):
                if (folder / name).is_file():
                    waiting.append((folder / name).resolve())
                    break
    return found


def _kernels(text: str, defines: dict[str, str]) -> dict[str, tuple[Parameter, ...]]:
    bare = _COMMENT.sub(" ", text)
    return {
        name: tuple(_parameter(part, defines) for part in body.split(",") if part.strip())
        for name, body in _KERNEL.findall(bare)
    }


def _parameter(text: str, defines: dict[str, str]) -> Parameter:
    pointer = "*" in text
    words = [
        word
        for word in re.findall(r"\w+", text)
        if word not in ("__restrict__", "__restrict", "volatile")
    ]
    constant = "const" in words
    words = [word for word in words if word != "const"]
    kind = " ".join(defines.get(word, word) for word in words[:-1])
    return Parameter(words[-1], kind, pointer, pointer and not constant)
