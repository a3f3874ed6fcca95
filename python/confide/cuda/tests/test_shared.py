"""Memory that another process opens is shared in whole blocks of the driver's, so that nothing else lies in it."""

from __future__ import annotations

import contextlib
import sys
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from confide.cuda import driver, shared


class Shared(unittest.TestCase):
    def test_what_is_taken_on_a_device_is_a_multiple_of_the_driver_s_block(self) -> None:
        sizes: list[int] = []

        def allocate(pointer: Any, size: Any) -> int:
            sizes.append(size.value)
            return 0

        library = SimpleNamespace(
            cuMemAlloc_v2=allocate,
            cuIpcGetMemHandle=lambda handle, pointer: 0,
            cuMemFree_v2=lambda pointer: 0,
        )
        stream = mock.Mock()
        cuda = SimpleNamespace(current_stream=lambda ordinal: stream)
        torch = SimpleNamespace(as_tensor=lambda *_, **__: mock.Mock(), cuda=cuda)
        with (
            mock.patch.object(driver, "library", lambda: library),
            mock.patch.object(driver, "CurrentContext", lambda ordinal: contextlib.nullcontext()),
            mock.patch.dict(sys.modules, {"torch": torch}),
            tempfile.TemporaryDirectory() as folder,
        ):
            for count in (1, (2 << 20) // 8, (2 << 20) // 8 + 1):
                shared.SharedWords("cuda:0", Path(folder, "unused"), count).close()
        self.assertEqual(sizes, [2 << 20, 2 << 20, 4 << 20])
        self.assertEqual(
            stream.synchronize.call_count,
            3,
            "the zeros must be there before the other process writes",
        )


if __name__ == "__main__":
    unittest.main()
