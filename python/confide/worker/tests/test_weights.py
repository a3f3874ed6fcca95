"""Weights: random ones by their seed, 4-bit ones by their dequantised form, refusals by name."""

from __future__ import annotations

import os
import tempfile
import unittest
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
try:
    import torch
except ImportError:
    torch = None


def setUpModule() -> None:
    if torch is None:
        raise unittest.SkipTest("skipped: no torch")


class RandomWeights(unittest.TestCase):
    def make(self, seed: int, layers: int = 2, bits: int = 0) -> Any:
        from confide.worker import weights
        from confide.worker.config import SHAPES

        shape = replace(SHAPES["tiny"], layers=layers, hidden=128, heads=8, ffn=256)
        return weights.random(shape, seed, torch.device("cpu"), torch.float32, bits)

    def test_equal_seeds_give_equal_weights_and_others_do_not(self) -> None:
        first, again, other = self.make(5), self.make(5), self.make(6)
        self.assertTrue(torch.equal(first.layers[1].qkv.weight, again.layers[1].qkv.weight))
        self.assertFalse(torch.equal(first.layers[1].qkv.weight, other.layers[1].qkv.weight))
        self.assertFalse(torch.equal(first.layers[0].o.weight, first.layers[1].o.weight))
        self.assertIn("random from seed 5", first.label)

    def test_fewer_layers_are_the_beginning_of_more(self) -> None:
        short, long = self.make(5, layers=1), self.make(5, layers=3)
        self.assertTrue(torch.equal(short.layers[0].down.weight, long.layers[0].down.weight))

    def test_four_bits_are_said_in_the_label(self) -> None:
        self.assertIn("4 bits", self.make(5, bits=4).label)

    def test_bytes_count_a_tied_head_once(self) -> None:
        from confide.worker import weights
        from confide.worker.config import SHAPES

        made = weights.random(SHAPES["tiny"], 1, torch.device("cpu"), torch.float32)
        self.assertEqual(made.bytes(), SHAPES["tiny"].parameters() * 4)


class FourBits(unittest.TestCase):
    def setUp(self) -> None:
        from confide.worker.linear import quantise

        generator = torch.Generator().manual_seed(7)
        self.weight = torch.randn(24, 256, generator=generator)
        self.small = quantise(self.weight)
        self.rows = torch.randn(5, 256, generator=generator)

    def test_the_product_is_exactly_that_of_the_dequantised_weight(self) -> None:
        wanted = torch.nn.functional.linear(self.rows, self.small.dequantise())
        self.assertTrue(torch.equal(self.small(self.rows), wanted))
        target = torch.ones(5, 24)
        self.small.add_to(target, self.rows)
        self.assertTrue(torch.equal(target, wanted + 1))

    def test_each_weight_is_within_a_step_of_its_own(self) -> None:
        groups = self.weight.reshape(24, 2, 128)
        step = (groups.amax(-1) - groups.amin(-1)) / 15
        error = (self.small.dequantise() - self.weight).abs().reshape(24, 2, 128).amax(-1)
        self.assertTrue((error <= step * 0.6 + 0.02).all(), error.max())

    def test_eight_weights_take_four_bytes_and_their_share_of_scales(self) -> None:
        self.assertEqual(self.small.bytes(), 24 * 256 // 2 + 24 * 2 * 2 * 2)

    def test_what_has_no_whole_groups_is_refused(self) -> None:
        from confide.worker.linear import quantise

        with self.assertRaises(ValueError):
            quantise(torch.ones(4, 100))


class Refusals(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def test_a_folder_without_safetensors_is_refused_with_a_hint(self) -> None:
        from confide.worker import weights
        from confide.worker.config import SHAPES

        with self.assertRaisesRegex(weights.WeightsError, "--random-weights"):
            weights.load(SHAPES["tiny"], self.folder, torch.device("cpu"), torch.float32)

    def test_a_tensor_missing_one_too_many_and_a_wrong_shape_are_refused_by_name(self) -> None:
        from safetensors.torch import load_file, save_file

        from confide.worker import config, weights
        from confide.worker.tests import shapes

        shapes.save(shapes.peer("llama"), self.folder)
        shape, file = config.read(self.folder), self.folder / "model.safetensors"
        whole = load_file(file)
        name = "model.layers.1.mlp.up_proj.weight"
        for change, words in [
            ({name: None}, f"{name} is missing"),
            ({name: torch.ones(95, 64)}, "wanted 192 rows, got 191"),
            ({name: torch.ones(96, 63)}, name),
            ({"model.layers.1.mlp.router.weight": torch.ones(2)}, "does not belong"),
        ]:
            kept = {key: value for key, value in {**whole, **change}.items() if value is not None}
            save_file(kept, file)
            with self.assertRaisesRegex(weights.WeightsError, words):
                weights.load(shape, self.folder, torch.device("cpu"), torch.float32)

    def test_shapes_that_would_compute_otherwise_are_refused_by_field(self) -> None:
        from confide.worker import config
        from confide.worker.tests import shapes

        plain = shapes.peer("qwen2").config.to_dict()
        changes: list[tuple[dict[str, Any], str]] = [
            ({"model_type": "mixtral"}, "model_type"), ({"use_sliding_window": True}, "use_sliding_window"),
            ({"hidden_act": "gelu"}, "hidden_act"), ({"quantization_config": {"bits": 4}}, "quantization_config"),
            ({"rope_parameters": {"rope_type": "yarn"}}, "rope_type"), ({"num_hidden_layers": 0}, "num_hidden_layers"),
        ]  # fmt: skip
        for change, word in changes:
            with self.assertRaisesRegex(config.ConfigError, word):
                config.parse({**plain, **change})

    def test_a_cache_that_does_not_fit_says_what_would(self) -> None:
        from confide.worker.cache import Cache, CacheSize, CacheTooLarge
        from confide.worker.config import SHAPES

        with self.assertRaisesRegex(CacheTooLarge, "give --slots 1 or --context 224"):
            Cache(
                SHAPES["tiny"], CacheSize(2, 496), torch.device("cpu"), torch.float32, limit=300_000
            )


class BuiltInShapes(unittest.TestCase):
    def test_their_sizes_are_those_of_the_models(self) -> None:
        from confide.worker.config import SHAPES

        wanted = {"qwen2.5-1.5b": 1.5437e9, "llama-3.1-8b": 8.0303e9, "qwen2.5-14b": 14.77e9,
                  "phi-3-medium-14b": 13.96e9, "llama-3.1-70b": 70.55e9}  # fmt: skip
        for name, parameters in wanted.items():
            self.assertAlmostEqual(SHAPES[name].parameters() / parameters, 1.0, places=3, msg=name)


if __name__ == "__main__":
    unittest.main()
