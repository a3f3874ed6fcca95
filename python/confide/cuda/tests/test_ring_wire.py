"""Bytes that crates/rlwe wrote are read; whatever is not the one form of what it is read as is refused."""

from __future__ import annotations

import unittest
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from confide.cuda import arrays, ring
from confide.cuda.tests import Device, on_each_device
from confide.cuda.tests.test_ring import make_rng, open_sums, vectors

TOY = "toy-256-q100-flood40"
Again = Callable[[ring.Context, bytes], bytes]

READERS: dict[str, Again] = {
    "public_key": lambda context, form: ring.PublicKey.from_bytes(context, form).to_bytes(),
    "seeded": lambda context, form: ring.SeededCiphertexts.from_bytes(
        context, [form]
    ).to_wire_forms()[0],
    "answer": lambda context, form: ring.SmallCiphertexts.from_bytes(
        context, [form]
    ).to_wire_forms()[0],
    "selected": lambda context, form: ring.SmallCiphertexts.from_bytes(
        context, [form]
    ).to_wire_forms()[0],
}


def forms() -> dict[str, bytes]:
    """What crates/rlwe wrote under the toy set."""
    return {name: bytes.fromhex(form) for name, form in vectors(TOY)["forms"].items()}


class Forms(unittest.TestCase):
    def assert_refused(self, context: ring.Context, name: str, form: bytes, what: str) -> None:
        with self.assertRaises(ring.WireError, msg=f"{name}: {what}"):
            READERS[name](context, form)

    @on_each_device
    def test_what_the_crate_wrote_is_read_and_written_again(self, device: Device) -> None:
        context = ring.Context.dangerous_named(TOY, device=device.name)
        for name, form in forms().items():
            self.assertEqual(READERS[name](context, form), form, name)

    @on_each_device
    def test_the_keys_of_the_crate_open_its_answers_here(self, device: Device) -> None:
        wanted, context = vectors(TOY), ring.Context.dangerous_named(TOY, device=device.name)
        key = ring.SecretKey.random(context, make_rng(wanted["seeds"]["key"], device.name))
        selected = ring.SmallCiphertexts.from_bytes(context, [forms()["selected"]])
        self.assertEqual(
            selected.positions, tuple(wanted["plaintext_products"]["selected"]["positions"])
        )
        messages = [int(message) for message in arrays.to_host(key.decrypt(selected))[0]]
        self.assertEqual(messages, wanted["plaintext_products"]["selected"]["messages"])

    @on_each_device
    def test_other_lengths_versions_types_and_sets_are_refused(self, device: Device) -> None:
        context = ring.Context.dangerous_named(TOY, device=device.name)
        narrower = ring.Context(replace(context.set, plaintext_bits=32), device.name)
        other = ring.Context.dangerous_named("rlwe-1024-q25", device=device.name)
        for name, form in forms().items():
            for end in (0, 3, 4, 6, 20, len(form) - 1):
                self.assert_refused(context, name, form[:end], f"cut to {end}")
            self.assert_refused(context, name, form + b"\0", "longer")
            for place in range(4):
                changed = bytearray(form)
                changed[place] ^= 16
                self.assert_refused(context, name, bytes(changed), f"byte {place}")
            self.assert_refused(narrower, name, form, "other plaintext bits")
            self.assert_refused(other, name, form, "another set")
            for kind in (
                READERS.keys()
                - {name}
                - ({"answer", "selected"} if name in ("answer", "selected") else set())
            ):
                self.assert_refused(context, kind, form, f"{name} read as {kind}")

    @on_each_device
    def test_values_beyond_the_modulus_spare_bits_and_wrong_positions_are_refused(
        self, device: Device
    ) -> None:
        context = ring.Context.dangerous_named(TOY, device=device.name)
        for name, form in forms().items():
            self.assert_refused(
                context, name, form[:-7] + b"\xff" * 7, "a value beyond its modulus"
            )
        form = forms()["selected"]
        # Three values of fifty bits end in the second-last bit of their nineteen bytes.
        spare = 4 + 4 + 6 + 18
        for place, value in ((spare, 0xFF), (4, 4), (8, 9), (13, 1), (10, 0)):
            changed = bytearray(form)
            changed[place] = value
            self.assert_refused(context, "selected", bytes(changed), f"byte {place}")
        self.assert_refused(
            context, "selected", form[:4] + b"\xff" * 4 + form[8:], "too many messages"
        )

    @on_each_device
    def test_a_changed_value_opens_to_other_messages(self, device: Device) -> None:
        wanted, context = vectors(TOY), ring.Context.dangerous_named(TOY, device=device.name)
        key = ring.SecretKey.random(context, make_rng(wanted["seeds"]["key"], device.name))
        form = forms()["answer"]
        good = arrays.to_host(key.decrypt(ring.SmallCiphertexts.from_bytes(context, [form])))
        for place in (8 + 5, len(form) - 5):
            changed = bytearray(form)
            changed[place] ^= 1
            opened = arrays.to_host(
                key.decrypt(ring.SmallCiphertexts.from_bytes(context, [bytes(changed)]))
            )
            self.assertFalse((good == opened).all())


