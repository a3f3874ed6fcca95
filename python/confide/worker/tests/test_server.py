"""The worker as a process, over its socket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from confide.worker.tests.peer import Peer, Worker

import json
import os
import signal
import socket
import struct
import tempfile
import time
import unittest
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
try:
    import torch

    torch.set_num_threads(1)
except ImportError:
    torch = None

PROMPTS = {1: list(range(5, 30)), 2: [9, 8, 7], 3: list(range(60, 130)), 4: [44]}


def setUpModule() -> None:
    if torch is None:
        raise unittest.SkipTest("skipped: no torch")


class OneWorker(unittest.TestCase):
    """Tests that share one process; each has a connection of its own."""

    folder: ClassVar[tempfile.TemporaryDirectory[str]]
    model: ClassVar[Any]
    worker: ClassVar[Worker]

    @classmethod
    def setUpClass(cls) -> None:
        from confide.worker.tests import shapes
        from confide.worker.tests.peer import Worker

        cls.folder = tempfile.TemporaryDirectory()
        cls.model = shapes.peer("llama")
        shapes.save(cls.model, Path(cls.folder.name) / "small")
        where = str(Path(cls.folder.name) / "small")
        limits = [
            "--slots",
            "2",
            "--queue",
            "2",
            "--context",
            "200",
            "--chunk",
            "16",
            "--prefill-bytes",
            "75000",
        ]
        cls.worker = Worker("--model", where, "--device", "cpu", "--dtype", "f32", *limits)

    @classmethod
    def tearDownClass(cls) -> None:
        code, error = cls.worker.close()
        cls.folder.cleanup()
        assert code == 0, f"the worker left with {code}: {error[-2000:]}"

    def peer(self, **hello: object) -> Peer:
        from confide.worker.tests.peer import Peer

        for _ in range(100):
            try:
                peer = Peer(self.worker.path, hello)
                self.addCleanup(peer.close)
                return peer
            except Exception:
                # The connection before is still being taken down.
                time.sleep(0.05)
        raise AssertionError("no welcome")

    def generate(self, ids: list[int], count: int) -> list[int]:
        with torch.inference_mode():
            given = torch.tensor([ids])
            out = self.model.generate(
                given,
                attention_mask=torch.ones_like(given),
                do_sample=False,
                max_new_tokens=count,
                eos_token_id=None,
            )
        return out[0, len(ids) :].tolist()

    def test_the_welcome_says_what_runs(self) -> None:
        told = self.peer().welcome
        self.assertEqual((told["slots"], told["queue"], told["context_tokens"]), (2, 2, 200))
        self.assertEqual(told["model"], "small")
        self.assertEqual(told["sites"], {"layers": 3, "widths": {
            "q": [64, 64], "k": [64, 32], "v": [64, 32], "o": [64, 64], "gate": [64, 96], "up": [64, 96],
            "down": [96, 64], "final_hidden": [64, 64]}})  # fmt: skip
        self.assertTrue(told["weights"].startswith("safetensors"))

    def test_interleaved_generations_give_what_transformers_gives_each(self) -> None:
        peer = self.peer()
        for number, ids in PROMPTS.items():
            peer.generate(number, ids, 20 + number)
        peer.finish(*PROMPTS)
        for number, ids in PROMPTS.items():
            self.assertEqual(peer.tokens[number], self.generate(ids, 20 + number), number)
            told = peer.ended[number]
            self.assertEqual(
                (told["reason"], told["error"], told["adapter"]), ("length", None, None)
            )
            self.assertEqual(
                told["usage"], {"prompt_tokens": len(ids), "completion_tokens": 20 + number}
            )
        self.assertTrue(
            any(len(frame) == 2 for frame in peer.frames), "no step had two generations"
        )

    def test_a_stop_token_ends_and_is_not_sent_and_a_banned_one_is_not_chosen(self) -> None:
        peer = self.peer()
        plain = self.generate(PROMPTS[1], 12)
        peer.generate(1, PROMPTS[1], 12, stop_ids=[plain[6]])
        peer.generate(2, PROMPTS[1], 3, banned_ids=[plain[0]])
        peer.finish(1, 2)
        self.assertEqual(peer.tokens[1], plain[: plain.index(plain[6])])
        self.assertEqual(peer.ended[1]["reason"], "stop")
        self.assertNotEqual(peer.tokens[2][0], plain[0])

    def test_numbers_beyond_the_tokenizer_are_never_chosen(self) -> None:
        peer = self.peer(vocabulary=40)
        peer.generate(1, [4, 5], 60)
        peer.generate(2, [4, 5], 60, temperature=1.5, seed=9)
        peer.finish(1, 2)
        self.assertLess(max(peer.tokens[1] + peer.tokens[2]), 40)

    def test_a_seed_gives_the_same_tokens_alone_and_in_company(self) -> None:
        peer = self.peer()
        for top_p in (1.0, 0.8):
            peer.generate(1, PROMPTS[1], 25, temperature=0.9, top_p=top_p, seed=77)
            peer.finish(1)
            peer.generate(2, PROMPTS[3], 40, temperature=0.7, seed=5)
            peer.generate(3, PROMPTS[1], 25, temperature=0.9, top_p=top_p, seed=77)
            peer.finish(2, 3)
            self.assertEqual(peer.tokens[1], peer.tokens[3])
            for number in (1, 2, 3):
                del peer.ended[number], peer.tokens[number]

    def test_a_full_queue_refuses_and_those_inside_go_on(self) -> None:
        peer = self.peer()
        for number in range(1, 7):
            peer.generate(number, PROMPTS[1], 60)
        from confide.worker import protocol

        refused = [peer.until(protocol.REFUSED) for _ in range(2)]
        self.assertEqual({one["error"]["kind"] for one in refused}, {"queue_full"})
        self.assertEqual({one["id"] for one in refused}, {5, 6})
        peer.finish(1, 2, 3, 4)
        for number in range(1, 5):
            self.assertEqual(len(peer.tokens[number]), 60)

    def test_a_cancelled_generation_ends_and_gives_its_slot(self) -> None:
        from confide.worker import protocol

        peer = self.peer()
        for number in (1, 2, 3):
            peer.generate(number, PROMPTS[number], 100)
        peer.until(protocol.TOKENS)
        for number in (1, 3):
            peer.send(protocol.CANCEL, struct.pack("<I", number))
        peer.send(protocol.CANCEL, struct.pack("<I", 99))
        peer.finish(1, 2, 3)
        self.assertEqual(
            [peer.ended[number]["reason"] for number in (1, 2, 3)],
            ["cancelled", "length", "cancelled"],
        )
        self.assertEqual(peer.tokens[2], self.generate(PROMPTS[2], 100))

    def test_a_prompt_that_takes_too_much_memory_fails_alone(self) -> None:
        peer = self.peer()
        peer.generate(1, PROMPTS[2], 120)
        peer.generate(2, [7] * 190, 5)
        peer.finish(2)
        self.assertEqual(peer.ended[2]["error"]["kind"], "out_of_memory")
        peer.generate(3, PROMPTS[4], 10)
        peer.finish(1, 3)
        self.assertEqual(peer.tokens[1], self.generate(PROMPTS[2], 120))
        self.assertEqual(peer.tokens[3], self.generate(PROMPTS[4], 10))

    def test_what_cannot_be_served_is_refused_by_name(self) -> None:
        from confide.worker import protocol

        peer = self.peer()
        requests: list[tuple[list[int], int, dict[str, Any], str]] = [
            ([5] * 200, 1, {}, "prompt_too_long"), ([5], 0, {}, "malformed"), ([160], 5, {}, "malformed"),
            ([5], 200, {}, "malformed"), ([], 5, {}, "malformed"), ([5], 5, {"adapter": "nobody"}, "unknown_adapter"),
            ([5], 5, {"temperature": "hot"}, "malformed"), ([5], 5, {"seed": 1 << 64}, "malformed"),
        ]  # fmt: skip
        for number, (ids, count, more, kind) in enumerate(requests):
            peer.generate(number, ids, count, **more)
            told = peer.until(protocol.REFUSED)
            self.assertEqual((told["id"], told["error"]["kind"]), (number, kind))

    def test_a_frame_out_of_order_ends_the_connection_and_the_next_is_served(self) -> None:
        from confide.worker import protocol

        for bad in (b"\0\0\0\0", b"\xff\xff\xff\xff\x02", struct.pack("<IB", 1, 0x81), protocol.encode_frame(2, b"[]"),
                    protocol.encode_frame(3, b"123"), protocol.encode_frame(6, b"123"),
                    protocol.encode_frame(2, b"[" * 200_000),
                    protocol.encode_frame(2, b'{"id":1,"ids":[5],"max_tokens":1}')):  # fmt: skip
            peer = self.peer()
            peer.generate(1, PROMPTS[2], 150)
            peer.stream.sendall(bad)
            with self.assertRaises((protocol.ConnectionClosed, protocol.MalformedFrame, OSError)):
                while True:
                    peer.read()
        peer = self.peer()
        peer.generate(1, PROMPTS[2], 5)
        peer.finish(1)
        self.assertEqual(peer.tokens[1], self.generate(PROMPTS[2], 5))

    def test_a_second_connection_is_closed_at_once(self) -> None:
        first = self.peer()
        second = socket.socket(socket.AF_UNIX)
        self.addCleanup(second.close)
        second.settimeout(10)
        second.connect(str(self.worker.path))
        self.assertEqual(second.recv(1), b"")
        first.generate(1, PROMPTS[2], 5)
        first.finish(1)

    def test_who_waits_for_an_adapter_keeps_nobody_from_beginning_and_being_cancelled(self) -> None:
        from confide.worker import protocol

        peer = self.peer()
        spec = {"sites": [[0, "q", 64, 64]], "guarantee": "none"}
        peer.send(protocol.LOAD_ADAPTER, {"name": "slow", "kind": "relay", "spec": spec})
        self.assertTrue(peer.until(protocol.ADAPTER)["ok"])
        peer.generate(1, [5, 6], 4, adapter="slow")
        peer.until(protocol.NEED)
        # Nobody answers that.
        peer.stream.settimeout(8)
        peer.generate(2, PROMPTS[2], 8)
        peer.finish(2)
        self.assertEqual(peer.tokens[2], self.generate(PROMPTS[2], 8))
        peer.generate(3, PROMPTS[2], 190)
        peer.send(protocol.CANCEL, struct.pack("<I", 3))
        peer.finish(3)
        self.assertEqual(peer.ended[3]["reason"], "cancelled")
        peer.send(protocol.STATUS)
        self.assertEqual(peer.until(protocol.STATUS_TOLD)["slots"]["running"], 1)
        peer.send(protocol.CANCEL, struct.pack("<I", 1))
        peer.finish(1)
        self.assertEqual(peer.ended[1]["reason"], "cancelled")

    def test_status_tells_memory_by_use(self) -> None:
        from confide.worker import protocol

        peer = self.peer()
        peer.send(protocol.STATUS)
        told = peer.until(protocol.STATUS_TOLD)
        self.assertEqual(told["slots"], {"all": 2, "running": 0})
        self.assertEqual(told["memory_bytes"]["cache"], 3 * 2 * 2 * 2 * (200 + 64) * 16 * 4)
        self.assertGreater(told["memory_bytes"]["weights"], 100_000)


class OwnWorker(unittest.TestCase):
    """Tests that end their process."""

    def start(self, *more: str) -> Worker:
        from confide.worker.tests.peer import Worker

        return Worker(
            "--model", "tiny", "--random-weights", "3", "--device", "cpu", "--dtype", "f32", *more
        )

    def test_random_weights_are_named_and_the_end_of_standard_input_stops(self) -> None:
        from confide.worker.tests.peer import Peer

        worker = self.start("--layers", "1")
        self.assertEqual(json.loads(worker.ready)["ready"], True)
        self.assertEqual(worker.path.stat().st_mode & 0o777, 0o600)
        peer = Peer(worker.path)
        self.assertEqual(peer.welcome["weights"], "random from seed 3, 1 layers only")
        peer.generate(1, [5], 400)
        began = time.monotonic()
        code, _ = worker.close()
        self.assertLess(time.monotonic() - began, 5)
        self.assertEqual(code, 0)
        self.assertFalse(worker.path.exists())
        peer.close()

    def test_sigterm_stops_and_sigkill_is_seen_as_the_end_of_the_stream(self) -> None:
        from confide.worker import protocol
        from confide.worker.tests.peer import Peer

        for number, wanted in ((signal.SIGTERM, 0), (signal.SIGKILL, -signal.SIGKILL)):
            worker = self.start()
            peer = Peer(worker.path)
            peer.generate(1, [5], 400)
            worker.process.send_signal(number)
            with self.assertRaises((protocol.ConnectionClosed, protocol.MalformedFrame, OSError)):
                while True:
                    peer.read()
            self.assertEqual(worker.close()[0], wanted)
            peer.close()

    def test_a_worker_that_cannot_start_says_why_in_one_line(self) -> None:
        from confide.worker.tests.peer import Worker

        with self.assertRaisesRegex(
            RuntimeError, "a built-in shape has no weights; hint: give --random-weights SEED"
        ):
            Worker("--model", "tiny", "--device", "cpu", "--dtype", "f32")
        with self.assertRaisesRegex(RuntimeError, "give --slots . or --context 32"):
            self.start("--cache-bytes", "100000", "--slots", "2")


if __name__ == "__main__":
    unittest.main()
