"""The online step on every device there is: against crates/lora's vectors and the slow reference in numpy."""

from __future__ import annotations

import json
import unittest
from pathlib import Path
from typing import Any

import numpy

from confide.blind import pack, terms
from confide.blind.tests import reference
from confide.cuda import arrays, online, parameters, tests
from confide.peft import LoraPair

VECTORS = Path(__file__).resolve().parents[4] / "vectors" / "lora"
MASK, SHARE = bytes(range(32)), bytes(range(100, 132))


def to_host(array: Any) -> numpy.ndarray:
    return array if isinstance(array, numpy.ndarray) else array.cpu().numpy()


def token_words(key: bytes, tokens: list[int]) -> numpy.ndarray:
    head = numpy.frombuffer(key, "<u8")
    return numpy.array([[*head, token] for token in tokens], numpy.uint64)


class Example:
    """One input with two projections: [rows, columns] integers, B, and vectors of mixed sizes."""

    def __init__(
        self, device: str, columns: int, protect: str, seed: int, tokens: int = 16
    ) -> None:
        rng = numpy.random.default_rng(seed)
        pairs = []
        for projection, rank, width in (("q", 5, 23), ("v", 7, 40)):
            a = rng.normal(0, 0.02, (rank, columns)).astype(numpy.float32)
            b = rng.normal(0, 0.02, (width, rank)).astype(numpy.float32)
            pairs.append((projection, LoraPair(a, b, 2.0)))
        self.tokens, self.device = tokens, device
        self.weights = terms.quantise_pairs(
            0, pairs, protect, parameters.find_set(parameters.DEFAULT)
        )
        self.terms = self.weights.terms
        self.line = self.terms.to_device(device, self.weights.matrix, tokens, ("q", "k", "v"))
        self.prepared = self._prepare()

    def _prepare(self) -> numpy.ndarray:
        """A·r − s, uint64 [tokens, rows]."""
        low = numpy.uint64((1 << self.terms.bits) - 1)
        drawn = reference.mask_rows(MASK, 0, self.tokens, self.terms.columns, self.terms.bits)
        share = reference.mask_rows(SHARE, 0, self.tokens, self.terms.rows, self.terms.bits)
        return (self.products(drawn) - share) & low

    def products(self, words: numpy.ndarray) -> numpy.ndarray:
        wide = self.weights.matrix.astype(numpy.int64).astype(numpy.uint64)
        low = numpy.uint64((1 << self.terms.bits) - 1)
        return numpy.stack([(wide * vector).sum(axis=1) for vector in words]) & low

    def add_deltas(self, rows: numpy.ndarray, outputs: dict[str, numpy.ndarray]) -> None:
        for index, row in enumerate(rows):
            values, scale = reference.quantise_vector(row, self.terms.norm_limit)
            product = self.products(values.astype(numpy.int64).astype(numpy.uint64)[None])
            for projection in ("q", "v"):
                reference.add_products(
                    self.terms,
                    projection,
                    product,
                    numpy.array([scale]),
                    outputs[projection][index : index + 1],
                )


