"""The runtime: one source on the CPU and on a CUDA device, arguments checked, faults named."""

from __future__ import annotations

import unittest
from pathlib import Path
from typing import Any

import numpy as np

from confide.cuda import runtime
from confide.cuda.tests import Device, on_each_device

FEATURES = Path(__file__).parent / "features.cu"


class Kernels(unittest.TestCase):
    @on_each_device
    def test_static_shared_memory_and_a_barrier(self, device: Device) -> None:
        values = np.arange(4 * 256, dtype=np.uint32)
        reversed_parts = device.zeros(1024, np.uint32)
        runtime.Module(FEATURES, device.name).kernel("reverse")(
            4, 256, device.array(values), reversed_parts
        )
        np.testing.assert_array_equal(
            device.numpy(reversed_parts), values.reshape(4, 256)[:, ::-1].ravel()
        )

    @on_each_device
    def test_shuffles_dynamic_shared_memory_and_defines(self, device: Device) -> None:
        values = np.arange(3 * 128, dtype=np.float32).reshape(3, 128)
        sums = device.zeros(3, np.float32)
        module = runtime.Module(FEATURES, device.name, {"SCALE": 3})
        module.kernel("sum")(3, 128, device.array(values), sums, shared=16)
        np.testing.assert_array_equal(device.numpy(sums), 3 * values.sum(1))

    @on_each_device
    def test_atomics_and_ballots(self, device: Device) -> None:
        values = np.random.default_rng(1).integers(0, 10, 128).astype(np.uint32)
        counts, votes = device.zeros(10, np.uint64), device.zeros(4, np.uint32)
        largest = device.zeros(1, np.uint32)
        kernel = runtime.Module(FEATURES, device.name).kernel("histogram")
        kernel(2, 64, device.array(values), counts, votes, largest)
        np.testing.assert_array_equal(device.numpy(counts), np.bincount(values, minlength=10))
        odd = np.packbits(values.reshape(4, 32) & 1, bitorder="little").view(np.uint32)
        np.testing.assert_array_equal(device.numpy(votes), odd)
        self.assertEqual(device.numpy(largest)[0], values.max())

    @on_each_device
    def test_three_dimensions_and_integer_intrinsics(self, device: Device) -> None:
        high, dot = device.zeros(96, np.uint64), device.zeros(96, np.int32)
        place = device.zeros(96, np.uint32)
        factor, packed = 0xFEDCBA9876543210, 0x7F80FF01
        kernel = runtime.Module(FEATURES, device.name).kernel("arithmetic")
        kernel(
            (2, 3, 1),
            (2, 2, 4),
            factor,
            runtime.i32(packed - 2**32 if packed >> 31 else packed),
            high,
            dot,
            place,
        )
        at = np.arange(96)
        np.testing.assert_array_equal(
            device.numpy(high), [factor * (factor - int(i)) >> 64 for i in at]
        )
        signed = [np.int8(byte).item() for byte in (0x01, -1, -128, 0x7F)]
        product = sum(a * b for a, b in zip(signed, (3, 2, -1, 1)))
        expected = [
            product + int(i) + int(i).bit_count() + 32 - int(i + 1).bit_length() for i in at
        ]
        np.testing.assert_array_equal(device.numpy(dot), expected)
        np.testing.assert_array_equal(device.numpy(place), at * np.array([2, 3, 5, 7])[at & 3])

    @on_each_device
    def test_bf16_rounds_to_nearest_even(self, device: Device) -> None:
        values = np.array(
            [1.0, 1.00390625, 1.01171875, -3.4e38, 3.4e38, np.inf, 1e-40, np.nan], np.float32
        )
        halves, back = device.zeros(8, np.uint16), device.zeros(8, np.float32)
        runtime.Module(FEATURES, device.name).kernel("through_bf16")(
            1, 4, device.array(values), halves, back, 8
        )
        bits = values.view(np.uint32).astype(np.uint64)
        rounded = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
        np.testing.assert_array_equal(device.numpy(halves)[:-1], rounded[:-1])
        self.assertTrue(np.isnan(device.numpy(back)[-1]))

    @on_each_device
    def test_half_warps_exchange_apart(self, device: Device) -> None:
        values = np.arange(100, 132, dtype=np.uint64)
        exchanged = device.zeros(32, np.uint64)
        runtime.Module(FEATURES, device.name).kernel("neighbours")(
            1, 32, device.array(values), exchanged
        )
        down = np.append(values[1:], values[31])
        np.testing.assert_array_equal(
            device.numpy(exchanged), values[np.arange(32) ^ 1] + (down << np.uint64(32))
        )

    @on_each_device
    def test_the_embedding_picks_rows(self, device: Device) -> None:
        table = np.random.default_rng(2).standard_normal((10, 33)).astype(np.float32)
        hidden = device.zeros((3, 33), np.float32)
        kernel = runtime.Module("embed.cu", device.name, {"WEIGHT": "float"}).kernel("embed")
        kernel(3, 16, device.array(table), device.array([9, 0, 77], np.int64), hidden, 33, 10)
        np.testing.assert_array_equal(device.numpy(hidden), table[[9, 0, 0]])


class Faults(unittest.TestCase):
    def test_a_barrier_that_some_threads_never_reach_is_named(self) -> None:
        kernel = runtime.Module(FEATURES, "cpu").kernel("stuck")
        with self.assertRaisesRegex(RuntimeError, "of 32 threads 16 wait at __syncthreads"):
            kernel(1, 32, np.zeros(32, np.uint32))

    def test_arguments_are_checked(self) -> None:
        kernel = runtime.Module(FEATURES, "cpu").kernel("reverse")
        values, reversed_parts = np.zeros(64, np.uint32), np.zeros(64, np.uint32)
        read_only = np.zeros(64, np.uint32)
        read_only.flags.writeable = False
        kernel(1, 64, read_only, reversed_parts)
        refused: list[tuple[Any, ...]] = [
            (values,),
            (values, reversed_parts[::2]),
            (values.astype(np.uint64), reversed_parts),
            (values, read_only),
            (values, "text"),
            (values, 5),
        ]
        for wrong in refused:
            with self.assertRaises(TypeError):
                kernel(1, 32, *wrong)
        with self.assertRaises(ValueError):
            kernel(1, 2048, values, reversed_parts)
        with self.assertRaises(ValueError):
            kernel(0, 32, values, reversed_parts)
        with self.assertRaises(KeyError):
            runtime.Module(FEATURES, "cpu").kernel("absent")

    def test_numbers_must_fit_their_parameter(self) -> None:
        kernel = runtime.Module(FEATURES, "cpu").kernel("through_bf16")
        values, halves, back = (
            np.zeros(4, np.float32),
            np.zeros(4, np.uint16),
            np.zeros(4, np.float32),
        )
        kernel(1, 4, values, halves, back, runtime.u32(4))
        for wrong in (-1, 1 << 32, runtime.u64(4)):
            with self.assertRaises(TypeError):
                kernel(1, 4, values, halves, back, wrong)

    def test_too_much_shared_memory_is_refused(self) -> None:
        with self.assertRaises(RuntimeError):
            kernel = runtime.Module(FEATURES, "cpu").kernel("sum")
            kernel(1, 32, np.zeros(32, np.float32), np.zeros(1, np.float32), shared=1 << 20)


if __name__ == "__main__":
    unittest.main()
