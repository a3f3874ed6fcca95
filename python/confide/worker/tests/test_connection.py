"""A peer that does not read, and frames that are not what they say."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from confide.worker.server import Connection

import os
import socket
import struct
import time
import unittest
from unittest import mock

os.environ.setdefault("OMP_NUM_THREADS", "1")
try:
    import torch
except ImportError:
    torch = None


def setUpModule() -> None:
    if torch is None:
        raise unittest.SkipTest("skipped: no torch")


class Stalls(unittest.TestCase):
    def connection(self) -> tuple[Connection, socket.socket]:
        from confide.worker.server import Connection

        ours, theirs = socket.socketpair()
        connection = Connection(ours, lambda: None)
        self.addCleanup(theirs.close)
        self.addCleanup(connection.end_with, "test ends")
        return connection, theirs

    def wait_for_loss(self, connection: Connection, seconds: float = 10.0) -> str:
        end = time.monotonic() + seconds
        while connection.lost is None and time.monotonic() < end:
            time.sleep(0.01)
        return connection.lost or ""

    def test_a_peer_that_does_not_read_is_left_after_a_while(self) -> None:
        with mock.patch("confide.worker.server.WRITE_SECONDS", 0.3):
            connection, _ = self.connection()
            connection.send(bytes(4 << 20))
            self.assertIn("read nothing", self.wait_for_loss(connection))

    def test_what_waits_for_it_is_bounded(self) -> None:
        with mock.patch("confide.worker.server.OUTBOX_BYTES_MAX", 8 << 20):
            connection, _ = self.connection()
            began = time.monotonic()
            while connection.lost is None and time.monotonic() < began + 10:
                connection.send(bytes(1 << 20))
            self.assertIn("does not read", self.wait_for_loss(connection))
            self.assertLess(connection.pending, 10 << 20)

    def test_frames_that_wait_are_bounded(self) -> None:
        from confide.worker import protocol

        with mock.patch("confide.worker.server.INBOX_FRAMES_MAX", 10):
            connection, peer = self.connection()
            peer.sendall(protocol.encode_frame(protocol.CANCEL, b"1234") * 12)
            self.assertIn("waiting frames", self.wait_for_loss(connection))

    def test_a_frame_that_is_cut_off_and_deltas_that_nobody_asked_for(self) -> None:
        from confide.worker import protocol

        connection, peer = self.connection()
        peer.sendall(
            protocol.encode_frame(protocol.DELTAS, struct.pack("<IIBB", 7, 0, 0, 0) + b"1234")
        )
        time.sleep(0.1)
        self.assertIsNone(connection.lost)
        peer.sendall(b"\x05\0\0\0\x03ab")
        peer.close()
        self.assertIn("the stream ends within it", self.wait_for_loss(connection))


if __name__ == "__main__":
    unittest.main()
