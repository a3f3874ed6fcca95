"""Where a checkout finds the package's native part, and what is said where it is not loaded."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path

from confide._extension import native

PYTHON_FOLDER = Path(__file__).resolve().parents[2]
BUILT = Path(str(native.__file__))


class BuiltLibrary(unittest.TestCase):
    def setUp(self) -> None:
        self.target = Path(self.enterContext(tempfile.TemporaryDirectory()))

    def library(self, profile: str) -> Path:
        """The path of a build's library, in its folder."""
        path = self.target / profile / f"lib_native{BUILT.suffix}"
        path.parent.mkdir(exist_ok=True)
        return path

    def load(self, **environment: str) -> str:
        """What an interpreter says that has the folder of builds and no installed native part."""
        script = """
            import sys

            # An installed one is not looked at.
            sys.modules["confide._native"] = None
            try:
                from confide._extension import native
            except ImportError as error:
                print(error)
            else:
                print(native.__file__, native.packed_bytes(3, 33))
        """
        inherited = {name: text for name, text in os.environ.items() if name != "CONFIDE_NATIVE"}
        ended = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script)],
            env={
                **inherited,
                "PYTHONPATH": str(PYTHON_FOLDER),
                "CARGO_TARGET_DIR": str(self.target),
                **environment,
            },
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        return ended.stdout.strip()

    def test_the_release_build_is_loaded_also_where_the_debug_build_is_newer(self) -> None:
        for profile in ("release", "debug"):
            shutil.copy(BUILT, self.library(profile))
            self.library(profile).chmod(0o755)
        os.utime(self.library("release"), (0, 0))
        self.assertEqual(self.load(), f"{self.library('release')} 13")
        self.library("release").unlink()
        self.assertEqual(self.load(), f"{self.library('debug')} 13")

    def test_each_cause_has_a_text_of_its_own(self) -> None:
        self.assertIn("is missing", self.load())
        library = self.library("release")
        library.write_bytes(b"not a library")
        library.chmod(0o755)
        self.assertIn(f"cannot be loaded from {library}", self.load())
        library.chmod(0o775)
        told = self.load()
        self.assertIn(f"is not loaded from {library}", told)
        self.assertIn("got mode 775", told)
        for text in (told, self.load(CONFIDE_NATIVE=str(self.target / "none"))):
            self.assertNotIn("is missing", text)

    def test_a_link_is_not_followed(self) -> None:
        self.library("release").symlink_to(BUILT)
        self.assertIn(f"is not loaded from {self.library('release')}", self.load())

    def test_a_library_that_is_named_is_loaded_as_it_is(self) -> None:
        link = self.target / f"link{BUILT.suffix}"
        link.symlink_to(BUILT)
        self.assertEqual(self.load(CONFIDE_NATIVE=str(link)), f"{link} 13")


if __name__ == "__main__":
    unittest.main()
