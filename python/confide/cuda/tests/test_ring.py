"""The ring's kernels give what crates/rlwe gives: vectors/rlwe/*.json, on every device there is."""

from __future__ import annotations

import hashlib
import json
import unittest
from pathlib import Path
from typing import Any

import numpy as np

from confide.cuda import arrays, parameters, primes, ring
from confide.cuda.tests import Device, on_each_device

VECTORS = Path(__file__).resolve().parents[4] / "vectors" / "rlwe"


def vectors(name: str) -> Any:
    """A committed file."""
    return json.loads((VECTORS / f"{name}.json").read_text())


def make_rng(byte: int, device: str) -> ring.Rng:
    """The generator whose seed is one byte 32 times."""
    return ring.Rng.from_seed(bytes([byte]) * 32, device)


def bits(rng: ring.Rng, width: int, shape: tuple[int, ...]) -> np.ndarray:
    """`Rng::fill_bits`: the upper bits of each word."""
    drawn = arrays.to_host(rng.words(int(np.prod(shape))))
    return (drawn >> np.uint64(64 - width)).reshape(shape)


def uniform(rng: ring.Rng, modulus: int, count: int) -> np.ndarray:
    """`Rng::fill_uniform`, one word after the other."""
    drawn = arrays.to_host(rng.words(3 * count)) & np.uint64((1 << modulus.bit_length()) - 1)
    return drawn[drawn < modulus][:count]


def open_sums(products: ring.ScalarProducts) -> ring.SmallCiphertexts:
    """The sums themselves, switched down: they give the matrix to anyone who holds the secret key."""
    products.context.transform_in_place("ntt_inverse", products.sums)
    return products._finish()


class Vectors(unittest.TestCase):
    """A case that compares with digests."""

    def equal(self, wanted: Any, got: Any, what: str) -> None:
        values = np.ascontiguousarray(
            arrays.to_host(got) if not isinstance(got, bytes) else np.frombuffer(got, np.uint8)
        )
        if "head" in wanted and "words" in wanted:
            head = [int(word) for word in values.reshape(-1)[: len(wanted["head"])]]
            self.assertEqual(wanted["head"], head, what)
        self.assertEqual(wanted["sha256"], hashlib.sha256(values.tobytes()).hexdigest(), what)


class Draws(Vectors):
    @on_each_device
    def test_keystreams_are_those_of_rfc_8439(self, device: Device) -> None:
        for block in vectors("keystream")["blocks"]:
            if block["counter"] or block["label"] != "00000000":
                continue
            rng = ring.Rng.from_seed(bytes.fromhex(block["key"]), device.name)
            rng.reserve_words(8 * block["block"])
            self.assertEqual(block["keystream"], arrays.to_host(rng.words(8)).tobytes().hex())

    @on_each_device
    def test_bits_are_the_upper_ones_of_the_words_in_order(self, device: Device) -> None:
        wanted = vectors("sampler")
        draw = next(draw for draw in wanted["draws"] if draw["what"] == "bits")
        rng = make_rng(wanted["seed"], device.name)
        self.equal(draw["drawn"], bits(rng, draw["bits"], (5000,)), "bits")
        self.assertEqual(draw["next"], int(arrays.to_host(rng.words(1))[0]))

    @on_each_device
    def test_a_wiped_generator_gives_nothing(self, device: Device) -> None:
        rng = make_rng(1, device.name)
        key = rng.key
        rng.wipe()
        self.assertFalse(arrays.to_host(key).any())
        with self.assertRaises(RuntimeError):
            rng.words(1)

    @on_each_device
    def test_masks_are_the_rows_and_columns_of_their_tiles(self, device: Device) -> None:
        wanted = vectors("mask")
        stream = ring.MaskStream(bytes([wanted["key"]]) * 32, device.name)
        tokens, columns = wanted["tokens"], wanted["columns"]
        for one in wanted["streams"]:
            width = one["bits"]
            rows = arrays.to_host(stream.rows(0, tokens, columns, width))
            self.equal(one["rows"], rows, "rows")
            self.equal(one["rows_17_to_20"], stream.rows(17, 3, columns, width), "window")
            tiles = arrays.to_host(stream.draw_columns(0, 0, tokens, width, tiles=3))
            self.assertTrue((rows == tiles[:columns].T).all())
            last = arrays.to_host(stream.draw_columns(2, 5, tokens - 5, width))
            self.assertTrue((last == tiles[64:, 5:]).all())
            negated = arrays.to_host(stream.rows(0, tokens, columns, width, negated=True))
            self.assertFalse(((rows + negated) & np.uint64((1 << width) - 1)).any())


class Parameters(Vectors):
    def test_sets_and_budgets_are_those_of_the_crate(self) -> None:
        for wanted in vectors("ntt")["sets"]:
            if "id" not in wanted:
                continue
            made = parameters.find_set(wanted["name"], dangerous=True)
            self.assertEqual(list(made.primes), wanted["primes"])
            for name in ("id", "n", "plaintext_bits", "flood_bits", "row_l1_max"):
                self.assertEqual(getattr(made, name), wanted[name], name)
            for limb in wanted["limbs"]:
                self.assertEqual(primes.primitive_root(limb["modulus"], 2 * made.n), limb["root"])

    def test_weak_and_unflooded_sets_must_be_asked_for_by_their_danger(self) -> None:
        for name in ("toy-256-q100-flood40", "rlwe-1024-q25", "rlwe-2048-q50", "none"):
            with self.assertRaises(ValueError):
                parameters.find_set(name)

    def test_primes_are_told_from_composites(self) -> None:
        found = [number for number in range(200) if primes.is_prime(number)]
        self.assertEqual(found, [n for n in range(2, 200) if all(n % d for d in range(2, n))])


