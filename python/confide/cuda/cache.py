"""Where built kernels are kept: $CONFIDE_CACHE, or `confide` in the user's cache folder; and $CONFIDE_CUBINS, a folder
of cubins that were built on another machine.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path


def kernel_cache_folder() -> Path:
    """Gives the folder of built kernels, made for this user alone: what lies in it is executed."""
    base = os.environ.get("CONFIDE_CACHE") or Path(
        os.environ.get("XDG_CACHE_HOME") or "~/.cache", "confide"
    )
    path = Path(base).expanduser() / "kernels"
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return require_private_folder(path)


def cubin_folder() -> Path | None:
    """Gives the folder of cubins that were brought along, or None if none is named."""
    named = os.environ.get("CONFIDE_CUBINS")
    return require_private_folder(Path(named)) if named else None


def require_private_folder(path: Path) -> Path:
    """Returns the folder, if only this user can write to it: what lies in it is executed."""
    if path.stat().st_uid != os.getuid() or path.stat().st_mode & 0o022:
        raise PermissionError(
            f"kernel cache {path}: wanted a folder that only this user can write to"
        )
    return path


def write_atomically(path: Path, content: bytes) -> None:
    """Writes a file of the folder whole or not at all, even if another process writes it."""
    made = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}")
    made.write_bytes(content)
    os.replace(made, path)
