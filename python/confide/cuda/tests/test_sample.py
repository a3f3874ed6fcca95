"""The greedy choice on every device, against numpy."""

from __future__ import annotations

import unittest

import numpy as np

from confide.cuda.sample import GreedyChoice
from confide.cuda.tests import Device, on_each_device


class Greedy(unittest.TestCase):
    def choose(
        self, device: Device, logits: np.ndarray, forbidden: np.ndarray, choice: GreedyChoice
    ) -> tuple[np.ndarray, np.ndarray]:
        rows = len(logits)
        best, token = device.zeros(rows, np.float32), device.zeros(rows, np.int64)
        choice(device.array(logits), device.array(forbidden), best, token)
        return device.numpy(best), device.numpy(token)

    @on_each_device
    def test_the_likeliest_admitted_token_is_chosen(self, device: Device) -> None:
        rng = np.random.default_rng(1)
        for vocabulary in (1, 255, 5000):
            choice = GreedyChoice(device.name, 3, vocabulary)
            for rows in (3, 1):
                logits = rng.standard_normal((rows, vocabulary)).astype(np.float32)
                forbidden = rng.random((rows, vocabulary)) < 0.3
                forbidden[:, 0] = False
                admitted = np.where(forbidden, -np.inf, logits)
                best, token = self.choose(device, logits, forbidden, choice)
                self.assertEqual(token.tolist(), admitted.argmax(1).tolist())
                self.assertEqual(best.tolist(), admitted.max(1).tolist())
            self.assertEqual(device.numpy(choice.counters).tolist(), [0, 0, 0])

    @on_each_device
    def test_of_equals_the_first_and_nothing_where_all_are_forbidden(self, device: Device) -> None:
        choice = GreedyChoice(device.name, 2, 3000)
        logits, forbidden = np.zeros((2, 3000), np.float32), np.zeros((2, 3000), bool)
        logits[0, [1300, 2700]], forbidden[1] = 2.0, True
        best, token = self.choose(device, logits, forbidden, choice)
        self.assertEqual((best.tolist(), token.tolist()), ([2.0, -np.inf], [1300, 0]))

    @on_each_device
    def test_a_logit_that_is_no_number_ends_the_text(self, device: Device) -> None:
        choice = GreedyChoice(device.name, 1, 3000)
        logits, forbidden = np.ones((1, 3000), np.float32), np.zeros((1, 3000), bool)
        logits[0, [2000, 2900]], logits[0, 5] = np.nan, np.inf
        best, token = self.choose(device, logits, forbidden, choice)
        self.assertTrue(np.isnan(best[0]) and token[0] == 2000)
        forbidden[0, [2000, 2900]] = True
        best, token = self.choose(device, logits, forbidden, choice)
        self.assertEqual((best[0], token[0]), (np.inf, 5))

    def test_other_shapes_are_refused(self) -> None:
        choice = GreedyChoice("cpu", 1, 16)
        for logits in (
            np.zeros((2, 16), np.float32),
            np.zeros((1, 15), np.float32),
            np.zeros((1, 16)),
        ):
            with self.assertRaisesRegex(ValueError, "logits: wanted at most 1 rows of 16"):
                self.choose(Device("cpu"), logits, np.zeros(logits.shape, bool), choice)


if __name__ == "__main__":
    unittest.main()
