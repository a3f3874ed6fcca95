"""The decode step's kernels against a decoder in numpy float64."""

from __future__ import annotations

import os
import shutil
import tempfile
import unittest
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np

from confide.cuda import runtime, source, tiling, tune
from confide.cuda.decode import DecodeStep, kernel_variants
from confide.cuda.tests import Device, on_each_device
from confide.cuda.tests.reference import TINY, Reference, random_weights, rotary
from confide.cuda.tiling import (
    AttentionShape,
    AttentionSplit,
    Product,
    Tiling,
    Tilings,
    candidates,
    choose_by_shape,
    split_candidates,
)

CONTEXT = 160
SPLIT_SHAPE = AttentionShape("bf16", 12, 2, 128, 1)


def on_device(device: Device, weights: Any) -> Any:
    """The weights with each array on the device."""
    if isinstance(weights, np.ndarray):
        return device.array(weights)
    if isinstance(weights, list):
        return [on_device(device, one) for one in weights]
    if isinstance(weights, SimpleNamespace):
        return SimpleNamespace(
            **{name: on_device(device, value) for name, value in vars(weights).items()}
        )
    return weights


def in_bf16(device: Device, weights: Any) -> tuple[Any, Any]:
    """The weights rounded to bf16 on the device, and the rounded ones in float32 for the reference."""
    if isinstance(weights, np.ndarray):
        return round_to_bf16(device, weights)
    if isinstance(weights, list):
        pairs = [in_bf16(device, one) for one in weights]
        return [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    if isinstance(weights, SimpleNamespace):
        both = {name: in_bf16(device, value) for name, value in vars(weights).items()}
        first, second = (
            SimpleNamespace(**{name: pair[part] for name, pair in both.items()}) for part in (0, 1)
        )
        return first, second
    return weights, weights


def step_on(device: Device, config: Any, weights: Any, rows: int, **options: Any) -> DecodeStep:
    cosines, sines = rotary(CONTEXT, config.head_dim)
    cache = device.zeros(
        (config.layers, 2, rows, config.kv_heads, CONTEXT, config.head_dim), np.float32
    )
    tables = device.array(cosines), device.array(sines)
    return DecodeStep(
        config, on_device(device, weights), cache, *tables, rows, device.name, **options
    )


class Steps(unittest.TestCase):
    @on_each_device
    def test_greedy_tokens_are_the_reference_s(self, device: Device) -> None:
        weights, rows = random_weights(TINY, 1), 2
        step = step_on(device, TINY, weights, rows)
        references = [Reference(TINY, weights, *rotary(CONTEXT, 16)) for _ in range(rows)]
        fed = [5, 300]
        for place in range(12):
            tokens, positions = device.array(fed, np.int64), device.array([place] * rows, np.int64)
            logits = device.numpy(step.logits(tokens, positions))
            wanted = np.stack(
                [reference.logits(token) for reference, token in zip(references, fed)]
            )
            np.testing.assert_allclose(logits, wanted, atol=2e-5)
            fed = [int(token) for token in wanted.argmax(1)]
            self.assertEqual(logits.argmax(1).tolist(), fed)

    @on_each_device
    def test_bf16_weights_and_cache_stay_near_the_reference(self, device: Device) -> None:
        exact = random_weights(TINY, 10)
        halves, near = in_bf16(device, exact)
        step = step_on(device, TINY, exact, 1)
        cache = device.zeros(tuple(step.cache.shape), np.uint16)
        step = DecodeStep(TINY, halves, cache, step.cosines, step.sines, 1, device.name)
        reference = Reference(TINY, near, *rotary(CONTEXT, 16))
        for place, token in enumerate((3, 1, 4, 1, 5)):
            logits = step.logits(device.array([token], np.int64), device.array([place], np.int64))
            np.testing.assert_allclose(device.numpy(logits)[0], reference.logits(token), atol=0.03)

    def test_shapes_that_the_kernels_do_not_hold_are_refused(self) -> None:
        for changed in ({"heads": 40, "kv_heads": 4}, {"ffn": 100}, {"head_dim": 264}):
            config = replace(TINY, **changed)
            with self.subTest(**changed), self.assertRaisesRegex(ValueError, "decode step: wanted"):
                step_on(Device("cpu"), config, random_weights(TINY, 8), 1)

    @on_each_device
    def test_windows_and_partly_turned_heads(self, device: Device) -> None:
        config = replace(TINY, window=5, kv_heads=4)
        weights = random_weights(config, 2, bias=False)
        step = step_on(device, config, weights, 1)
        cosines, sines = rotary(CONTEXT, 8)
        step.cosines, step.sines = device.array(cosines), device.array(sines)
        reference = Reference(config, weights, cosines, sines)
        for place, token in enumerate((1, 2, 3, 4, 5, 6, 7, 8, 9)):
            logits = step.logits(device.array([token], np.int64), device.array([place], np.int64))
            np.testing.assert_allclose(device.numpy(logits)[0], reference.logits(token), atol=2e-5)

    @on_each_device
    def test_adapters_add_at_each_point(self, device: Device) -> None:
        weights, rng = random_weights(TINY, 3), np.random.default_rng(4)
        widths = {
            "q": (64, 64),
            "k": (32, 64),
            "v": (32, 64),
            "o": (64, 64),
            "gate": (128, 64),
            "up": (128, 64),
        }
        widths |= {"down": (64, 128), "final_hidden": (64, 64)}
        deltas = {(0 if name == "final_hidden" else 1, name): rng.standard_normal(width).astype(np.float32) / 20
                  for name, width in widths.items()}  # fmt: skip
        step = step_on(device, TINY, weights, 1)
        reference = Reference(TINY, weights, *rotary(CONTEXT, 16), deltas)
        sources = ("attention", "attention_output", "feed_forward", "feed_forward_inner")
        points = frozenset({(1, source) for source in sources} | {(0, "final_hidden")})
        for place, token in enumerate((7, 8, 9)):
            seen = set()
            run = step.run(device.array([token], np.int64), device.array([place], np.int64), points)
            for point in run:
                seen.add((point.layer, point.source))
                for name, output in point.outputs.items():
                    output += point.rows @ device.array(deltas[point.layer, name]).T
            self.assertEqual(seen, points)
            np.testing.assert_allclose(
                device.numpy(step.out)[0], reference.logits(token), atol=3e-5
            )

    @on_each_device
    def test_an_idle_row_changes_nothing(self, device: Device) -> None:
        weights = random_weights(TINY, 5)
        step = step_on(device, TINY, weights, 2, limit=100)
        logits = step.logits(device.array([1, 2], np.int64), device.array([100, 0], np.int64))
        wanted = Reference(TINY, weights, *rotary(CONTEXT, 16)).logits(2)
        np.testing.assert_allclose(device.numpy(logits)[1], wanted, atol=2e-5)
        self.assertEqual(float(abs(device.numpy(step.cache)[:, :, 0]).sum()), 0.0)

    @on_each_device
    def test_long_contexts_are_split_over_blocks(self, device: Device) -> None:
        heads, kv_heads, head_dim, length = 6, 2, 16, 1000
        rng = np.random.default_rng(6)
        config = SimpleNamespace(
            **{**vars(TINY), "heads": heads, "kv_heads": kv_heads, "layers": 1}
        )
        keys = rng.standard_normal((2, 2, kv_heads, length, head_dim)).astype(np.float32)
        qkv = rng.standard_normal((2, heads + 2 * kv_heads, head_dim)).astype(np.float32)
        step = step_on(device, config, random_weights(config, 7), 2)
        step.cache = device.array(keys[None])
        step.limit = length
        step.set_attention_split(AttentionSplit(64, 7))
        step.cosines, step.sines = (
            device.array(np.ones((length, 8), np.float32)),
            device.zeros((length, 8), np.float32),
        )
        step.qkv = device.array(qkv.reshape(2, -1))
        for positions in ([999, 63], [64, 500], [0, 130]):
            step.attend(0, device.array(positions, np.int64), False)
            for row, position in enumerate(positions):
                seen = keys[:, row, :, : position + 1].astype(np.float64)
                seen[0, :, position], seen[1, :, position] = (
                    qkv[row, heads : heads + 2],
                    qkv[row, heads + 2 :],
                )
                scores = (
                    np.einsum("hgd,hpd->hgp", qkv[row, :heads].reshape(2, 3, head_dim), seen[0]) / 4
                )
                shares = np.exp(scores - scores.max(-1, keepdims=True))
                wanted = np.einsum("hgp,hpd->hgd", shares / shares.sum(-1, keepdims=True), seen[1])
                np.testing.assert_allclose(
                    device.numpy(step.attended)[row], wanted.ravel(), atol=2e-5
                )
                keys[:, row, :, position] = seen[:, :, position]
        self.assertEqual(device.numpy(step._counters).sum(), 0)


class Orders(unittest.TestCase):
    """Which launches of a step may overlap the kernel ahead."""

    def overlaps(self, overlap: bool, keep: bool) -> list[bool]:
        """Whether each launch of a step of one layer does, with a launch of an adapter's own at its first point."""
        seen: list[bool] = []

        def module(*_: Any) -> Any:
            def launch(*_: Any, overlap: bool, **__: Any) -> None:
                seen.append(overlap)

            return SimpleNamespace(kernel=lambda _name: launch)

        config = replace(TINY, layers=1)
        with mock.patch.object(runtime, "Module", module):
            step = step_on(Device("cpu"), config, random_weights(config, 9), 1, overlap=overlap)
            zeros = np.zeros(1, np.int64)
            for point in step.run(zeros, zeros, frozenset({(0, "attention")})):
                if keep:
                    seen.append(point.order.next())
                    point.order.keep()
        return seen

    def test_all_but_the_first_where_an_adapter_keeps_the_order(self) -> None:
        self.assertEqual(self.overlaps(True, keep=True), [False] + [True] * 8)

    def test_the_launch_after_something_else_waits_for_its_end(self) -> None:
        # embed, norm, qkv | attention, o, gate and up, down, head
        wanted = [False, True, True, False, True, True, True, True]
        self.assertEqual(self.overlaps(True, keep=False), wanted)

    def test_none_where_the_device_cannot(self) -> None:
        self.assertEqual(self.overlaps(False, keep=True), [False] * 9)


class Products(unittest.TestCase):
    def product(self, device: Device, product: Product, tiles: Tiling) -> None:
        rng = np.random.default_rng(8)
        spread = product.columns**-0.5
        weight = (rng.standard_normal((product.out, product.columns)) * spread).astype(np.float32)
        rows = rng.standard_normal((product.batch, product.columns)).astype(np.float32)
        norm = rng.uniform(0.5, 1.5, product.columns).astype(np.float32)
        bias = rng.standard_normal(product.out).astype(np.float32)
        element, data = "float", device.array(weight)
        if product.weight == "bf16":
            element, (data, weight) = "bf16", round_to_bf16(device, weight)
            norm_data, norm = round_to_bf16(device, norm)
            bias_data, bias = round_to_bf16(device, bias)
        else:
            norm_data, bias_data = device.array(norm), device.array(bias)
        width = product.out // 2 if product.output == "SWIGLU" else product.out
        before = rng.standard_normal((product.batch, width)).astype(np.float32)
        output = device.array(before)
        kernel = runtime.Module("gemv.cu", device.name, tiles.defines(product, element)).kernel(
            "gemv"
        )
        with_bias = product.output != "SWIGLU"
        kernel(tiles.grid(product), tiles.warps * 32, data, bias_data if with_bias else None,
               device.array(rows), norm_data if product.normed else None, output, product.out, product.columns,
               1e-5, shared=tiles.shared_bytes(product))  # fmt: skip
        wanted = rows.astype(np.float64)
        if product.normed:
            wanted = wanted / np.sqrt((wanted**2).mean(1, keepdims=True) + 1e-5) * norm
        wanted = wanted @ weight.T.astype(np.float64) + (bias if with_bias else 0)
        if product.output == "SWIGLU":
            gate, up = np.split(wanted, 2, 1)
            wanted = gate / (1 + np.exp(-gate)) * up
        elif product.output == "ADD":
            wanted = wanted + before
        np.testing.assert_allclose(device.numpy(output), wanted, atol=5e-6, rtol=1e-5)

    @on_each_device
    def test_every_weight_output_and_sharing(self, device: Device) -> None:
        for product, tiles in (
            (Product("float", "STORE", True, 37, 520, 1), Tiling(1, 1, 3, 4)),
            (Product("float", "ADD", False, 10, 1160, 3), Tiling(2, 2, 4, 4)),
            (Product("bf16", "STORE", True, 41, 1544, 1), Tiling(4, 1, 3, 4, blocks=2)),
            (Product("bf16", "SWIGLU", True, 70, 520, 2), Tiling(4, 1, 2, 4)),
            (Product("bf16", "ADD", False, 9, 2568, 8), Tiling(2, 5, 2, 5, blocks=3)),
            (Product("float", "STORE", True, 21, 1160, 2), Tiling(2, 1, 3, 4, staged=True)),
            (Product("bf16", "SWIGLU", True, 70, 1536, 3), Tiling(4, 1, 3, 4, staged=True)),
            (Product("bf16", "ADD", False, 33, 776, 1), Tiling(1, 2, 2, 8, blocks=3, staged=True)),
        ):
            with self.subTest(product=product, tiles=tiles):
                self.product(device, product, tiles)

    def test_what_is_tuned_is_what_a_step_launches(self) -> None:
        step = step_on(Device("cpu"), TINY, random_weights(TINY, 9), 1)
        step.logits(np.zeros(1, np.int64), np.zeros(1, np.int64))
        self.assertEqual({product for product, _, _ in tune._products(step)}, set(step._products))

    def test_the_listed_variants_are_those_that_a_step_compiles(self) -> None:
        every = ("attention", "attention_output", "feed_forward", "feed_forward_inner")
        for rows, sources in ((1, ()), (3, ("final_hidden",)), (2, every)):
            compiled: list[tuple[str, dict[str, str]]] = []

            def module(file: str, _device: str, defines: dict[str, Any]) -> Any:
                compiled.append((file, defines))  # noqa: B023
                return SimpleNamespace(kernel=lambda _name: lambda *_, **__: None)

            points = frozenset((index, name) for name in sources for index in range(TINY.layers))
            chosen = Tilings({Product("float", "ADD", False, 64, 64, rows): Tiling(1, 1, 1, 4)})
            with mock.patch.object(runtime, "Module", module):
                step = step_on(Device("cpu"), TINY, random_weights(TINY, 9), rows, tilings=chosen)
                zeros = np.zeros(rows, np.int64)
                for _ in step.run(zeros, zeros, points):
                    pass
            listed = kernel_variants(TINY, rows, "float", chosen, frozenset(sources))
            in_order = sorted(map(str, listed))
            self.assertEqual(in_order, sorted(map(str, compiled)))

    def test_measured_tilings_come_from_the_package_where_none_were_measured_here(self) -> None:
        product = Product("bf16", "STORE", True, 64, 64, 1)
        shipped = Tilings({product: Tiling(2, 1, 1, 4)}, {SPLIT_SHAPE: AttentionSplit(32, 16)})
        own = Tilings({product: Tiling(1, 1, 1, 4)})
        with (
            tempfile.TemporaryDirectory() as folder,
            mock.patch.dict(os.environ, {"CONFIDE_CACHE": f"{folder}/cache"}),
            mock.patch.object(tiling, "SHIPPED", Path(folder)),
        ):
            tiling.save_measured("NVIDIA H100", shipped)
            shutil.copy(tiling.path("NVIDIA H100"), folder)
            shutil.rmtree(f"{folder}/cache")
            self.assertEqual(tiling.load_measured("NVIDIA H100"), shipped)
            tiling.save_measured("NVIDIA H100", own)
            merged = Tilings(own.products, shipped.attention)
            self.assertEqual(tiling.load_measured("NVIDIA H100"), merged)

    def test_measured_tilings_serve_the_same_device_and_kernels_alone(self) -> None:
        product = Product("bf16", "STORE", True, 64, 64, 1)
        with (
            tempfile.TemporaryDirectory() as folder,
            mock.patch.dict(os.environ, {"CONFIDE_CACHE": folder}),
        ):
            chosen = Tilings(
                {product: Tiling(2, 1, 1, 4, staged=True)}, {SPLIT_SHAPE: AttentionSplit(32, 16)}
            )
            tiling.save_measured("NVIDIA H100", chosen)
            self.assertEqual(tiling.load_measured("NVIDIA H100"), chosen)
            self.assertEqual(tiling.load_measured("NVIDIA A100"), Tilings())
            changed = SimpleNamespace(digest="f" * 64)
            with mock.patch.object(source, "read", return_value=changed):
                self.assertEqual(tiling.load_measured("NVIDIA H100"), Tilings())

    def test_a_measured_split_is_what_a_step_launches(self) -> None:
        shape = AttentionShape("float", TINY.heads, TINY.kv_heads, TINY.head_dim, 1)
        chosen = Tilings(attention={shape: AttentionSplit(8, 3)})
        step = step_on(Device("cpu"), TINY, random_weights(TINY, 9), 1, tilings=chosen)
        grids: list[Any] = []
        step._attention = lambda grid, *_, **__: grids.append(grid)  # type: ignore[assignment]
        step.logits(np.zeros(1, np.int64), np.zeros(1, np.int64))
        self.assertEqual(set(grids), {(3, TINY.kv_heads, 1)})

    def test_a_short_context_is_one_round_trip_for_each_block(self) -> None:
        shape = AttentionShape("bf16", 12, 2, 128, 1)
        first, *others = split_candidates(shape)
        self.assertEqual((first.least, first.blocks(232), first.blocks(1)), (16, 15, 1))
        self.assertEqual(first.blocks(100_000), tiling.ATTENTION_BLOCKS_MAX)
        self.assertNotIn(first, others)

    def test_the_choice_by_shape_keeps_to_the_kernel_s_limits(self) -> None:
        for weight in ("float", "bf16"):
            for output in ("STORE", "ADD", "SWIGLU"):
                for out, columns in (
                    (2048, 1536),
                    (1536, 8960),
                    (151_936, 1536),
                    (57_344, 8192),
                    (64, 64),
                ):
                    for batch in range(1, 9):
                        product = Product(weight, output, output != "ADD", out, columns, batch)
                        for tiles in (choose_by_shape(product), *candidates(product)):
                            held = tiles.rows // 2 if output == "SWIGLU" else tiles.rows
                            self.assertTrue(
                                1 <= held * batch <= 32 and tiles.warps % tiles.split == 0, tiles
                            )
                            self.assertTrue(
                                tiles.warps <= 8 and tiles.unroll >= 1 and tiles.grid(product) >= 1,
                                tiles,
                            )


def round_to_bf16(device: Device, values: np.ndarray) -> tuple[Any, np.ndarray]:
    """The values in bf16 on the device (as bits), and as float32 on the host."""
    bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    halves = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    return device.array(halves), (halves.astype(np.uint32) << 16).view(np.float32)


if __name__ == "__main__":
    unittest.main()
