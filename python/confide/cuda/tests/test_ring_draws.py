"""The sampler takes its words as crates/rlwe does, from any place of any stream."""

from __future__ import annotations

import unittest

import numpy as np

from confide.cuda import arrays, primes, runtime
from confide.cuda.tests import Device, on_each_device
from confide.cuda.tests.test_ring import Vectors, make_rng, vectors

FILE = "tests/draws.cu"


class Sampler(Vectors):
    @on_each_device
    def test_uniform_values_skip_the_words_that_the_crate_skips(self, device: Device) -> None:
        wanted = vectors("sampler")
        for draw in wanted["draws"]:
            if draw["what"] != "uniform":
                continue
            count = draw["drawn"]["words"]
            # 2^4 divides each of these less one; only the prime itself is used.
            limb = device.array(np.array(primes.limb_words(16, 12289, 1, 0, 0), np.uint64))
            words = np.array(arrays.to_host(limb))
            q = draw["modulus"]
            words[:3] = [q, (1 << (63 + q.bit_length())) // q, q.bit_length()]
            limb, values, after = (
                device.array(words),
                device.zeros(count, np.uint64),
                device.zeros(1, np.uint64),
            )
            rng = make_rng(wanted["seed"], device.name)
            for threads in (32, 96, 512):
                kernel = runtime.Module(FILE, device.name).kernel("draw_uniform")
                kernel(1, threads, rng.key, 0, limb, values, after, count)
                self.equal(draw["drawn"], values, f"{q} with {threads} threads")
                follows = make_rng(wanted["seed"], device.name)
                follows.reserve_words(int(device.numpy(after)[0]))
                self.assertEqual(draw["next"], int(arrays.to_host(follows.words(1))[0]))

    @on_each_device
    def test_ternary_values_and_errors_are_those_of_the_crate(self, device: Device) -> None:
        wanted = vectors("sampler")
        for kind, name in enumerate(("ternary", "errors")):
            draw = next(draw for draw in wanted["draws"] if draw["what"] == name)
            values = device.zeros(draw["drawn"]["words"], np.int64)
            rng = make_rng(wanted["seed"], device.name)
            kernel = runtime.Module(FILE, device.name).kernel("draw_signed")
            kernel(1, 128, rng.key, 0, values, kind, draw["drawn"]["words"])
            self.equal(draw["drawn"], values, name)
            # From a place that is not the first of a block.
            part = device.zeros(77, np.int64)
            kernel(1, 64, rng.key, 13, part, kind, 77)
            self.assertTrue((device.numpy(part) == device.numpy(values)[13:90]).all())

    @on_each_device
    def test_blocks_of_labels_and_counters_are_those_of_the_crate(self, device: Device) -> None:
        for block in vectors("keystream")["blocks"]:
            key = device.array(np.frombuffer(bytes.fromhex(block["key"]), np.uint32))
            label = int.from_bytes(bytes.fromhex(block["label"]), "little")
            counter = block["counter"]
            nonce = device.array(np.array([label, counter & 0xFFFFFFFF, counter >> 32], np.uint32))
            words = device.zeros(8, np.uint64)
            kernel = runtime.Module(FILE, device.name).kernel("draw_blocks")
            kernel(1, 32, key, nonce, block["block"], words, 1)
            self.assertEqual(block["keystream"], device.numpy(words).tobytes().hex())

    @on_each_device
    def test_no_block_comes_twice_where_the_counter_is_full(self, device: Device) -> None:
        key, nonce = device.zeros(8, np.uint32), device.zeros(3, np.uint32)
        kernel = runtime.Module(FILE, device.name).kernel("draw_blocks")
        seen = set()
        for number in (0, 2**32 - 2, 2**33):
            words = device.zeros((4, 8), np.uint64)
            kernel(1, 32, key, nonce, number, words, 4)
            seen |= {row.tobytes() for row in device.numpy(words)}
        self.assertEqual(len(seen), 12)


if __name__ == "__main__":
    unittest.main()
