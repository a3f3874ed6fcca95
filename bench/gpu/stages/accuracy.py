"""The masked step's integers against exact ones, and logits against the same decoder in float64.

What is looked at is what serves: the recorded steps that decode, and the two kernels of the fused online step, at the
true shape.
"""

from __future__ import annotations

from typing import Any

import numpy
import torch
from arms import open_kit
from blocks import Arm, ArmFailed, Measurement, StageSession
from confide.worker import adapters as worker_adapters
from confide.worker import cache
from confide.worker.deltas import points_of
from confide.worker.linear import PlainMatrix
from confide.worker.model import Model, PrefillSpan, run_pass
from confide.worker.weights import Layer, Weights
from decode_loop import DecodeLoop
from device import Device
from variants import MODEL

# Tokens that are decoded before the logits are looked at: each adds what the kernels left in the cache.
PROMPT, TOKENS = 32, 16
# An attention input of Qwen2.5-1.5B at rank 32: rows of A for q, k and v, and the widths of their outputs.
RANK, COLUMNS, BITS, VECTORS = 32, 1536, 33, 16
WIDTHS = (1536, 256, 256)
SHORT = 3


def run(session: StageSession) -> None:
    with open_kit(session, context=PROMPT + TOKENS + 8) as kit:
        loop, exact = kit.loop, Float64Model(kit.loop, str(kit.path))
        arms = accuracy_arm(loop, "plain-lora", kit.load_plain(), exact, None).with_twin()
        graph = session.make_or_leave_out("accuracy", "one-graph", kit.load_one_graph)
        if graph is not None:
            arms.append(accuracy_arm(loop, "one-graph", graph, exact, loop.device))
        session.run_case_blocks("accuracy", {"model": MODEL}, arms)


def accuracy_arm(
    loop: DecodeLoop, name: str, adapter: Any, exact: Float64Model, integers: Device | None
) -> Arm:
    """Distance of its logits from float64; with `integers`, how many of the masked step's are wrong."""

    def measure(seed: int) -> Measurement:
        decoded = loop.run(seed, TOKENS, PROMPT, [adapter])
        (number,) = decoded.told
        # The last step read all tokens but the one that it chose.
        ids = [*decoded.prompts[number], *decoded.told[number][:-1]]
        right = exact.logits(torch.tensor(ids, device=loop.device.torch_device))
        got = loop.stepper.logits[:1].double()
        if not torch.isfinite(got).all():
            raise ArmFailed("a logit is no number")
        metrics = {"logits_error_ratio": float((got - right).norm() / right.norm())}
        if integers is not None:
            metrics["integers_wrong_count"] = float(count_wrong_products(integers, seed))
        return Measurement([metrics])

    return Arm(name, measure, says=loop.says, guarantee="none")


def prefill_logits(
    model: Model, held: cache.Cache, adapter: Any, ids: torch.Tensor
) -> torch.Tensor:
    """Logits [1, vocabulary] after a prompt, with the adapter."""
    deltas = adapter.open()
    with torch.inference_mode():
        passing = model.prefill(ids, PrefillSpan(0, 0, len(ids)), held, points_of(adapter.sites))
        logits = run_pass(passing, lambda at: deltas.add(at.layer, at.source, at.rows, at.outputs))
        return logits.clone()


class Float64Model:
    """The same weights in float64, with the LoRA in float64."""

    def __init__(self, loop: DecodeLoop, path: str) -> None:
        double = torch.float64
        with torch.inference_mode():
            weights = weights_in_float64(loop.weights)
            size = cache.CacheSize(1, loop.cache.size.context)
            self.model = Model(loop.config, weights, size.context + cache.SPARE)
            self.cache = cache.Cache(loop.config, size, loop.device.torch_device, double)
        context = worker_adapters.WorkerContext(loop.config, loop.device.torch_device, double, 1)
        self.adapter = worker_adapters.AdapterRegistry(context).load(
            "exact", "plain", {"path": path}
        )

    def logits(self, ids: torch.Tensor) -> torch.Tensor:
        """Logits after a prompt, float64 [1, vocabulary]."""
        return prefill_logits(self.model, self.cache, self.adapter, ids)


