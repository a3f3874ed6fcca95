"""The adapter host in a process of its own, through memory that both see; the worker's door to every kind."""

from __future__ import annotations

import unittest
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy

from confide.blind import errors, ipc
from confide.blind.adapter import make_adapter
from confide.blind.tests import adapters, hosts
from confide.cuda import arrays, tests

WIDTH = 64


def context_of(device: str) -> SimpleNamespace:
    if device == "cpu":
        return SimpleNamespace(device="cpu", slots=2)
    import torch

    return SimpleNamespace(device=torch.device(device), slots=2)


class DoorTest(unittest.TestCase):
    def setUp(self) -> None:
        entered = hosts.folder()
        self.folder = entered.__enter__()
        self.addCleanup(entered.__exit__, None, None, None)
        self.pairs = adapters.write_adapter(self.folder, 1, "q v")

    def open(self, kind: str, device: str = "cpu", **spec: Any) -> Any:
        spec = {"adapter": "mine", "parameters": hosts.TOY, "dangerous_parameters": True} | spec
        adapter = make_adapter(kind, spec, context_of(device))
        self.addCleanup(adapter.close)
        return adapter

    def check(self, device: str, deltas: Any, count: int = 3) -> None:
        if hasattr(deltas, "before_step"):
            deltas.before_step(count)
        rows = numpy.random.default_rng(count).normal(0, 1, (count, WIDTH)).astype(numpy.float32)
        output = arrays.zeros((count, 64), "float32", device)
        deltas.add(0, "attention", arrays.upload(rows, device), {"q": output})
        wanted = adapters.plain(self.pairs, 0, "q", rows)
        got = output if isinstance(output, numpy.ndarray) else output.cpu().numpy()
        self.assertLess(numpy.linalg.norm(got - wanted) / numpy.linalg.norm(wanted), 1e-3)

    def test_a_host_process_on_the_same_device_gives_loras_deltas(self) -> None:
        for device in tests.devices():
            for protect in ("a", "ba"):
                with self.subTest(device=device, protect=protect):
                    adapter = self.open("ipc", device, path=str(self.folder), protect=protect)
                    self.assertEqual(adapter.guarantee, "none", "the toy set hides nothing")
                    deltas = adapter.open()
                    for count in (1, 70, 300):
                        self.check(device, deltas, count)
                    self.assertEqual(deltas.report()["answered_vectors"], 371)
                    milliseconds, tokens = adapter.measure_offline()
                    self.assertEqual((milliseconds > 0, tokens), (True, 256))
                    adapter.close()

    def test_a_full_set_is_blind_and_says_that_the_adapter_is_not_protected_from_its_starter(
        self,
    ) -> None:
        adapter = make_adapter(
            "ipc", {"adapter": "mine", "path": str(self.folder)}, context_of("cpu")
        )
        self.addCleanup(adapter.close)
        self.assertEqual(adapter.guarantee, "adapter host is blind; adapter is not protected")
        self.check("cpu", adapter.open())

    def test_budgets_and_refusals_come_through_as_named_errors(self) -> None:
        adapter = self.open("ipc", path=str(self.folder), budget=4)
        deltas = adapter.open()
        self.check("cpu", deltas, 3)
        with self.assertRaises(errors.BudgetExhausted):
            self.check("cpu", deltas, 2)

    def test_a_host_process_that_dies_ends_the_generation_by_name(self) -> None:
        adapter = self.open("ipc", path=str(self.folder))
        deltas = adapter.open()
        self.check("cpu", deltas)
        adapter._child.kill()
        adapter._child.wait()
        with self.assertRaises(errors.HostLost) as caught:
            self.check("cpu", deltas)
        self.assertEqual(caught.exception.kind, "host_lost")

    def test_nothing_stays_when_it_is_closed_or_its_starter_was_killed(self) -> None:
        adapter = self.open("ipc", path=str(self.folder))
        self.check("cpu", adapter.open())
        words = [part for lane in adapter._lanes for part in (lane.request, lane.answer)]
        adapter.close()
        self.assertEqual([part.words for part in words], [None] * 4)
        self.assertFalse(adapter._place.exists())
        place = Path(self.folder).parent / "left"
        place.mkdir()
        child = ipc._start_host(
            place,
            "mine",
            {
                "folder": str(self.folder),
                "device": "cpu",
                "parameters": hosts.TOY,
                "protect": "a",
                "mode": "full",
                "budget": "10",
            },
        )
        self.assertTrue((place / "blind").exists())
        assert child.stdin and child.stdout
        # What the end of its starter does to it.
        child.stdin.close()
        self.assertEqual(child.wait(10), 0)
        child.stdout.close()
        self.assertFalse(place.exists())

    def test_kinds_and_specs_that_are_none_are_refused(self) -> None:
        wrong = [
            ("plain", {}),
            ("one-graph", {}),
            ("ipc", {"path": ""}),
            ("blind", {"address": "nowhere"}),
            ("blind", {"address": "192.0.2.1:4"}),
            ("one-graph", {"path": str(self.folder), "mode": "half"}),
            ("one-graph", {"path": str(self.folder), "protect": "c"}),
            ("ipc", {"pth": "x"}),
            ("one-graph", {"path": str(self.folder), "parameters": hosts.TOY}),
            ("one-graph", {"path": str(self.folder / "none")}),
        ]
        for kind, spec in wrong:
            with self.subTest(kind=kind, spec=spec), self.assertRaises(errors.AdapterRefused):
                make_adapter(kind, spec, context_of("cpu"))

    def test_the_door_opens_one_graph_and_a_host_at_an_address(self) -> None:
        one = self.open("one-graph", path=str(self.folder))
        self.assertEqual(one.guarantee, "none")
        self.check("cpu", one.open())
        with hosts.running("python", self.folder) as host:
            remote = self.open("blind", address=host.listen, name="bank")
            self.check("cpu", remote.open())
            remote.close()


if __name__ == "__main__":
    unittest.main()
