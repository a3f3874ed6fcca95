"""The worker's tokens are those of transformers' own models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from confide.worker.cache import Cache
    from confide.worker.model import Model

import os
import tempfile
import unittest
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
try:
    import torch
    import transformers  # noqa: F401

    torch.set_num_threads(1)
except ImportError:
    torch = None


def setUpModule() -> None:
    if torch is None:
        raise unittest.SkipTest("skipped: no torch")


class Parity(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def load_both(
        self, family: str, shard: str = "5GB", context: int = 128, **changes: Any
    ) -> tuple[Any, Model, Cache]:
        from confide.worker import config, weights
        from confide.worker.cache import Cache, CacheSize
        from confide.worker.model import Model
        from confide.worker.tests import shapes

        peer = shapes.peer(family, **changes)
        shapes.save(peer, self.folder, shard)
        shape = config.read(self.folder)
        device = torch.device("cpu")
        model = Model(shape, weights.load(shape, self.folder, device, torch.float32), context + 8)
        return peer, model, Cache(shape, CacheSize(4, context), device, torch.float32)

    def greedy(
        self,
        model: Model,
        cache: Cache,
        prompt: list[int],
        count: int,
        slot: int = 0,
        chunk: int = 64,
        form: str = "fused",
    ) -> list[int]:
        from confide.worker.model import PrefillSpan, run_pass

        with torch.inference_mode():
            for start in range(0, len(prompt), chunk):
                part = torch.tensor(prompt[start : start + chunk])
                logits = run_pass(model.prefill(part, PrefillSpan(slot, start, len(part)), cache))
            tokens = [int(logits[0].argmax())]
            for index in range(count - 1):
                last = torch.zeros(slot + 1, dtype=torch.int64)
                position = torch.full((slot + 1,), cache.idle_position)
                last[slot], position[slot] = tokens[-1], len(prompt) + index
                logits = run_pass(
                    model.decode(last, position, cache, cache.size.context, form=form)
                )
                tokens.append(int(logits[slot].argmax()))
        return tokens

    def generate(self, peer: Any, prompt: list[int], count: int) -> list[int]:
        with torch.inference_mode():
            ids = torch.tensor([prompt])
            out = peer.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                max_new_tokens=count,
                eos_token_id=None,
            )
        return out[0, len(prompt) :].tolist()

    def prompt(self, length: int, seed: int = 3) -> list[int]:
        return torch.randint(
            3, 160, (length,), generator=torch.Generator().manual_seed(seed)
        ).tolist()

    def check(self, family: str, chunk: int = 64, **changes: Any) -> None:
        peer, model, cache = self.load_both(family, **changes)
        prompt = self.prompt(41)
        wanted = self.generate(peer, prompt, 40)
        self.assertGreater(len(set(wanted)), 5, "the model repeats itself and shows little")
        for form in ("fused", "products"):
            self.assertEqual(
                self.greedy(model, cache, prompt, 40, slot=2, chunk=chunk, form=form), wanted
            )

    def test_qwen2_is_greedy_as_transformers_is(self) -> None:
        self.check("qwen2")

    def test_llama_with_stretched_positions_is_greedy_as_transformers_is(self) -> None:
        self.check("llama")

    def test_phi3_with_fused_matrices_is_greedy_as_transformers_is(self) -> None:
        self.check("phi3")

    def test_a_prompt_in_chunks_gives_what_a_whole_one_gives(self) -> None:
        for family in ("qwen2", "llama", "phi3"):
            with self.subTest(family):
                self.check(family, chunk=7)

    def test_sliding_attention_of_phi3_is_as_in_transformers(self) -> None:
        self.check("phi3", chunk=16, sliding_window=20)

    def test_positions_that_turn_a_part_of_each_head_are_as_in_transformers(self) -> None:
        self.check(
            "phi3",
            rope_parameters={
                "rope_type": "default",
                "rope_theta": 1e4,
                "partial_rotary_factor": 0.5,
            },
        )

    def test_longrope_within_its_original_context_is_as_in_transformers(self) -> None:
        factors = {
            "short_factor": [1.0 + 0.1 * i for i in range(8)],
            "long_factor": [4.0 + i for i in range(8)],
        }
        rope = {
            "rope_type": "longrope",
            "rope_theta": 1e4,
            "original_max_position_embeddings": 96,
            **factors,
        }
        self.check("phi3", rope_parameters=rope, original_max_position_embeddings=96)
        from confide.worker import config

        self.assertEqual(config.read(self.folder).context, 96)

    def test_weights_in_several_files_are_one_model(self) -> None:
        peer, model, cache = self.load_both("qwen2", shard="60KB")
        self.assertGreater(len(list(self.folder.glob("*.safetensors"))), 2)
        prompt = self.prompt(12)
        self.assertEqual(self.greedy(model, cache, prompt, 12), self.generate(peer, prompt, 12))

    def test_bfloat16_is_close_to_float32(self) -> None:
        from confide.worker import config, weights
        from confide.worker.cache import Cache, CacheSize
        from confide.worker.model import Model, PrefillSpan, run_pass

        _, model, cache = self.load_both("llama")
        shape = config.read(self.folder)
        small = weights.load(shape, self.folder, torch.device("cpu"), torch.bfloat16)
        coarse = Model(shape, small, 136)
        coarse_cache = Cache(shape, CacheSize(1, 128), torch.device("cpu"), torch.bfloat16)
        ids = torch.tensor(self.prompt(30))
        with torch.inference_mode():
            exact = run_pass(model.prefill(ids, PrefillSpan(0, 0, 30), cache))
            near = run_pass(coarse.prefill(ids, PrefillSpan(0, 0, 30), coarse_cache)).float()
        self.assertLess((near - exact).norm() / exact.norm(), 0.05)


if __name__ == "__main__":
    unittest.main()