class Roles(unittest.TestCase):
    """A key holder and a host with keys from the operating system."""

    @on_each_device
    def test_a_matrix_times_masks_less_shares_is_opened(self, device: Device) -> None:
        context = ring.Context.dangerous_named("rlwe-4096-q100-flood40", device=device.name)
        generator = np.random.default_rng(5)
        rows, columns, n = 5, 40, context.n
        matrix = generator.integers(-2047, 2048, (rows, columns)).astype(np.int16)
        key = ring.SecretKey.random(context)
        masks = ring.MaskStream(b"m" * 32, device.name)
        shares = ring.MaskStream(b"s" * 32, device.name)
        products = ring.ScalarProducts(context, matrix)
        encryptor = ring.Encryptor(key)
        for tile in range(2):
            width = min(32, columns - 32 * tile)
            fresh = encryptor.encrypt(masks.draw_columns(tile, 0, n, context.bits)[:width])
            arrived = ring.SeededCiphertexts.from_bytes(context, fresh.to_wire_forms())
            products.add_seeded(32 * tile, arrived)
        public = ring.PublicKey.from_bytes(context, key.public_key().to_bytes())
        plain = shares.draw_columns(0, 0, n, context.bits, negated=True)[:rows]
        answers = ring.SmallCiphertexts.from_bytes(
            context, products.answers(public, plain).to_wire_forms()
        )
        opened = arrays.to_host(key.decrypt(answers))
        drawn = arrays.to_host(masks.rows(0, n, columns, context.bits)).astype(object)
        share = arrays.to_host(shares.rows(0, n, rows, context.bits)).astype(object)
        wanted = (drawn[:8] @ matrix.T.astype(object) - share[:8]) % (1 << context.bits)
        self.assertEqual(opened.T[:8].tolist(), wanted.tolist())
        for secret in (key, masks, shares, encryptor):
            secret.wipe()
        with self.assertRaises(RuntimeError):
            key.decrypt(answers)

    @on_each_device
    def test_products_of_many_tiles_are_exact(self, device: Device) -> None:
        generator = np.random.default_rng(6)
        for name, rows, columns, most in ((TOY, 19, 150, 2047), ("rlwe-1024-q25", 17, 70, 1)):
            context = ring.Context.dangerous_named(name, device=device.name)
            matrix = generator.integers(-most, most + 1, (rows, columns)).astype(np.int16)
            if most > 1:
                matrix[3, 7], matrix[18, 149] = -32768, 32767
            messages = generator.integers(
                0, 1 << context.bits, (columns, context.n), dtype=np.uint64
            )
            key, products = ring.SecretKey.random(context), ring.ScalarProducts(context, matrix)
            encryptor = ring.Encryptor(key)
            for first, count in ((0, 3), (3, 64), (67, columns - 67)):
                products.add_seeded(first, encryptor.encrypt(messages[first : first + count]))
            opened = arrays.to_host(key.decrypt(open_sums(products)))
            wanted = matrix.astype(np.int64).astype(np.uint64) @ messages & np.uint64(
                (1 << context.bits) - 1
            )
            self.assertTrue((opened == wanted).all(), name)

    @on_each_device
    def test_weights_beyond_the_budget_and_columns_out_of_order_are_refused(
        self, device: Device
    ) -> None:
        context = ring.Context.dangerous_named(TOY, device=device.name)
        narrow = ring.Context.dangerous_named("rlwe-1024-q25", device=device.name)
        limit = narrow.row_l1_max
        with self.assertRaises(ValueError):
            ring.ScalarProducts(narrow, np.array([[limit, 1]], np.int16))
        products = ring.ScalarProducts(context, np.ones((2, 3), np.int16))
        key = ring.SecretKey.random(context)
        public = key.public_key()
        c0, c1 = ring.Encryptor(key).encrypt(np.ones((2, context.n), np.uint64)).expand()
        for first, parts in ((1, (c0, c1)), (0, (c0, c1[:1]))):
            with self.assertRaises(ValueError):
                products.add(first, *parts)
        products.add(0, c0, c1)
        for first in (0, 2):
            with self.assertRaises(ValueError):
                products.add(first, c0, c1)
        with self.assertRaises(ValueError):
            products.answers(public, np.zeros((2, context.n), np.uint64))

    @on_each_device
    def test_a_set_without_flooding_hides_nothing_and_says_so(self, device: Device) -> None:
        context = ring.Context.dangerous_named("rlwe-1024-q25", device=device.name)
        key = ring.SecretKey.random(context)
        products = ring.ScalarProducts(context, np.ones((1, 1), np.int16))
        products.add(0, *ring.Encryptor(key).encrypt(np.ones((1, context.n), np.uint64)).expand())
        with self.assertRaises(ValueError):
            products.answers(key.public_key(), np.zeros((1, context.n), np.uint64))
        self.assertTrue((arrays.to_host(key.decrypt(open_sums(products))) == 1).all())

    @on_each_device
    def test_two_encryptions_of_one_message_differ_and_another_key_sees_garbage(
        self, device: Device
    ) -> None:
        context = ring.Context.dangerous_named("rlwe-4096-q100-flood40", device=device.name)
        key, other = ring.SecretKey.random(context), ring.SecretKey.random(context)
        products = ring.ScalarProducts(context, np.array([[1, 1]], np.int16))
        message = np.full((2, context.n), 5, np.uint64)
        c0, c1 = ring.Encryptor(key).encrypt(message).expand()
        self.assertFalse((arrays.to_host(c0)[0] == arrays.to_host(c0)[1]).any(axis=1).all())
        products.add(0, c0, c1)
        answers = products.answers(key.public_key(), np.zeros((1, context.n), np.uint64))
        self.assertTrue((arrays.to_host(key.decrypt(answers)) == 10).all())
        self.assertLess((arrays.to_host(other.decrypt(answers)) == 10).sum(), 3)

    @on_each_device
    def test_secrets_are_thirds_and_errors_keep_to_their_bound(self, device: Device) -> None:
        context = ring.Context.dangerous_named("rlwe-4096-q100-flood40", device=device.name)
        key = ring.SecretKey.random(context)
        secret = to_signed(context, key.secret[None])
        counts = [(secret == value).sum() for value in (-1, 0, 1)]
        self.assertEqual(sum(counts), context.n)
        self.assertTrue(
            all(
                abs(int(count) - context.n / 3) < 6 * (context.n * 2 / 9) ** 0.5 for count in counts
            )
        )
        public = key.public_key()
        product = multiply(context, arrays.to_host(public.a), arrays.to_host(key.secret)[None])
        errors = to_signed(context, add(context, arrays.to_host(public.b), product))
        self.assertLessEqual(np.abs(errors).max(), 21)
        self.assertLess(abs((errors.astype(float) ** 2).mean() - 10.5), 1.5)


def to_signed(context: ring.Context, values: Any) -> np.ndarray:
    """The small signed coefficients of one polynomial in NTT form; the same in every limb."""
    residues = arrays.to_host(context.ntt_inverse(values))[0].astype(object)
    limbs = [np.where(row > q // 2, row - q, row) for row, q in zip(residues, context.primes)]
    assert all((limb == limbs[0]).all() for limb in limbs)
    return limbs[0].astype(np.int64)


def multiply(context: ring.Context, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Products of values in NTT form."""
    moduli = np.array(context.primes, object)[None, :, None]
    return (left.astype(object) * right.astype(object) % moduli).astype(np.uint64)


def add(context: ring.Context, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Sums of values in NTT form."""
    moduli = np.array(context.primes, object)[None, :, None]
    return ((left.astype(object) + right.astype(object)) % moduli).astype(np.uint64)


if __name__ == "__main__":
    unittest.main()