class OnlineTest(unittest.TestCase):
    """Each test runs on "cpu" and on each CUDA device."""

    def pair_with_devices(self, **cases: Any) -> list[tuple[str, Any]]:
        return [(device, case) for device in tests.devices() for case in cases.values()]

    def test_vectors_are_quantised_masked_and_refused_as_in_rust(self) -> None:
        cases = json.loads((VECTORS / "quantise.json").read_text())["cases"]
        for device, _ in self.pair_with_devices(all=None):
            for number, case in enumerate(cases):
                real = numpy.array(case["real_bits"], numpy.uint32).view(numpy.float32)[None]
                columns, bits = real.shape[1], 33
                masked = arrays.zeros((1, columns), "int64", device)
                packed = online.HostBuffer(device, (1, pack.packed_bytes(columns, bits)), "uint8")
                scales, status = (
                    arrays.zeros(1, "float64", device),
                    online.HostBuffer(device, 1, "int32"),
                )
                step = online.OnlineKernels(device, 1, 8)
                step.mask(
                    arrays.upload(token_words(MASK, [9]), device),
                    arrays.upload(real, device),
                    online.InputOnDevice(device, None, columns, bits, case["norm_limit"], 1, {}),
                    masked,
                    packed,
                    scales,
                    status,
                )
                self._wait(device)
                if "refused" in case:
                    wanted = (
                        online.TOO_COARSE if case["refused"] == "too_coarse" else online.NOT_FINITE
                    )
                    self.assertEqual(int(status.array[0]), wanted, number)
                    self.assertFalse(to_host(masked).any(), "a refused vector is not shown")
                    continue
                self.assertEqual(int(status.array[0]), 0, number)
                self.assertEqual(
                    int(to_host(scales).view(numpy.uint64)[0]), case["scale_bits"], number
                )
                low = numpy.uint64((1 << bits) - 1)
                values = numpy.array(case["values"], numpy.int64).astype(numpy.uint64)
                wanted = (values - reference.mask_rows(MASK, 9, 1, columns, bits)[0]) & low
                self.assertEqual(arrays.as_words(masked)[0].tolist(), wanted.tolist(), number)
                self.assertEqual(packed.array[0].tobytes(), pack.pack(wanted[None], bits), number)

    def test_products_are_those_of_rust_extremes_included(self) -> None:
        forms = json.loads((VECTORS / "weights.json").read_text())["forms"]
        extremes = json.loads((VECTORS / "extremes.json").read_text())
        entries = [-4095 if at % 3 == 0 else 4095 for at in range(3 * 700)]
        cases = [(form["entries"], form["vectors"], form["products"], 41, 2, 33) for form in forms]
        cases.append((entries, [(1 << 33) - 1] * 700, extremes["products"], 700, 1, 33))
        for device, (entries, vectors, products, columns, count, bits) in self.pair_with_devices(
            **{str(at): case for at, case in enumerate(cases)}
        ):
            matrix = numpy.array(entries, numpy.int16).reshape(-1, columns)
            line = online.InputOnDevice(device, matrix, columns, bits, 1, 16, {})
            table = online.InputTable(device, 1)
            table.put(0, line)
            jobs = numpy.zeros((count, 6), numpy.uint64)
            jobs[:, 1:] = token_words(SHARE, list(range(count)))
            words = numpy.array(vectors, numpy.uint64).reshape(count, columns)
            share = reference.mask_rows(SHARE, 0, count, len(matrix), bits)
            wanted = (
                numpy.array(products, numpy.uint64).reshape(count, -1) + share
            ) & numpy.uint64((1 << bits) - 1)
            raw = numpy.frombuffer(pack.pack(words, bits), numpy.uint8).reshape(count, -1)
            plain, dense = arrays.upload(words, device), arrays.upload(raw, device)
            for given in ({"words": plain, "packed": None}, {"words": None, "packed": dense}):
                answers = arrays.zeros((count, len(matrix)), "int64", device)
                online.OnlineKernels(device, count, 8).answer(
                    table, arrays.upload(jobs, device), answers=answers, **given
                )
                self.assertEqual(arrays.as_words(answers).tolist(), wanted.tolist())

    def test_the_fused_step_is_the_plain_one_for_many_rows_and_adapters(self) -> None:
        for device, (columns, protect) in self.pair_with_devices(
            narrow=(41, "a"), tile=(1792, "a"), two=(1800, "a"), merged=(64, "ba")
        ):
            examples = [Example(device, columns, protect, seed) for seed in (1, 2)]
            table, pools = online.InputTable(device, 3), []
            for index, example in enumerate(examples):
                pools.append(online.DevicePool(device, example.tokens))
                pools[-1].install(0, arrays.upload(example.prepared, device), MASK, SHARE)
                table.put(index, example.line, pools[-1])
            table.put(2, None)
            adapter_of = numpy.array([0, 1, -1, 0, 2], numpy.int32)
            offset_of = numpy.array([0, 0, 0, 1, 0], numpy.int32)
            rng = numpy.random.default_rng(3)
            step, status = online.OnlineKernels(device, 5, 64), online.StatusWords(device, 5)
            for turn in range(2):
                rows = rng.normal(0, 1, (5, columns)).astype(numpy.float32)
                start = {
                    name: rng.normal(0, 1, (5, width)).astype(numpy.float32)
                    for name, width in (("q", 23), ("k", 3), ("v", 40))
                }
                wanted = {name: value.copy() for name, value in start.items()}
                for row, adapter in enumerate(adapter_of):
                    if adapter in (0, 1):
                        part = {name: value[row : row + 1] for name, value in wanted.items()}
                        examples[adapter].add_deltas(rows[row : row + 1], part)
                outputs = [arrays.upload(start[name], device) for name in ("q", "k", "v")]
                step.run_fused(
                    table,
                    arrays.upload(adapter_of, device),
                    arrays.upload(offset_of, device),
                    arrays.upload(rows, device),
                    outputs,
                    status,
                )
                for name, output in zip(("q", "k", "v"), outputs):
                    numpy.testing.assert_allclose(
                        to_host(output), wanted[name], rtol=2e-5, atol=2e-5
                    )
                self.assertEqual(
                    [pool.next_counter() for pool in pools], [2 * (turn + 1), turn + 1]
                )
            self.assertEqual(status.take_refusals(), 0)

    def test_each_counter_is_used_once_and_none_is_used_without_a_mask(self) -> None:
        for device, _ in self.pair_with_devices(once=None):
            example = Example(device, 64, "a", 5, tokens=4)
            pool, table = online.DevicePool(device, 4), online.InputTable(device, 1)
            prepared = arrays.upload(example.prepared, device)
            pool.install(0, prepared, MASK, SHARE)
            table.put(0, example.line, pool)
            step, status = online.OnlineKernels(device, 3, 64), online.StatusWords(device, 3)
            rows = numpy.ones((3, 64), numpy.float32)
            adapter_of, offset_of = numpy.zeros(3, numpy.int32), numpy.arange(3, dtype=numpy.int32)
            owners, offsets = arrays.upload(adapter_of, device), arrays.upload(offset_of, device)
            vectors = arrays.upload(rows, device)
            first = [
                arrays.zeros((3, 23), "float32", device),
                None,
                arrays.zeros((3, 40), "float32", device),
            ]
            step.run_fused(table, owners, offsets, vectors, first, status)
            self.assertEqual((status.take_refusals(), pool.next_counter()), (0, 3))
            self.assertFalse(arrays.as_words(prepared)[:3].any(), "what was used is wiped")
            second = [
                arrays.zeros((3, 23), "float32", device),
                None,
                arrays.zeros((3, 40), "float32", device),
            ]
            step.run_fused(table, owners, offsets, vectors, second, status)
            self._wait(device)
            self.assertEqual((status.take_refusals(), pool.next_counter()), (online.NO_MASK, 4))
            self.assertTrue(to_host(second[0])[0].any())
            self.assertFalse(to_host(second[0])[1:].any(), "rows without a mask get nothing")
            with self.assertRaises(ValueError):
                pool.install(0, prepared, MASK, SHARE)
            rows[1, 7] = numpy.nan
            pool.install(1, arrays.upload(example.prepared, device), MASK, SHARE)
            vectors = arrays.upload(rows, device)
            step.run_fused(table, owners, offsets, vectors, second, status)
            self._wait(device)
            self.assertEqual((status.take_refusals(), pool.next_counter()), (online.NOT_FINITE, 7))

    def test_two_halves_apart_give_what_the_fused_step_gives(self) -> None:
        for device, columns in self.pair_with_devices(short=41, long=2000):
            example = Example(device, columns, "a", 7)
            bits, count, rows_count = example.terms.bits, 3, example.terms.rows
            table = online.InputTable(device, 1)
            table.put(0, example.line)
            step = online.OnlineKernels(device, count, 64)
            rows = numpy.random.default_rng(8).normal(0, 1, (count, columns)).astype(numpy.float32)
            masked = arrays.zeros((count, columns), "int64", device)
            packed = online.HostBuffer(device, (count, pack.packed_bytes(columns, bits)), "uint8")
            scales, status = (
                arrays.zeros(count, "float64", device),
                online.HostBuffer(device, count, "int32"),
            )
            step.mask(
                arrays.upload(token_words(MASK, [4, 5, 6]), device),
                arrays.upload(rows, device),
                example.line,
                masked,
                packed,
                scales,
                status,
            )
            jobs = numpy.zeros((count, 6), numpy.uint64)
            jobs[:, 1:] = token_words(SHARE, [4, 5, 6])
            answers = arrays.zeros((count, rows_count), "int64", device)
            self._wait(device)
            step.answer(
                table,
                arrays.upload(jobs, device),
                None,
                arrays.upload(packed.array, device),
                answers,
            )
            prepared = arrays.upload(example.prepared, device)
            addresses = arrays.address(prepared) + numpy.array(
                [4, 5, 6], numpy.uint64
            ) * numpy.uint64(rows_count * 8)
            raw = online.HostBuffer(device, (count, pack.packed_bytes(rows_count, bits)), "uint8")
            raw.array[:] = numpy.frombuffer(
                pack.pack(arrays.as_words(answers), bits), numpy.uint8
            ).reshape(count, -1)
            step.unmask(arrays.upload(addresses, device), None, raw, example.line, scales)
            outputs = [
                arrays.zeros((count, 23), "float32", device),
                None,
                arrays.zeros((count, 40), "float32", device),
            ]
            step.add(table, arrays.zeros(count, "int32", device), outputs)
            wanted = {
                "q": numpy.zeros((count, 23), numpy.float32),
                "v": numpy.zeros((count, 40), numpy.float32),
            }
            example.add_deltas(rows, wanted)
            numpy.testing.assert_allclose(to_host(outputs[0]), wanted["q"], rtol=2e-5, atol=2e-5)
            numpy.testing.assert_allclose(to_host(outputs[2]), wanted["v"], rtol=2e-5, atol=2e-5)

    def _wait(self, device: str) -> None:
        if device != "cpu":
            import torch

            torch.cuda.synchronize(device)


if __name__ == "__main__":
    unittest.main()
