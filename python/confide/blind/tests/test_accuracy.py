"""The last line of the speed table in docs/gpu.md, as far as a CPU shows it: integers are exact, and a bf16 model with
a masked adapter is no further from float64 than 1.1 times the same model with the adapter in the clear."""

from __future__ import annotations

import tempfile
import unittest
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy

from confide.blind import one_graph
from confide.blind.tests import adapters, hosts, reference
from confide.cuda import arrays, online, tests

try:
    import torch

    from confide.worker import adapters as worker_adapters
    from confide.worker import cache, config, weights
    from confide.worker.deltas import points_of
    from confide.worker.linear import PlainMatrix
    from confide.worker.model import Model, PrefillSpan, run_pass
    from confide.worker.weights import Layer, Weights
except ImportError:
    torch = None

PROMPT, PROMPTS, RATIO_MAX = 24, 6, 1.1


def setUpModule() -> None:
    if torch is None:
        raise unittest.SkipTest("skipped: no torch")


class Logits(unittest.TestCase):
    """A small Qwen2 with random weights; q, k, v, o, gate, up and down of both layers have an adapter."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name) / "mine"
        adapters.write_adapter(self.path, 2, "q k v o gate up down")
        tiny = config.SHAPES["tiny"]
        # The widths of the tests' adapters.
        self.config = replace(tiny, ffn=96)
        self.device = torch.device("cpu")
        with torch.inference_mode():
            self.weights = weights.random(self.config, 5, self.device, torch.bfloat16)

    def logits(self, held: Weights, dtype: Any, adapter: Any) -> Any:
        """[PROMPTS, vocabulary] in float64, of the last token of each prompt."""
        size = cache.CacheSize(1, 64)
        found = []
        with torch.inference_mode():
            model = Model(self.config, held, size.context + cache.SPARE)
            kept = cache.Cache(self.config, size, self.device, dtype)
            generator = torch.Generator().manual_seed(3)
            for _ in range(PROMPTS):
                ids = torch.randint(0, self.config.vocabulary, (PROMPT,), generator=generator)
                deltas = adapter.open()
                getattr(deltas, "before_step", lambda rows: None)(PROMPT)
                run = model.prefill(ids, PrefillSpan(0, 0, PROMPT), kept, points_of(adapter.sites))
                logits = run_pass(
                    run, lambda at: deltas.add(at.layer, at.source, at.rows, at.outputs)
                )
                getattr(deltas, "after_step", lambda: None)()
                found.append(logits[0].double())
                deltas.close()
        return torch.stack(found)

    def plain(self, dtype: Any) -> Any:
        context = worker_adapters.WorkerContext(self.config, self.device, dtype, 1)
        return worker_adapters.AdapterRegistry(context).load(
            "plain", "plain", {"path": str(self.path)}
        )

    def test_are_as_near_to_float64_with_masks_as_in_the_clear(self) -> None:
        exact = self.logits(in_double(self.weights), torch.float64, self.plain(torch.float64))
        clear = self.logits(self.weights, torch.bfloat16, self.plain(torch.bfloat16))
        bank = one_graph.OneGraphBank("cpu", 1)
        masked_adapter = one_graph.OneGraphAdapter(
            "mine", self.path, bank, hosts.TOY, dangerous_parameters=True
        )
        self.addCleanup(masked_adapter.close)
        masked = self.logits(self.weights, torch.bfloat16, masked_adapter)
        apart = [float((logits - exact).norm() / exact.norm()) for logits in (clear, masked)]
        self.assertGreater(apart[0], 0)
        self.assertLessEqual(apart[1] / apart[0], RATIO_MAX, apart)


class Integers(unittest.TestCase):
    """What the host's kernel answers is A·y + s mod 2^k, to the last bit."""

    def test_are_exact(self) -> None:
        rows, columns, bits, vectors = 32, 192, 33, 8
        generator = numpy.random.default_rng(2)
        matrix = generator.integers(-2047, 2048, (rows, columns)).astype(numpy.int16)
        words = generator.integers(0, 1 << bits, (vectors, columns), dtype=numpy.uint64)
        key = generator.bytes(32)
        wide = words.astype(object) @ matrix.T.astype(object)
        shares = reference.mask_rows(key, 0, vectors, rows, bits).astype(object)
        right = ((wide + shares) % (1 << bits)).astype(numpy.uint64)
        jobs = numpy.zeros((vectors, 6), numpy.uint64)
        jobs[:, 1:5], jobs[:, 5] = numpy.frombuffer(key, "<u8"), numpy.arange(vectors)
        for device in tests.devices():
            with self.subTest(device):
                table = online.InputTable(device, 1)
                table.put(0, online.InputOnDevice(device, matrix, columns, bits, 1 << 60, 1, {}))
                answers = arrays.zeros((vectors, rows), "int64", device)
                online.OnlineKernels(device, 1, 1).answer(
                    table, arrays.upload(jobs, device), arrays.upload(words, device), None, answers
                )
                self.assertTrue(numpy.array_equal(arrays.as_words(answers), right))


def in_double(held: Weights) -> Weights:
    """The same weights in float64."""

    def matrix(one: Any) -> PlainMatrix:
        return PlainMatrix(one.weight.double(), None if one.bias is None else one.bias.double())

    layers = [
        Layer(one.attention_norm.double(), matrix(one.qkv), matrix(one.o), one.ffn_norm.double(), matrix(one.gate_up),
              matrix(one.down))
        for one in held.layers
    ]  # fmt: skip
    embedding = held.embedding.double()
    return Weights(embedding, layers, held.final_norm.double(), PlainMatrix(embedding), held.label)


if __name__ == "__main__":
    unittest.main()
