"""The native part of the package (crates/python), wherever it is, or a clear word on how to get it.

`native` is that of the installed package or, where this is a checkout on PYTHONPATH, the library that cargo has built:
the release build, or the debug build where there is no other. $CONFIDE_NATIVE names another library.
"""

from __future__ import annotations

import os
import stat
import sys
from importlib.machinery import ExtensionFileLoader
from importlib.util import find_spec, module_from_spec, spec_from_loader
from pathlib import Path

_NAME = "confide._native"
_CHECKOUT = Path(__file__).resolve().parents[2]
_LIBRARY = "lib_native.dylib" if sys.platform == "darwin" else "lib_native.so"
# The bits by which a group or others may write to a file.
_WRITABLE_BY_OTHERS = 0o022


def _load_native() -> None:
    """Makes the native part importable where it is not installed. Raises `ImportError`."""
    if named := os.environ.get("CONFIDE_NATIVE"):
        _load_library(Path(named), named)
        return
    if find_spec(_NAME) is not None:
        return
    library = _find_built_library()
    if library is None:
        raise ImportError(
            "the native part of confide is missing: install the package with `pip install .` in a checkout, or build "
            "it there with `make native` (kernels and a worker without adapters do without it)"
        )
    try:
        opened = _open_own_file(library)
    except OSError as error:
        raise ImportError(
            f"the native part of confide is not loaded from {library}: {error}; build it with `make native` as the "
            "owner of the checkout, or name a library in $CONFIDE_NATIVE"
        ) from error
    try:
        # What was checked is what is loaded, even if another file has its name by now.
        is_linux = sys.platform == "linux"
        _load_library(library, f"/proc/self/fd/{opened}" if is_linux else str(library))
    finally:
        os.close(opened)


def _find_built_library() -> Path | None:
    """Finds the library of this checkout; None if cargo has built none."""
    if not (_CHECKOUT / "crates/python/Cargo.toml").is_file():
        return None
    target = Path(os.environ.get("CARGO_TARGET_DIR", _CHECKOUT / "target"))
    built = (target / profile / _LIBRARY for profile in ("release", "debug"))
    return next((path for path in built if os.path.lexists(path)), None)


def _open_own_file(path: Path) -> int:
    """Opens a file that nobody but the owner of this package can have written. Raises `OSError` for any other: whoever
    can write to a folder above could have put it there.
    """
    opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        _check_owner(os.fstat(opened))
    except OSError:
        os.close(opened)
        raise
    return opened


def _check_owner(found: os.stat_result) -> None:
    owner = Path(__file__).resolve().stat().st_uid
    if not stat.S_ISREG(found.st_mode):
        raise OSError("wanted a regular file")
    if found.st_uid != owner:
        raise PermissionError(f"wanted a file of user {owner}, got one of user {found.st_uid}")
    if found.st_mode & _WRITABLE_BY_OTHERS:
        mode = stat.S_IMODE(found.st_mode)
        raise PermissionError(f"wanted a file that only its owner may write, got mode {mode:03o}")


def _load_library(library: Path, place: str) -> None:
    """Loads a library from a place, and makes it importable as the package's native part."""
    spec = spec_from_loader(_NAME, ExtensionFileLoader(_NAME, place))
    assert spec is not None and spec.loader is not None
    try:
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
    except ImportError as error:
        raise ImportError(
            f"the native part of confide cannot be loaded from {library}: {error}; build it with `make native` on a "
            "machine like this one"
        ) from error
    module.__file__ = str(library)
    sys.modules[_NAME] = module


_load_native()
try:
    from confide import _native as native
except ImportError as error:
    raise ImportError(
        f"the native part of the installed confide cannot be loaded: {error}; install the package again for this Python"
    ) from error

__all__ = ["native"]