def weights_in_float64(weights: Weights) -> Weights:
    """A copy of the weights in float64."""

    def matrix(one: Any) -> PlainMatrix:
        bias = None if one.bias is None else one.bias.double()
        return PlainMatrix(one.weight.double(), bias)

    layers = [
        Layer(one.attention_norm.double(), matrix(one.qkv), matrix(one.o), one.ffn_norm.double(), matrix(one.gate_up),
              matrix(one.down))
        for one in weights.layers
    ]  # fmt: skip
    embedding = weights.embedding.double()
    tied = getattr(weights.head, "weight", None) is weights.embedding
    head = PlainMatrix(embedding) if tied else matrix(weights.head)
    return Weights(
        embedding, layers, weights.final_norm.double(), head, f"{weights.label}, in float64"
    )


def count_wrong_products(device: Device, seed: int) -> int:
    """The number of products A·v, of `masked_products` and as `add_outputs` adds them, that differ from exact ones.

    B picks the rows of A, so each output shows one product. Half the vectors meet few and small entries of A, so that
    float32 holds their products, below 2^24, to the last bit; the others use the whole range of the words.
    """
    from confide.blind.tests import reference
    from confide.cuda import arrays, online

    generator = numpy.random.default_rng(seed)
    rows = RANK * len(WIDTHS)
    matrix = generator.integers(-2047, 2048, (rows, COLUMNS)).astype(numpy.int16)
    matrix[:, :SHORT] = generator.integers(-99, 100, (rows, SHORT))
    norms = numpy.sqrt((matrix.astype(numpy.float64) ** 2).sum(axis=1))
    limit = int(2.0 ** (BITS - 1) / norms.max())
    mask_key, share_key = generator.bytes(32), generator.bytes(32)
    low = numpy.uint64((1 << BITS) - 1)
    masks = reference.mask_rows(mask_key, 0, VECTORS, COLUMNS, BITS)
    shares = reference.mask_rows(share_key, 0, VECTORS, rows, BITS)
    words = matrix.T.astype(numpy.int64).view(numpy.uint64)
    prepared = arrays.upload((masks @ words - shares) & low, device.name)

    parts = {place: online.PartOnDevice(place * RANK, RANK, width, selector_matrix(device, width))
             for place, width in enumerate(WIDTHS)}  # fmt: skip
    line = online.InputOnDevice(device.name, matrix, COLUMNS, BITS, limit, VECTORS, parts)
    pool, table = online.DevicePool(device.name, VECTORS), online.InputTable(device.name, 1)
    pool.install(0, prepared, mask_key, share_key)
    table.put(0, line, pool)
    real = generator.normal(0.0, 1.0, (VECTORS, COLUMNS)).astype(numpy.float32)
    real[::2, SHORT:] = 0.0
    owners, offsets = numpy.zeros(VECTORS, numpy.int32), numpy.arange(VECTORS, dtype=numpy.int32)
    outputs = [arrays.zeros((VECTORS, width), "float32", device.name) for width in WIDTHS]
    status = online.StatusWords(device.name, VECTORS)
    owner_of, offset_of, rows_of = (
        arrays.upload(values, device.name) for values in (owners, offsets, real)
    )
    online.OnlineKernels(device.name, VECTORS, rows).run_fused(
        table, owner_of, offset_of, rows_of, outputs, status
    )
    device.synchronize()
    if status.take_refusals():
        raise ArmFailed("the online step refused a vector")

    def exact_products(vector: numpy.ndarray) -> numpy.ndarray:
        values, scale = reference.quantise_vector(vector, limit)
        return (matrix.astype(numpy.int64) @ values.astype(numpy.int64) * scale).astype(
            numpy.float32
        )

    wanted = numpy.stack([exact_products(vector) for vector in real])
    found = [arrays.to_host(output) for output in outputs]
    wrong = sum(int(numpy.count_nonzero(output[:, RANK:])) for output in found)
    picked = numpy.concatenate([output[:, :RANK] for output in found], axis=1)
    return wrong + int(numpy.count_nonzero(picked != wanted))


def selector_matrix(device: Device, width: int) -> Any:
    """B of shape [rank, width] that shows product i in column i."""
    from confide.cuda import arrays

    return arrays.upload(numpy.eye(RANK, width, dtype=numpy.float32), device.name)
