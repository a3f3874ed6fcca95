"""Choosing tokens on the device: what crates/native/src/sample.rs does, and the end of generations."""

from __future__ import annotations

import unittest
from typing import Any

import numpy as np

from confide.cuda.decode import Sampler
from confide.cuda.tests import Device, on_each_device

VOCABULARY, LIMIT = 700, 50


class Row:
    """A sampler of `rows` rows with everything at its plainest."""

    def __init__(self, device: Device, rows: int = 1, **options: Any) -> None:
        self.device = device
        self.sampler = Sampler(
            device.zeros(1, np.float32), rows, VOCABULARY, LIMIT, device.name, **options
        )
        self.set(remaining=[100] * rows, top_ps=[1.0] * rows)
        self.tokens, self.positions = device.zeros(rows, np.int64), device.zeros(rows, np.int64)

    def set(self, **values: Any) -> None:
        for name, value in values.items():
            array = getattr(self.sampler, name)
            given = np.zeros(tuple(array.shape), str(array.dtype).removeprefix("torch."))
            given[tuple(slice(0, size) for size in np.shape(value))] = value
            array[:] = self.device.array(given)

    def choose(self, logits: np.ndarray, positions: list[int] | None = None) -> list[int]:
        if positions is not None:
            self.positions[:] = self.device.array(positions, np.int64)
        self.sampler.choose(
            self.device.array(logits.astype(np.float32)), self.tokens, self.positions
        )
        return self.device.numpy(self.tokens).tolist()


class Choices(unittest.TestCase):
    @on_each_device
    def test_greedy_takes_the_first_of_the_best_admitted(self, device: Device) -> None:
        logits = np.random.default_rng(1).standard_normal((3, VOCABULARY + 20))
        logits[0, [400, 77]], logits[1, [30, 5, 9]], logits[2] = 9.0, 9.0, np.nan
        logits[0, [3, 4]], logits[:, VOCABULARY:] = [np.inf, np.nan], 99.0
        logits[2, 600] = -7.0
        row = Row(device, 3)
        row.set(banned=[[0, 0], [5, 30], [0, 0]], banned_count=[0, 2, 0])
        self.assertEqual(row.choose(logits), [77, 9, 600])
        self.assertEqual(device.numpy(row.positions).tolist(), [1, 1, 1])
        row.choose(np.full((3, VOCABULARY), np.nan))
        self.assertEqual(device.numpy(row.sampler.ended).tolist(), [3, 3, 3])

    @on_each_device
    def test_shares_follow_the_weights_and_a_seed_decides(self, device: Device) -> None:
        logits = np.full((6, VOCABULARY), -200.0)
        logits[:, [3, 300, 699]] = np.log([0.5, 0.3, 0.2])
        row = Row(device, 6)
        row.set(temperatures=[1.0] * 6, seeds=[1, 2, 3, 4, 5, 5])
        counts: dict[int, int] = {}
        for position in range(40):
            chosen = row.choose(logits, [position] * 6)
            self.assertEqual(chosen[4], chosen[5])
            for token in chosen[:5]:
                counts[token] = counts.get(token, 0) + 1
        self.assertEqual(set(counts), {3, 300, 699})
        for token, share in ((3, 0.5), (300, 0.3), (699, 0.2)):
            self.assertLess(abs(counts[token] / 200 - share), 0.12)

    @on_each_device
    def test_top_p_keeps_the_smallest_set_that_has_the_share(self, device: Device) -> None:
        logits = np.full((4, VOCABULARY), -200.0)
        logits[:, [3, 300, 301, 699]] = np.log([0.4, 0.2, 0.2, 0.2])
        row = Row(device, 4)
        row.set(temperatures=[1.0] * 4, seeds=[9, 8, 7, 6], top_ps=[0.0, 0.39, 0.59, 0.79])
        seen: list[set[int]] = [set(), set(), set(), set()]
        for position in range(40):
            for which, token in enumerate(row.choose(logits, [position] * 4)):
                seen[which].add(token)
        self.assertEqual(seen, [{3}, {3}, {3, 300}, {3, 300, 301}])

    @on_each_device
    def test_temperature_sharpens_and_random_logits_keep_to_their_nucleus(
        self, device: Device
    ) -> None:
        logits = np.random.default_rng(2).standard_normal((1, VOCABULARY)) * 4
        for temperature, top_p in ((0.7, 0.8), (1.5, 0.5), (0.01, 1.0)):
            weights = np.exp((logits[0] - logits.max()) / temperature)
            order = np.argsort(-weights)
            kept = int(np.searchsorted(np.cumsum(weights[order]), top_p * weights.sum())) + 1
            row = Row(device)
            row.set(temperatures=[temperature], top_ps=[top_p], seeds=[3])
            for position in range(20):
                self.assertIn(row.choose(logits, [position])[0], order[: kept if top_p < 1 else 2])


class Ends(unittest.TestCase):
    @on_each_device
    def test_stop_ids_length_and_a_full_cache_end_a_row(self, device: Device) -> None:
        logits = np.zeros((5, VOCABULARY))
        logits[:, 42] = 1.0
        row = Row(device, 5, ring=4)
        stops = [[1, 42], [41, 43], [0, 0], [0, 0], [42, 0]]
        row.set(stops=stops, stops_count=[2, 2, 0, 0, 1], remaining=[9, 9, 1, 9, 9])
        row.choose(logits, [3, 3, 3, LIMIT - 1, LIMIT])
        self.assertEqual(device.numpy(row.sampler.ended).tolist(), [1, 0, 2, 2, 0])
        self.assertEqual(device.numpy(row.positions).tolist(), [LIMIT, 4, LIMIT, LIMIT, LIMIT])
        row.choose(logits)
        self.assertEqual(device.numpy(row.sampler.emitted)[:3].tolist(), [
            [42, 42, 42, 42, -1], [-1, 42, -1, -1, -1], [0] * 5])  # fmt: skip
        for _ in range(3):
            row.choose(logits)
        self.assertEqual(device.numpy(row.sampler.emitted)[0].tolist(), [-1, 42, -1, -1, -1])
        self.assertEqual(device.numpy(row.sampler.steps).tolist(), [5] * 5)


if __name__ == "__main__":
    unittest.main()
