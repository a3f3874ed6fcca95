"""Which package may import which: other engines take `confide.cuda` and `confide.blind` without the worker."""

from __future__ import annotations

import ast
import unittest
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
# What a package may import of this project besides itself and the modules at the top.
ALLOWED = {"cuda": set(), "blind": {"cuda"}, "worker": {"blind", "cuda"}}


def list_imports(path: Path) -> Iterator[str]:
    """The modules of this project that a file imports, by their full names."""
    package = path.relative_to(ROOT).parts[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*base, *([node.module] if node.module else [])))
            yield from (f"{module}.{name.name}" for name in node.names)


class Layers(unittest.TestCase):
    def test_no_package_imports_one_above_it(self) -> None:
        seen = 0
        for name, allowed in ALLOWED.items():
            for path in sorted((ROOT / "confide" / name).rglob("*.py")):
                if "tests" in path.relative_to(ROOT).parts:
                    continue
                for module in list_imports(path):
                    parts = module.split(".")
                    if parts[0] != "confide" or len(parts) < 2 or parts[1] not in ALLOWED:
                        continue
                    seen += 1
                    with self.subTest(file=path.relative_to(ROOT), imports=module):
                        self.assertIn(parts[1], {name, *allowed})
        self.assertGreater(seen, 50)


if __name__ == "__main__":
    unittest.main()
