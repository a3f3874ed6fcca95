"""The seed's CKKS layout on a device gives what crates/rlwe gives, value by value."""

from __future__ import annotations

import unittest
from typing import Any

import numpy as np

from confide.cuda import arrays, ckks
from confide.cuda.tests import Device, on_each_device
from confide.cuda.tests.test_ring import Vectors, make_rng, vectors


def entries(row: int, width: int) -> np.ndarray:
    """The vectors' entries: multiples of 2^-10 in (-1, 1)."""
    mixed = (row * 7919 + np.arange(width) * 104_729 + 12_345) % 2047
    return (mixed - 1023.0) / 1024.0


class Layout(Vectors):
    def walk(self, wanted: dict[str, Any], device: str) -> None:
        width, rank = wanted["width"], wanted["rank"]
        one = ckks.Ckks(wanted["n"], device)
        self.assertEqual(one.primes, wanted["primes"])
        matrix = np.stack([entries(row, width) for row in range(1, rank + 1)])
        seeds = wanted["seeds"]
        layout = ckks.CkksSlots(
            one, matrix, make_rng(seeds["key"], device), make_rng(seeds["encrypt"], device)
        )
        given = arrays.to_device(entries(0, width) * 8.0, "float64", device, "vector", (width,))
        dots = np.array(arrays.to_host(layout.step(given)))
        repeated = np.tile(entries(0, width) * 8.0, layout.copies)[None]
        self.equal(wanted["message"], one.encode(repeated), "message")
        self.equal(wanted["c1"], layout.c1, "c1")
        self.equal(wanted["c0"], layout.c0, "c0")
        for index, pack in enumerate(wanted["packs"]):
            self.equal(pack["factor"], layout.factors[index], "factor")
            self.equal(pack["c0"], layout.products[index, 0], "product")
            self.equal(pack["c1"], layout.products[index, 1], "product")
            self.equal(pack["decrypted"], layout.phases[index], "decrypted")
        self.assertTrue(np.abs(dots - wanted["dots"]).max() < 1.1e-3)
        self.assertTrue(np.abs(dots - matrix @ (entries(0, width) * 8.0)).max() < 1e-4)
        self.another_step(layout, given, dots)

    def another_step(self, layout: ckks.CkksSlots, given: object, dots: np.ndarray) -> None:
        """Fresh words, the same result but for the noise; nothing left after wiping."""
        before = np.array(arrays.to_host(layout.c1))
        again = np.array(arrays.to_host(layout.step(given)))
        self.assertLess((before == arrays.to_host(layout.c1)).mean(), 0.01)
        self.assertTrue(0 < np.abs(again - dots).max() < 1e-4)
        self.assertEqual(int(arrays.to_host(layout.place)[0]), 2 * (layout.ckks.n + 4))
        layout.wipe()
        self.assertFalse(arrays.to_host(layout.secret).any())

    @on_each_device
    def test_the_toy_walk_is_that_of_the_crate(self, device: Device) -> None:
        self.walk(vectors("ckks")["walks"][0], device.name)

    @on_each_device
    def test_the_real_walk_is_that_of_the_crate(self, device: Device) -> None:
        self.walk(vectors("ckks")["walks"][1], device.name)

    @on_each_device
    def test_values_that_do_not_fit_the_scale_are_refused(self, device: Device) -> None:
        one = ckks.Ckks(1024, device.name)
        for value in (np.inf, np.nan, 2.0**40):
            with self.assertRaises(ValueError):
                one.encode(np.full((1, 4), value))


if __name__ == "__main__":
    unittest.main()
