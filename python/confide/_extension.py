"""The native part of the package (crates/python), wherever it is, or a clear word on how to get it.

`native` is that of the installed package or, where this is a checkout on PYTHONPATH, the library that cargo has built
last. $CONFIDE_NATIVE names another library.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

_NAME = "confide._native"
_CHECKOUT = Path(__file__).resolve().parents[2]
_LIBRARY = "lib_native.dylib" if sys.platform == "darwin" else "lib_native.so"


def _find_built_library() -> Path | None:
    """The newest library of this checkout, or None. One that belongs to another user is none: whoever can write to
    a folder above could have put it there.
    """
    if not (_CHECKOUT / "crates/python/Cargo.toml").is_file():
        return None
    target = Path(os.environ.get("CARGO_TARGET_DIR", _CHECKOUT / "target"))
    owner = Path(__file__).resolve().stat().st_uid
    built = [target / profile / _LIBRARY for profile in ("release", "debug")]
    ours = [path for path in built if path.is_file() and path.stat().st_uid == owner]
    return max(ours, key=lambda path: path.stat().st_mtime, default=None)


def _load_library(library: Path) -> None:
    """Makes a library importable as the package's native part."""
    spec = spec_from_loader(_NAME, ExtensionFileLoader(_NAME, str(library)))
    if spec is None or spec.loader is None:
        raise ImportError(f"{library}: it cannot be loaded")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[_NAME] = module


if _named := os.environ.get("CONFIDE_NATIVE"):
    _load_library(Path(_named))
try:
    from confide import _native as native
except ImportError as error:
    _built = _find_built_library()
    if _built is None:
        raise ImportError(
            "the native part of confide is missing: install the package with `pip install .` in a checkout, or build "
            "it there with `make native` (kernels and a worker without adapters do without it)"
        ) from error
    _load_library(_built)
    from confide import _native as native

__all__ = ["native"]
