"""The integers of the masked step against exact ones, and logits against the same decoder in float64."""

from __future__ import annotations

from typing import Any

import numpy
import torch
from arms import open_kit
from blocks import Arm, Failed, Measurement, Session
from confide.worker import adapters as worker_adapters
from confide.worker import cache
from confide.worker.deltas import points_of
from confide.worker.linear import Plain
from confide.worker.model import Model, Span, drive
from confide.worker.weights import Layer, Weights
from decode_loop import MODEL, DecodeLoop
from device import Device

PROMPT = 32
ROWS, COLUMNS, BITS, VECTORS = 32, 1536, 33, 16


def run(session: Session) -> None:
    with open_kit(session, context=PROMPT + 8) as kit:
        loop, exact = kit.loop, Exact(kit.loop, str(kit.path))
        arms = arm(loop, "plain-lora", kit.plain(), exact, None).with_twin()
        graph = session.prepare("accuracy", "one-graph", kit.one_graph)
        if graph is not None:
            arms.append(arm(loop, "one-graph", graph, exact, loop.device))
        session.bench("accuracy", {"model": MODEL}, arms)


def arm(loop: DecodeLoop, name: str, adapter: Any, exact: Exact, integers: Device | None) -> Arm:
    """Distance of its logits from float64; with `integers`, how many of the masked step's are wrong."""

    def measure(seed: int) -> Measurement:
        ids = prompt(loop, seed)
        right = exact.logits(ids)
        got = forward(loop.model, loop.cache, adapter, ids).double()
        if not torch.isfinite(got).all():
            raise Failed("a logit is no number")
        metrics = {"logits_error_ratio": float((got - right).norm() / right.norm())}
        if integers is not None:
            metrics["integers_wrong_count"] = float(wrong_integers(integers, seed))
        return Measurement([metrics])

    return Arm(name, measure, says=loop.says, guarantee="none")


def prompt(loop: DecodeLoop, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, loop.config.vocabulary, (PROMPT,), generator=generator)
    return ids.to(loop.device.torch_device)


def forward(model: Model, held: cache.Cache, adapter: Any, ids: torch.Tensor) -> torch.Tensor:
    """Logits [1, vocabulary] after a prompt, with the adapter."""
    deltas = adapter.open()
    try:
        with torch.inference_mode():
            getattr(deltas, "before_step", lambda _rows: None)(len(ids))
            passing = model.prefill(ids, Span(0, 0, len(ids)), held, points_of(adapter.sites))
            logits = drive(passing, lambda at: deltas.add(at.layer, at.source, at.rows, at.outputs))
            if model.device.type == "cuda":
                # What a kernel refused is read after it has run.
                torch.cuda.synchronize(model.device)
            getattr(deltas, "after_step", lambda: None)()
            return logits.clone()
    finally:
        getattr(deltas, "close", lambda: None)()


class Exact:
    """The same weights in float64, with the LoRA in float64."""

    def __init__(self, loop: DecodeLoop, path: str) -> None:
        double = torch.float64
        with torch.inference_mode():
            weights = in_double(loop.weights)
            size = cache.Size(1, loop.cache.size.context)
            self.model = Model(loop.config, weights, size.context + cache.SPARE)
            self.cache = cache.Cache(loop.config, size, loop.device.torch_device, double)
        context = worker_adapters.Context(loop.config, loop.device.torch_device, double, 1)
        self.adapter = worker_adapters.Adapters(context).load("exact", "plain", {"path": path})

    def logits(self, ids: torch.Tensor) -> torch.Tensor:
        """Logits after a prompt, float64 [1, vocabulary]."""
        return forward(self.model, self.cache, self.adapter, ids)


def in_double(weights: Weights) -> Weights:
    """A copy of the weights in float64."""

    def matrix(one: Any) -> Plain:
        bias = None if one.bias is None else one.bias.double()
        return Plain(one.weight.double(), bias)

    layers = [
        Layer(one.attention_norm.double(), matrix(one.qkv), matrix(one.o), one.ffn_norm.double(), matrix(one.gate_up),
              matrix(one.down))
        for one in weights.layers
    ]  # fmt: skip
    embedding = weights.embedding.double()
    tied = getattr(weights.head, "weight", None) is weights.embedding
    head = Plain(embedding) if tied else matrix(weights.head)
    return Weights(
        embedding, layers, weights.final_norm.double(), head, f"{weights.label}, in float64"
    )


def wrong_integers(device: Device, seed: int) -> int:
    """The number of integers of A·y + s mod 2^k, by the host's kernel, that differ from exact ones on this CPU."""
    from confide.blind.tests import reference
    from confide.cuda import arrays, online

    generator = numpy.random.default_rng(seed)
    matrix = generator.integers(-2047, 2048, (ROWS, COLUMNS)).astype(numpy.int16)
    words = generator.integers(0, 1 << BITS, (VECTORS, COLUMNS), dtype=numpy.uint64)
    key = generator.bytes(32)
    line = online.InputOnDevice(device.name, matrix, COLUMNS, BITS, 1 << 60, 1, {})
    # Without parts the kernel's rows are the matrix's own.
    table = online.Table(device.name, 1)
    table.put(0, line)
    jobs = numpy.zeros((VECTORS, 6), numpy.uint64)
    jobs[:, 1:5] = numpy.frombuffer(key, "<u8")
    jobs[:, 5] = numpy.arange(VECTORS)
    answers = arrays.zeros((VECTORS, ROWS), "int64", device.name)
    online.Online(device.name, 1, 1).answer(
        table, arrays.upload(jobs, device.name), arrays.upload(words, device.name), None, answers
    )
    low = numpy.uint64((1 << BITS) - 1)
    products = words @ matrix.T.astype(numpy.int64).view(numpy.uint64)
    right = (products + reference.mask_rows(key, 0, VECTORS, ROWS, BITS)) & low
    return int(numpy.count_nonzero(arrays.as_words(answers) != right))
