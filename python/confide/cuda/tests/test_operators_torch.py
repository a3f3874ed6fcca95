"""The kernels as torch operators: torch's own checks of each, their results against torch, and under torch.compile."""

from __future__ import annotations

import os
import unittest
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
try:
    import torch
except ImportError:
    torch = None

import numpy as np

from confide.cuda import arrays, online
from confide.cuda.tests import devices, test_online

if torch is not None:
    from confide.cuda import operators

EPSILON = 1e-5
ROWS, WIDTH, OUT = 2, 64, 48
HEADS, KV_HEADS, HEAD_DIM, LENGTH = 4, 2, 16, 40


def random(device: str, *shape: int, dtype: Any = None, seed: int = 1) -> Any:
    """Normal numbers of a tenth, the same for a seed."""
    made = torch.randn(shape, generator=torch.Generator().manual_seed(seed)) / 10
    return made.to(device, dtype or torch.float32)


def attention_arguments(device: str) -> tuple[Any, ...]:
    """What `attend` takes, for contexts of 7 and 33 positions; the cache is bf16."""
    width = (HEADS + 2 * KV_HEADS) * HEAD_DIM
    cache = random(device, 2, ROWS, KV_HEADS, LENGTH, HEAD_DIM, dtype=torch.bfloat16, seed=2)
    angles = torch.arange(LENGTH)[:, None] / 10.0 ** torch.arange(HEAD_DIM // 2)
    counters = torch.zeros(ROWS, KV_HEADS, dtype=torch.int32, device=device)
    positions = torch.tensor([6, 32], device=device)
    turned = (angles.cos().to(device), angles.sin().to(device))
    return (
        random(device, ROWS, width),
        cache[0],
        cache[1],
        positions,
        *turned,
        counters,
        LENGTH,
        0,
        HEAD_DIM**-0.5,
    )


class PrivateStep:
    """One adapter of two projections at one input of 41 columns, with masks for 16 tokens."""

    def __init__(self, device: str) -> None:
        self.device, self.example = device, test_online.Example(device, 41, "a", 1)
        self.table, self.pool = online.InputTable(device, 1), online.DevicePool(device, 16)
        prepared = arrays.upload(self.example.prepared, device)
        self.pool.install(0, prepared, test_online.MASK, test_online.SHARE)
        self.table.put(0, self.example.line, self.pool)
        self.status = online.StatusWords(device, ROWS)
        self.rows = random(device, ROWS, 41)
        # The key projection, which the adapter has not, is missing.
        self.outputs = [random(device, ROWS, width, seed=9) for width in (23, 0, 40)]

    def arguments(self) -> tuple[Any, ...]:
        """What `add_private_deltas` takes; the second of two rows meets no adapter."""
        words = torch.as_tensor(self.table.words)
        own = torch.tensor([0, -1], dtype=torch.int32, device=self.device)
        before = torch.zeros(ROWS, dtype=torch.int32, device=self.device)
        status, rows_max = self.status.to_tensor(), self.table.rows_max
        return words, own, before, self.rows, self.outputs, status, rows_max


@unittest.skipIf(torch is None, "no torch")
class Operators(unittest.TestCase):
    def on_each(self, body: Callable[[str], None]) -> None:
        for device in devices():
            with self.subTest(device=device):
                body(device)

    def calls(self, device: str) -> dict[str, tuple[Any, ...]]:
        """Arguments for each operator."""
        weight = random(device, OUT, WIDTH, dtype=torch.bfloat16, seed=5)
        bias, norm = (random(device, size, dtype=torch.bfloat16, seed=6) for size in (OUT, WIDTH))
        rows = random(device, ROWS, WIDTH)
        tokens = torch.tensor([3, 1], device=device)
        # Kept: the table has addresses of what the step owns.
        self.private = PrivateStep(device)
        return {
            "confide::gemv": (weight, bias, rows, norm, EPSILON, False),
            "confide::gemv_add": (random(device, ROWS, OUT), weight, None, rows),
            "confide::rms_norm": (rows, norm, EPSILON),
            "confide::swiglu": (rows,),
            "confide::embed": (weight, tokens),
            "confide::attend": attention_arguments(device),
            "confide::add_private_deltas": self.private.arguments(),
        }

    def test_each_passes_torch_s_own_checks(self) -> None:
        def body(device: str) -> None:
            calls = self.calls(device)
            self.assertEqual(set(calls), set(operators.OPERATORS))
            for name, arguments in calls.items():
                with self.subTest(operator=name):
                    torch.library.opcheck(operators.OPERATORS[name], arguments)

        self.on_each(body)

    def test_products_norms_and_gates_are_torch_s(self) -> None:
        def body(device: str) -> None:
            calls = self.calls(device)
            weight, bias, rows, norm, epsilon, _ = calls["confide::gemv"]
            normed = torch.nn.functional.rms_norm(rows, (WIDTH,), norm.float(), EPSILON)
            close = torch.testing.assert_close
            close(torch.ops.confide.rms_norm(rows, norm, epsilon), normed)
            wanted = normed @ weight.float().T + bias.float()
            close(torch.ops.confide.gemv(weight, bias, rows, norm, epsilon, False), wanted)
            gate, up = (normed @ weight.float().T).chunk(2, 1)
            gated = torch.nn.functional.silu(gate) * up
            close(torch.ops.confide.gemv(weight, None, rows, norm, epsilon, True), gated)
            close(torch.ops.confide.swiglu(torch.cat((gate, up), 1)), gated)
            output, before = (random(device, ROWS, OUT, seed=7) for _ in range(2))
            torch.ops.confide.gemv_add(output, weight, None, rows)
            close(output, before + rows @ weight.float().T)
            tokens = torch.tensor([3, 1], device=device)
            close(torch.ops.confide.embed(weight, tokens), weight[tokens].float())

        self.on_each(body)

    def test_attention_appends_and_is_torch_s(self) -> None:
        def body(device: str) -> None:
            arguments = attention_arguments(device)
            qkv, keys, values, positions, cosines, sines = arguments[:6]
            got = torch.ops.confide.attend(*arguments)
            half = HEAD_DIM // 2
            for row, position in enumerate(positions.tolist()):
                heads = qkv[row].view(-1, HEAD_DIM)
                cosine, sine = cosines[position], sines[position]
                first, second = heads[:, :half], heads[:, half:]
                turned = torch.cat(
                    (first * cosine - second * sine, second * cosine + first * sine), 1
                )
                queries, fresh = turned[:HEADS], turned[HEADS : HEADS + KV_HEADS]
                torch.testing.assert_close(keys[row, :, position].float(), fresh, atol=1e-2, rtol=0)
                seen = [cache[row, :, : position + 1].float() for cache in (keys, values)]
                spread = [each.repeat_interleave(HEADS // KV_HEADS, 0) for each in seen]
                wanted = torch.nn.functional.scaled_dot_product_attention(queries[:, None], *spread)
                torch.testing.assert_close(got[row], wanted.flatten(), atol=1e-3, rtol=1e-3)
            self.assertEqual(int(arguments[6].abs().sum()), 0)

        self.on_each(body)

    def test_private_deltas_are_those_of_the_product_in_the_open(self) -> None:
        def body(device: str) -> None:
            step = PrivateStep(device)
            wanted = {
                name: output.cpu().numpy().copy()
                for name, output in zip(("q", "k", "v"), step.outputs)
            }
            torch.ops.confide.add_private_deltas(*step.arguments())
            if device != "cpu":
                torch.cuda.synchronize()
            self.assertEqual((step.status.take_refusals(), step.pool.next_counter()), (0, 1))
            first = {name: values[:1] for name, values in wanted.items()}
            step.example.add_deltas(step.rows[:1].cpu().numpy(), first)
            for values, output in zip(wanted.values(), step.outputs):
                np.testing.assert_allclose(output.cpu().numpy(), values, rtol=2e-5, atol=2e-5)

        self.on_each(body)

    def test_a_compiled_layer_is_the_eager_one(self) -> None:
        def layer(rows: Any, norm: Any, weight: Any) -> Any:
            normed = torch.ops.confide.rms_norm(rows * 2, norm, EPSILON)
            output = normed @ weight.float().T
            torch.ops.confide.gemv_add(output, weight, None, normed)
            return output.relu()

        def body(device: str) -> None:
            weight = random(device, OUT, WIDTH, dtype=torch.bfloat16, seed=5)
            arguments = random(device, ROWS, WIDTH), random(device, WIDTH), weight
            compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
            torch.testing.assert_close(compiled(*arguments), layer(*arguments))

        self.on_each(body)

    def test_what_the_kernels_do_not_compute_is_refused(self) -> None:
        weight = random("cpu", OUT, WIDTH)
        with self.assertRaisesRegex(ValueError, "gemv: wanted 1 to 8 rows, got 9"):
            torch.ops.confide.gemv(weight, None, random("cpu", 9, WIDTH), None, 0.0, False)
        with self.assertRaisesRegex(TypeError, "weights: wanted bfloat16 or float32"):
            torch.ops.confide.embed(weight.double(), torch.zeros(1, dtype=torch.int64))


if __name__ == "__main__":
    unittest.main()
