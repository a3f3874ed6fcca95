"""Both roles in one process: the deltas are LoRA's, counters move on, batches are made ahead. CPU and CUDA alike."""

from __future__ import annotations

import functools
import unittest
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any
from unittest import mock

import numpy

from confide.blind import holder, one_graph
from confide.blind.errors import ActivationRefused, NotPrepared
from confide.blind.tests import adapters, hosts
from confide.cuda import arrays, online, tests


def to_host(array: Any) -> numpy.ndarray:
    return array if isinstance(array, numpy.ndarray) else array.cpu().numpy()


class OneGraphTest(unittest.TestCase):
    def setUp(self) -> None:
        entered = hosts.folder()
        self.folder = entered.__enter__()
        self.addCleanup(entered.__exit__, None, None, None)
        self.pairs = adapters.write_adapter(self.folder, 1, "q v")

    def load(
        self, device: str, bank: one_graph.OneGraphBank, **options: Any
    ) -> one_graph.OneGraphAdapter:
        adapter = one_graph.OneGraphAdapter(
            "bank", self.folder, bank, hosts.TOY, dangerous_parameters=True, **options
        )
        self.addCleanup(adapter.close)
        return adapter

    def check(self, device: str, add: Callable[..., None], rows_of: list[bool], count: int) -> None:
        rows = numpy.random.default_rng(4).normal(0, 1, (count, 64)).astype(numpy.float32)
        outputs = {
            "q": arrays.zeros((count, 64), "float32", device),
            "v": arrays.zeros((count, 32), "float32", device),
        }
        add(0, "attention", arrays.upload(rows, device), outputs)
        for projection in ("q", "v"):
            wanted = adapters.plain(self.pairs, 0, projection, rows) * numpy.array(rows_of)[:, None]
            got = to_host(outputs[projection])
            self.assertLess(numpy.linalg.norm(got - wanted) / numpy.linalg.norm(wanted), 1e-3)

    def test_prefills_and_decode_batches_get_loras_deltas_over_many_batches_of_masks(self) -> None:
        for device in tests.devices():
            for protect in ("a", "ba"):
                with self.subTest(device=device, protect=protect):
                    bank = one_graph.OneGraphBank(device, 4)
                    adapter, other = (
                        self.load(device, bank, protect=protect),
                        self.load(device, bank),
                    )
                    one, two = adapter.open(), other.open()
                    self.assertEqual((one.guarantee, adapter.sites[(0, "v")]), ("none", (64, 32)))
                    one.before_step(100)
                    self.check(device, one.add, [True] * 100, 100)
                    one.after_step()
                    one.assign_row(2)
                    two.assign_row(0)
                    key = one.graph_key
                    for _ in range(2):
                        # 3 x 100 rows of each: the toy ring's batches of 256 tokens are used up on the way.
                        one.before_step(100)
                        self.check(device, one.add, [True] * 100, 100)
                        for deltas in (one, two):
                            deltas.before_step(1)
                        self.check(
                            device, functools.partial(bank.add, deltas=[]), [True, False, True], 3
                        )
                        one.after_step()
                        two.after_step()
                    self.assertEqual(one.graph_key, key)
                    state = adapter.inputs[0]
                    self.assertEqual(
                        (state.pool.next_counter(), other.inputs[0].pool.next_counter()), (302, 2)
                    )
                    self.assertEqual(one.report()["answered_vectors"], 302)
                    one.close()
                    self.check(
                        device, functools.partial(bank.add, deltas=[]), [True, False, False], 3
                    )

    def test_a_vector_that_is_not_finite_fails_its_own_row(self) -> None:
        for device in tests.devices():
            bank = one_graph.OneGraphBank(device, 2)
            adapter = self.load(device, bank)
            one, two = adapter.open(), adapter.open()
            one.assign_row(0)
            two.assign_row(1)
            for deltas in (one, two):
                deltas.before_step(1)
            rows = numpy.ones((2, 64), numpy.float32)
            rows[1, 5] = numpy.nan
            outputs = {"q": arrays.zeros((2, 64), "float32", device)}
            bank.add(0, "attention", arrays.upload(rows, device), outputs, [])
            arrays.synchronize(device)
            one.after_step()
            with self.assertRaises(ActivationRefused):
                two.after_step()
            two.after_step()

    def test_a_prefill_that_is_refused_fails_its_own_generation(self) -> None:
        for device in tests.devices():
            bank = one_graph.OneGraphBank(device, 2)
            adapter = self.load(device, bank)
            one, two = adapter.open(), adapter.open()
            rows = numpy.ones((3, 64), numpy.float32)
            rows[1, 5] = numpy.inf
            one.before_step(3)
            one.add(
                0,
                "attention",
                arrays.upload(rows, device),
                {"q": arrays.zeros((3, 64), "float32", device)},
            )
            arrays.synchronize(device)
            two.after_step()
            with self.assertRaises(ActivationRefused):
                one.after_step()
            one.close()
            # The next generation has its own words again, and they say nothing.
            three = adapter.open()
            three.after_step()

    def test_an_adapter_that_is_gone_lets_no_row_pass_as_it_is(self) -> None:
        adapter = self.load("cpu", one_graph.OneGraphBank("cpu", 1))
        deltas = adapter.open()
        deltas.assign_row(0)
        adapter.close()
        with self.assertRaisesRegex(NotPrepared, "was unloaded"):
            deltas.before_step(1)

    def test_masks_that_come_after_the_end_are_wiped(self) -> None:
        adapter = self.load("cpu", one_graph.OneGraphBank("cpu", 1))
        state = adapter.inputs[0]
        late = numpy.ones((256, 8), numpy.int64)
        with mock.patch.object(adapter, "_prepare_products", lambda *_: late):
            adapter.close()
            adapter._install(state, lambda: None)
        self.assertFalse(late.any())
        self.assertFalse(state.pool.state[online.POOL_HEAD :].any())

    def test_final_hidden_and_offline_time(self) -> None:
        for device in tests.devices():
            adapter = self.load(device, one_graph.OneGraphBank(device, 1), mode="final-hidden")
            self.assertEqual(adapter.sites, {(0, "final_hidden"): (64, 64)})
            milliseconds, tokens = adapter.measure_offline()
            self.assertGreater(milliseconds, 0)
            self.assertEqual(tokens, 256)


class SideStreamTest(unittest.TestCase):
    def test_it_begins_after_what_the_thread_has_asked_of_the_device(self) -> None:
        made, before = mock.Mock(), object()
        cuda = mock.Mock(
            Stream=lambda **_: made,
            current_stream=lambda device: before,
            stream=lambda _: nullcontext(),
        )
        with (
            mock.patch.dict("sys.modules", {"torch": mock.Mock(cuda=cuda)}),
            holder.side_stream("cuda:0") as wait,
        ):
            made.wait_stream.assert_called_once_with(before)
            wait()
        made.synchronize.assert_called_once_with()


if __name__ == "__main__":
    unittest.main()
