"""The three kinds of private adapters in the worker, beside a plain one and none: each gives the tokens of PEFT."""

import tempfile
import unittest
from pathlib import Path

from confide.blind.tests import hosts

try:
    from confide.worker.tests import shapes
    from confide.worker.tests import test_adapters as worker

    MISSING = worker.torch is None
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
                self.assertEqual(said[number], worker.greedy(model, worker.PROMPTS[number % 4], 16), name)
            told = {name: self.bench.over[number].ended_frame()["adapter"] for number, name in enumerate(kinds)}
            self.assertEqual(told["graph"]["guarantee"], "none")
            self.assertGreater(told["remote"]["round_trips"], 0)
            self.assertIsNone(told[None])
            self.bench.adapters.unload("remote")

    def test_a_host_that_dies_fails_its_own_generation_with_the_cause(self) -> None:
        path = self.bench.folder / "mine"
        self.load("process", "ipc", path=str(path))
        self.bench.submit(1, worker.PROMPTS[0], 30, "process")
        self.bench.submit(2, worker.PROMPTS[1], 30)
        with worker.torch.inference_mode():
            for _ in range(6):
                self.bench.scheduler.turn()
        self.bench.adapters.loaded["process"]._child.kill()
        said = self.bench.run(30)
        failure = self.bench.over[1].ended_frame()["error"]
        self.assertEqual((failure["kind"], failure["cause"]), ("adapter", "host_lost"))
        self.assertEqual(len(said[2]), 30)

    def test_a_budget_that_is_used_up_is_the_cause(self) -> None:
        self.load("process", "ipc", path=str(self.bench.folder / "mine"), budget=30)
        self.bench.submit(1, worker.PROMPTS[0], 30, "process")
        self.bench.run(30)
        self.assertEqual(self.bench.over[1].ended_frame()["error"]["cause"], "budget")


if __name__ == "__main__":
    unittest.main()
