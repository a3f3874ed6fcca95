"""The three kinds of private adapters in the worker, next to a plain one and none: each gives the tokens of PEFT."""

import os
import signal
import subprocess
import tempfile
import threading
import time
import unittest
from pathlib import Path

from confide.blind.ipc import IpcAdapter
from confide.blind.tests import hosts

try:
    import torch

    from confide.worker.tests import shapes
    from confide.worker.tests import test_adapters as worker

    MISSING = False
except ImportError:
    MISSING = True


def setUpModule() -> None:
    if MISSING:
        raise unittest.SkipTest("skipped: no torch or no peft")


class WorkerTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.bench = worker.Bench(Path(folder.name))
        self.model = self.bench.make("mine", 1)
        self.addCleanup(self.bench.adapters.clear)

    def child(self, name: str) -> subprocess.Popen[bytes]:
        adapter = self.bench.adapters.loaded[name]
        assert isinstance(adapter, IpcAdapter)
        return adapter._child

    def load(self, called: str, kind: str, **spec: object) -> None:
        toy = {"parameters": hosts.TOY, "dangerous_parameters": True}
        self.bench.adapters.load(called, kind, {**toy, **spec})

    def test_every_kind_gives_the_tokens_of_peft_in_one_batch(self) -> None:
        path = self.bench.folder / "mine"
        self.load("graph", "one-graph", path=str(path))
        self.load("merged", "one-graph", path=str(path), protect="ba")
        self.load("process", "ipc", path=str(path))
        with hosts.running("python", path, "--budget", "100000") as host:
            self.load("remote", "blind", address=host.listen, name="mine")
            self.bench.adapters.load("plain", "plain", {"path": str(path)})
            kinds = ["graph", "process", "remote", "merged", "plain", None]
            for number, name in enumerate(kinds):
                self.bench.submit(number, worker.PROMPTS[number % 4], 16, name)
            said = self.bench.run(60)
            for number, name in enumerate(kinds):
                model = self.model if name else shapes.peer("qwen2")
                self.assertEqual(
                    said[number], worker.greedy(model, worker.PROMPTS[number % 4], 16), name
                )
            told = {
                name: self.bench.ended_by_number[number].end_frame()["adapter"]
                for number, name in enumerate(kinds)
            }
            self.assertEqual(told["graph"]["guarantee"], "none")
            self.assertGreater(told["remote"]["round_trips"], 0)
            self.assertIsNone(told[None])
            self.bench.adapters.unload("remote")

    def test_a_host_that_dies_fails_its_own_generation_with_the_cause(self) -> None:
        path = self.bench.folder / "mine"
        self.load("process", "ipc", path=str(path))
        self.bench.submit(1, worker.PROMPTS[0], 30, "process")
        self.bench.submit(2, worker.PROMPTS[1], 30)
        with torch.inference_mode():
            for _ in range(6):
                self.bench.scheduler.run_round()
        self.child("process").kill()
        said = self.bench.run(30)
        failure = self.bench.ended_by_number[1].end_frame()["error"]
        self.assertEqual((failure["kind"], failure["cause"]), ("adapter", "host_lost"))
        self.assertEqual(len(said[2]), 30)

    def test_a_host_that_is_silent_stops_nobody_else(self) -> None:
        path = self.bench.folder / "mine"
        with hosts.running("python", path, "--budget", "100000") as host:
            self.load("remote", "blind", address=host.listen, name="mine")
            self.load("process", "ipc", path=str(path))
            numbers = {
                "remote": host.process.pid,
                "process": self.child("process").pid,
            }
            for at, (name, pid) in enumerate(numbers.items()):
                with self.subTest(name):
                    slow, fast = 2 * at, 2 * at + 1
                    self.bench.submit(slow, worker.PROMPTS[0], 30, name)
                    self.bench.submit(fast, worker.PROMPTS[1], 120)
                    with torch.inference_mode():
                        while len(self.bench.heard.said.get(slow, [])) < 1:
                            self.bench.scheduler.run_round()
                    self.assertNotIn(fast, self.bench.ended_by_number)
                    os.kill(pid, signal.SIGSTOP)
                    try:
                        waker = threading.Thread(
                            target=self.go_on_after, args=(pid, fast), daemon=True
                        )
                        waker.start()
                        said = self.bench.run(60)
                        waker.join(30)
                    finally:
                        os.kill(pid, signal.SIGCONT)
                    self.assertTrue(self.was_over, "it waited for the host of another generation")
                    self.assertEqual(said[slow], worker.greedy(self.model, worker.PROMPTS[0], 30))

    def test_who_is_cancelled_while_its_host_is_silent_ends_at_once(self) -> None:
        path = self.bench.folder / "mine"
        with hosts.running("python", path, "--budget", "100000") as host:
            self.load("remote", "blind", address=host.listen, name="mine")
            self.load("process", "ipc", path=str(path))
            numbers = {
                "remote": host.process.pid,
                "process": self.child("process").pid,
            }
            for number, (name, pid) in enumerate(numbers.items()):
                with self.subTest(name):
                    self.bench.submit(number, worker.PROMPTS[0], 30, name)
                    with torch.inference_mode():
                        while len(self.bench.heard.said.get(number, [])) < 1:
                            self.bench.scheduler.run_round()
                    os.kill(pid, signal.SIGSTOP)
                    try:
                        threading.Timer(0.3, self.bench.scheduler.cancel, [number]).start()
                        began = time.monotonic()
                        self.bench.run(60)
                        self.assertLess(time.monotonic() - began, 10)
                    finally:
                        os.kill(pid, signal.SIGCONT)
                    self.assertEqual(self.bench.ended_by_number[number].ended, "cancelled")
                    self.bench.submit(10 + number, worker.PROMPTS[0], 5, name)
                    wanted = worker.greedy(self.model, worker.PROMPTS[0], 5)
                    with torch.inference_mode():
                        while 10 + number not in self.bench.ended_by_number:
                            self.bench.scheduler.run_round()
                    self.assertEqual(self.bench.heard.said.get(10 + number), wanted)

    def go_on_after(self, pid: int, number: int) -> None:
        """Lets a stopped process go on when a generation has ended, or after ten seconds."""
        end = time.monotonic() + 10
        while number not in self.bench.ended_by_number and time.monotonic() < end:
            time.sleep(0.01)
        self.was_over = number in self.bench.ended_by_number
        os.kill(pid, signal.SIGCONT)

    def test_what_runs_with_an_adapter_that_is_unloaded_goes_on_to_its_end(self) -> None:
        path, adapters = self.bench.folder / "mine", self.bench.adapters
        adapters.in_use = self.bench.scheduler.uses
        for number, name in enumerate(("one-graph", "ipc")):
            self.load(name, name, path=str(path))
            held = adapters.loaded[name]
            child = self.child(name) if name == "ipc" else None
            self.bench.submit(number, worker.PROMPTS[number], 20, name)
            with torch.inference_mode():
                for _ in range(5):
                    self.bench.scheduler.run_round()
            adapters.unload(name)
            self.assertEqual((adapters.loaded, adapters.leaving), ({}, [held]))
            said = self.bench.run(30)
            self.assertEqual(said[number], worker.greedy(self.model, worker.PROMPTS[number], 20))
            self.assertEqual((adapters.close_unused(), adapters.leaving), (1, []))
        assert child is not None
        self.assertIsNotNone(child.poll())

    def test_a_budget_that_is_used_up_is_the_cause(self) -> None:
        self.load("process", "ipc", path=str(self.bench.folder / "mine"), budget=30)
        self.bench.submit(1, worker.PROMPTS[0], 30, "process")
        self.bench.run(30)
        self.assertEqual(self.bench.ended_by_number[1].end_frame()["error"]["cause"], "budget")


if __name__ == "__main__":
    unittest.main()
