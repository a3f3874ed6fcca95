"""The integers of the masked step against exact ones, and logits against the same decoder in float64."""

from __future__ import annotations

from typing import Any

import numpy
import torch
from arms import Kit
from bed import MODEL, Bed
from blocks import Arm, Failed, Session, Took
from confide.worker import adapters as worker_adapters
from confide.worker import cache
from confide.worker.deltas import points_of
from confide.worker.linear import Plain
from confide.worker.model import Model, Span, drive
from confide.worker.weights import Layer, Weights
from device import Device

PROMPT = 32
ROWS, COLUMNS, BITS, VECTORS = 32, 1536, 33, 16


def run(session: Session) -> None:
    device = Device(session.cpu)
    bed = Bed(device, session.cpu, MODEL, slots=1, context=PROMPT + 8)
    kit = Kit(session, bed)
    exact = Exact(bed, str(kit.path))
    plain = kit.load("plain", "plain", path=str(kit.path))
    arms = [
        arm(bed, "plain-lora", plain, exact, None),
        arm(bed, "plain-lora", plain, exact, None, twin=True),
    ]
    graph = session.made("accuracy", "one-graph", lambda: kit.masked("graph", "one-graph"))
    if graph is not None:
        arms.append(arm(bed, "one-graph", graph, exact, device))
    session.bench("accuracy", {"model": MODEL}, arms)
    kit.close()
    bed.close()


def arm(
    bed: Bed, name: str, adapter: Any, exact: Exact, integers: Device | None, twin: bool = False
) -> Arm:
    """Distance of its logits from float64; with `integers`, how many of the masked step's are wrong."""

    def measure(seed: int) -> Took:
        ids = prompt(bed, seed)
        right = exact.logits(ids)
        got = forward(bed.model, bed.cache, adapter, ids).double()
        if not torch.isfinite(got).all():
            raise Failed("a logit is no number")
        metrics = {"logits_error_ratio": float((got - right).norm() / right.norm())}
        if integers is not None:
            metrics["integers_wrong_count"] = float(wrong_integers(integers, seed))
        return Took([metrics])

    return Arm(name, measure, says=bed.says, guarantee="none", twin=twin)


def prompt(bed: Bed, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, bed.config.vocabulary, (PROMPT,), generator=generator)
    return ids.to(bed.device.torch_device)


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

    def __init__(self, bed: Bed, path: str) -> None:
        double = torch.float64
        with torch.inference_mode():
            weights = in_double(bed.weights)
            size = cache.Size(1, bed.cache.size.context)
            self.model = Model(bed.config, weights, size.context + cache.SPARE)
            self.cache = cache.Cache(bed.config, size, bed.device.torch_device, double)
        context = worker_adapters.Context(bed.config, bed.device.torch_device, double, 1)
        self.adapter = worker_adapters.Adapters(context).load("exact", "plain", {"path": path})

    def logits(self, ids: torch.Tensor) -> torch.Tensor:
        """float64 [1, vocabulary]."""
        return forward(self.model, self.cache, self.adapter, ids)


def in_double(weights: Weights) -> Weights:
    """A copy in float64."""

    def matrix(one: Any) -> Plain:
        bias = None if one.bias is None else one.bias.double()
        return Plain(one.weight.double(), bias)

    layers = [
        Layer(one.attention_norm.double(), matrix(one.qkv), matrix(one.o), one.ffn_norm.double(), matrix(one.gate_up),
              matrix(one.down))
        for one in weights.layers
    ]  # fmt: skip
    embedding = weights.embedding.double()
    tied = weights.head.weight is weights.embedding
    head = Plain(embedding) if tied else matrix(weights.head)
    return Weights(
        embedding, layers, weights.final_norm.double(), head, f"{weights.label}, in float64"
    )


def wrong_integers(device: Device, seed: int) -> int:
    """Of A·y + s mod 2^k as the host's kernel gives it, those that differ from exact integers on this CPU."""
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