class Transforms(Vectors):
    @on_each_device
    def test_transforms_are_those_of_the_crate(self, device: Device) -> None:
        wanted = vectors("ntt")
        for one in wanted["sets"]:
            if "id" not in one:
                continue
            context = ring.Context.dangerous_named(one["name"], device=device.name)
            inputs = [
                uniform(make_rng(wanted["seed"], "cpu"), q, context.n) for q in context.primes
            ]
            values = np.stack(inputs)[None]
            greatest = np.stack([np.full(context.n, q - 1, np.uint64) for q in context.primes])[
                None
            ]
            forward = arrays.to_host(context.ntt_forward(values))
            inverse = arrays.to_host(context.ntt_inverse(values))
            largest = arrays.to_host(context.ntt_forward(greatest))
            self.assertTrue((arrays.to_host(context.ntt_inverse(forward)) == values).all())
            for index, limb in enumerate(one["limbs"]):
                self.equal(limb["input"], values[0, index], "input")
                self.equal(limb["forward"], forward[0, index], "forward")
                self.equal(limb["inverse"], inverse[0, index], "inverse")
                self.equal(limb["greatest"], largest[0, index], "greatest")


class Exchange(Vectors):
    """Both roles of a set, each draw from its seed."""

    def walk(self, name: str, device: str) -> None:
        wanted, context = vectors(name), ring.Context.dangerous_named(name, device=device)
        seeds = wanted["seeds"]
        key = ring.SecretKey.random(context, make_rng(seeds["key"], device))
        public = key.public_key(make_rng(seeds["public"], device))
        self.equal(wanted["public_key"], public.to_bytes(), "public key")
        self.assertEqual(
            ring.PublicKey.from_bytes(context, public.to_bytes()).to_bytes(), public.to_bytes()
        )
        messages = bits(
            make_rng(seeds["messages"], "cpu"), context.bits, (len(wanted["messages"]), context.n)
        )
        fresh = self.encrypt(wanted, key, messages)
        self.scalar_products(wanted, key, public, fresh)

    def encrypt(
        self, wanted: Any, key: ring.SecretKey, messages: np.ndarray
    ) -> ring.SeededCiphertexts:
        encryptor = ring.Encryptor(key, make_rng(wanted["seeds"]["encryptor"], key.context.device))
        parts = [encryptor.encrypt(messages[:2]), encryptor.encrypt(messages[2:])]
        forms = [form for part in parts for form in part.to_wire_forms()]
        fresh = ring.SeededCiphertexts.from_bytes(key.context, forms)
        self.assertEqual(fresh.to_wire_forms()[3], forms[3])
        c0, c1 = fresh.expand()
        for index, one in enumerate(wanted["seeded"]):
            self.equal(one["c0"], c0[index], "c0")
            self.equal(one["c1"], c1[index], "c1")
            self.equal(one["wire"], forms[index], "wire")
        return fresh

    def scalar_products(
        self,
        wanted: Any,
        key: ring.SecretKey,
        public: ring.PublicKey,
        fresh: ring.SeededCiphertexts,
    ) -> None:
        context, seeds, made = key.context, wanted["seeds"], wanted["scalar_products"]
        rows = len(made["rows"])
        matrix = np.array(made["weights"], np.int16).reshape(rows, -1)
        products = ring.ScalarProducts(context, matrix)
        c0, c1 = fresh.expand()
        products.add(0, c0[:2], c1[:2])
        products.add(2, c0[2:], c1[2:])
        sums = arrays.to_host(products.sums).copy()
        plain = bits(make_rng(seeds["plain"], "cpu"), context.bits, (rows, context.n))
        if context.flood_bits:
            answers = products.answers(public, plain, make_rng(seeds["hide"], context.device))
        else:
            answers = open_sums(products)
        self.assertFalse(arrays.to_host(products.sums).any())
        messages = key.decrypt(ring.SmallCiphertexts.from_bytes(context, answers.to_wire_forms()))
        for index, row in enumerate(made["rows"]):
            self.equal(row["sum"]["c0"], sums[index, 0], "sum")
            self.equal(row["sum"]["c1"], sums[index, 1], "sum")
            self.equal(row["wire"], answers.to_wire_forms()[index], "answer")
            self.equal(row["messages"], messages[index], "messages")

    @on_each_device
    def test_the_toy_set_computes_what_the_crate_does(self, device: Device) -> None:
        self.walk("toy-256-q100-flood40", device.name)

    @on_each_device
    def test_the_sets_without_flooding_compute_what_the_crate_does(self, device: Device) -> None:
        self.walk("rlwe-1024-q25", device.name)
        self.walk("rlwe-2048-q50", device.name)

    @on_each_device
    def test_the_real_sets_compute_what_the_crate_does(self, device: Device) -> None:
        self.walk("rlwe-4096-q100-flood40", device.name)
        self.walk("rlwe-8192-q200-flood40", device.name)


if __name__ == "__main__":
    unittest.main()
