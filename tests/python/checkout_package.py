"""Makes the package `confide` of the checkout importable, with the native part that cargo has built.

    python tests/python/checkout_package.py PATH-OF-CONFIDE FOLDER

FOLDER/confide then has links to the Python files and a copy of the library that lies next to the program, or of
$CONFIDE_NATIVE. What a wheel adds to this is the program alone.
"""

import os
import shutil
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]


def link_package(binary: Path, folder: Path) -> None:
    """Puts the package of the checkout and the library that cargo built next to `binary` into a folder."""
    package = folder / "confide"
    package.mkdir(parents=True)
    for entry in (CHECKOUT / "python/confide").iterdir():
        if not entry.name.startswith("_native.abi3") and entry.name != "bin":
            (package / entry.name).symlink_to(entry)
    library = os.environ.get("CONFIDE_NATIVE", str(binary.with_name("lib_native.so")))
    shutil.copy(library, package / "_native.abi3.so")


if __name__ == "__main__":
    link_package(Path(sys.argv[1]).resolve(), Path(sys.argv[2]))
