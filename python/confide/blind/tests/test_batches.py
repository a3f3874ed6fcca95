"""What a key holder's batches leave behind when they are used up: nothing."""

from __future__ import annotations

import unittest
from typing import Any
from unittest import mock

import numpy

from confide.blind.batches import MaskBatch, MaskPool, encrypted_masks
from confide.blind.terms import InputTerms
from confide.cuda import arrays, ring
from confide.cuda.tests import Device, on_each_device


def batch_of(device: Device, number: int, tokens: int = 4, rows: int = 3) -> MaskBatch:
    prepared = device.array(numpy.arange(1, tokens * rows + 1).reshape(tokens, rows), numpy.uint64)
    return MaskBatch(device.name, number, bytes(range(32)), prepared)


class Batches(unittest.TestCase):
    @on_each_device
    def test_a_batch_is_wiped_when_its_counters_are_used_up_and_the_next_is_whole(
        self, device: Device
    ) -> None:
        pool, batches = MaskPool(), [batch_of(device, number) for number in range(2)]
        for batch in batches:
            pool.add_batch(batch)
        first, second = pool.take_counters(3), pool.take_counters(3)
        assert first and second
        self.assertEqual([first.count, second.count], [3, 1])
        self.assertTrue(
            arrays.as_words(batches[0].prepared).any(), "its last answers may still be opened"
        )
        taken = pool.take_counters(3)
        assert taken
        self.assertEqual((taken.batch, taken.counter), (batches[1], 4))
        for words in (batches[0].prepared, batches[0].lines, batches[0].places):
            self.assertFalse(arrays.as_words(words).any())
        self.assertEqual(batches[0].key, bytes(32))
        self.assertTrue(arrays.as_words(batches[1].prepared).all())

    @on_each_device
    def test_the_same_masks_are_encrypted_however_many_tiles_go_at_once(
        self, device: Device
    ) -> None:
        context = ring.Context.dangerous_named("toy-256-q100-flood40", device.name)
        secret, encrypt = ring.SecretKey.random(context), ring.Encryptor.encrypt
        terms = InputTerms(0, 0, 100, 33, 1, 0.0, 1, ())
        found = []
        for tiles in (1, 3, 4):
            messages: list[numpy.ndarray] = []

            def record(one: ring.Encryptor, given: Any) -> ring.SeededCiphertexts:
                messages.append(numpy.array(arrays.as_words(given)))
                return encrypt(one, given)

            with mock.patch.object(ring.Encryptor, "encrypt", record):
                blocks = list(encrypted_masks(context, secret, terms, bytes(range(32)), tiles))
            places = [(first, count) for first, count, _ in blocks]
            self.assertEqual(sum(count for _, count in places), 100)
            self.assertEqual(len(blocks), -(-4 // tiles))
            found.append(numpy.concatenate(messages))
        for other in found[1:]:
            numpy.testing.assert_array_equal(other, found[0])

    @on_each_device
    def test_masks_and_generators_are_wiped_also_where_the_caller_stops(
        self, device: Device
    ) -> None:
        context = ring.Context.dangerous_named("toy-256-q100-flood40", device.name)
        secret = ring.SecretKey.random(context)
        made: list[Any] = []
        wiped: list[ring.Encryptor] = []
        columns, wipe = ring.MaskStream.draw_columns, ring.Encryptor.wipe

        def record_columns(*given: Any, **named: Any) -> Any:
            made.append(columns(*given, **named))
            return made[-1]

        def record_wipe(one: ring.Encryptor) -> None:
            wiped.append(one)
            wipe(one)

        with (
            mock.patch.object(ring.MaskStream, "draw_columns", record_columns),
            mock.patch.object(ring.Encryptor, "wipe", record_wipe),
        ):
            terms = InputTerms(0, 0, 40, 33, 1, 0.0, 1, ())
            running = encrypted_masks(context, secret, terms, bytes(32))
            self.assertEqual([next(running)[1] for _ in range(2)], [32, 8])
            running.close()
        self.assertEqual((len(made), len(wiped)), (2, 1))
        for words in made:
            self.assertFalse(arrays.as_words(arrays.as_signed(words)).any())
        with self.assertRaisesRegex(RuntimeError, "wiped"):
            wiped[0].encrypt(device.zeros((1, 256), numpy.uint64))

    @on_each_device
    def test_messages_are_turned_and_wiped_one_row_or_many(self, device: Device) -> None:
        for rows in (1, 3):
            values = numpy.arange(1, rows * 5 + 1, dtype=numpy.uint64).reshape(rows, 5)
            messages = device.array(values)
            turned = arrays.transpose_and_wipe(messages)
            numpy.testing.assert_array_equal(arrays.as_words(arrays.as_signed(turned)), values.T)
            self.assertFalse(arrays.as_words(arrays.as_signed(messages)).any())


if __name__ == "__main__":
    unittest.main()
