"""The worker's own decode loop in this process: its weights, cache, recorded steps and scheduler, without the socket.

A *run* gives every slot a prompt and decodes; the clock runs from the moment at which every generation has its first
token to the end of the first generation, so every step inside has all its rows. In a rehearsal the shape is tiny, under
the true one's name, so that every later step is as it will be; all of it is labelled.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from blocks import ArmFailed
from confide.worker import adapters as worker_adapters
from confide.worker import cache, config, weights
from confide.worker.generation import Generation, Request
from confide.worker.graphs import Stepper
from confide.worker.model import Model
from confide.worker.rows import Rows
from confide.worker.schedule import Scheduler
from device import Device
from variants import MODEL

SEED = 1
# One bucket of context holds both.
PROMPT, TOKENS = 64, 160


def model_config(model: str, cpu: bool) -> config.ModelConfig:
    """The shape that is measured, which is tiny in a rehearsal."""
    return config.SHAPES["tiny" if cpu else model]


class Decoder(NamedTuple):
    """One way to compute a decode step: the stepper's options, and words for the record."""

    decoder: str
    overlap: bool
    says: str


# By the name of its arm in the bench `decoder`.
DECODERS = {
    "decoder-kernels": Decoder("kernels", True, "decoder kernels"),
    "decoder-kernels-in-turn": Decoder(
        "kernels", False, "decoder kernels without programmatic launch"
    ),
    "decoder-torch": Decoder("torch", False, "decoder torch"),
}


@dataclass
class DecodeRun:
    """One run: seconds of the window, tokens of all generations in it, every generation's prompt and its tokens."""

    seconds: float
    tokens: int
    prompts: dict[int, list[int]]
    told: dict[int, list[int]]
    reports: list[dict[str, Any] | None]


class DecodeLoop:
    """A model with `slots` generations at once. With fewer `layers` than the shape it is truncated and says so."""

    def __init__(
        self,
        device: Device,
        slots: int,
        model: str = MODEL,
        context: int = PROMPT + TOKENS + 8,
        layers: int | None = None,
        bits: int = 0,
    ) -> None:
        self.device, self.model_name, self.slots = device, model, slots
        cpu, shape = device.cpu, model_config(model, device.cpu)
        self.truncated = layers is not None and layers < shape.layers
        self.config = replace(shape, layers=min(layers or shape.layers, shape.layers))
        dtype = torch.float32 if cpu else torch.bfloat16
        size = cache.CacheSize(slots, -(-context // 8) * 8)
        with torch.inference_mode():
            self.weights = weights.random(self.config, SEED, device.torch_device, dtype, bits)
            self.model = Model(self.config, self.weights, size.context + cache.SPARE)
            self.cache = cache.Cache(self.config, size, device.torch_device, dtype)
        idle = self.cache.idle_position
        self.rows = Rows(slots, size.context, self.config.vocabulary, idle, device.torch_device)
        self._decoders: dict[str, tuple[Stepper, Scheduler, Any]] = {}
        self.use_decoder("decoder-torch")
        self.adapters = worker_adapters.AdapterRegistry(
            worker_adapters.WorkerContext(self.config, device.torch_device, dtype, slots)
        )
        self._numbers = 0
        self._prompts: dict[int, list[int]] = {}
        self._told: dict[int, list[int]] = {}
        self._ended: dict[int, Generation] = {}
        self._marks: list[tuple[float, int]] = []

    @property
    def says(self) -> str:
        """The description of what runs, for the record."""
        cut = f", truncated to {self.config.layers} layers" if self.truncated else ""
        return f"{self.model_name}{cut}, {self.weights.label}, {DECODERS[self.decoder].says}"

    def use_decoder(self, name: str) -> None:
        """Decodes by this entry of `DECODERS` from now on; raises ImportError where its kernels are missing."""
        if name not in self._decoders:
            chosen = DECODERS[name]
            self.model.kernel_attention = None
            stepper = Stepper(
                self.model, self.cache, self.rows, decoder=chosen.decoder, overlap=chosen.overlap
            )
            scheduler = Scheduler(self.model, self.cache, self.rows, stepper, self)
            self._decoders[name] = (stepper, scheduler, self.model.kernel_attention)
        self.decoder = name
        self.stepper, self.scheduler, self.model.kernel_attention = self._decoders[name]

    # Calls of the scheduler.

    def emit_tokens(self, told: list[tuple[int, int]]) -> None:
        for number, token in told:
            self._told[number].append(token)
        self._marks.append((time.perf_counter(), len(told)))

    def emit_end(self, generation: Generation) -> None:
        self._ended[generation.request.number] = generation

    # Runs.

    def run(
        self,
        seed: int,
        tokens: int = TOKENS,
        prompt: int = PROMPT,
        adapters: list[Any] | None = None,
    ) -> DecodeRun:
        """Lets every slot decode `tokens` tokens after `prompt`; `adapters` by slot, None for none."""
        with torch.inference_mode():
            try:
                return self._run(self.submit_requests(seed, tokens, prompt, adapters))
            except BaseException:
                # Nothing of this run may stand in the way of the next arm's.
                self.scheduler.cancel_all()
                self.scheduler.drop_cancelled()
                self.scheduler.read_steps(keep=0)
                raise

    def _run(self, numbers: list[int]) -> DecodeRun:
        began = None
        while not self._ended.keys() & set(numbers):
            self.scheduler.run_round()
            if began is None and all(self._told[number] for number in numbers):
                began = len(self._marks)
        full = len(self._marks)
        while len(self._ended) < len(numbers):
            self.scheduler.run_round()
        ended = [self._ended[number] for number in numbers]
        for one in ended:
            if one.ended != "length":
                reason = one.failure.message if one.failure else ""
                raise ArmFailed(f"generation ended by {one.ended}: {reason}"[:200])
        if began is None:
            raise ArmFailed("a generation ended before the last one had its first token")
        window = self._marks[began - 1 : full]
        return DecodeRun(
            window[-1][0] - window[0][0],
            sum(count for _, count in window[1:]),
            {number: self._prompts[number] for number in numbers},
            {number: self._told[number] for number in numbers},
            [one.report() for one in ended],
        )

    def time_generation_s(self, prompt: int, tokens: int, seed: int) -> float:
        """Seconds of one generation with its prompt, from submission to the last token."""
        self.device.synchronize()
        began = time.perf_counter()
        self.run(seed, tokens, prompt)
        return time.perf_counter() - began

    def submit_requests(
        self, seed: int, tokens: int, prompt: int, adapters: list[Any] | None = None
    ) -> list[int]:
        """Submits one request a slot; gives their numbers. The same seed gives the same prompts."""
        self._prompts, self._told, self._ended, self._marks = {}, {}, {}, []
        generator = random.Random(seed)
        numbers = []
        for slot in range(self.slots):
            ids = [generator.randrange(self.config.vocabulary) for _ in range(prompt)]
            self._numbers += 1
            self._prompts[self._numbers], self._told[self._numbers] = ids, []
            request = Request(self._numbers, ids, tokens)
            self.scheduler.submit(request, adapters[slot] if adapters else None)
            numbers.append(self._numbers)
        return numbers

    def weight_read_floor(self, batch: int) -> dict[str, Any]:
        """The rate at which the weights of a step could be read, at the copy rate measured now."""
        rate = self.device.measure_copy_bytes_per_s() / self.weights.bytes_per_token() * batch
        name = "all weights read once, at the copy rate beside it"
        return {"name": name, "metric": "tokens_per_s", "value": rate}

    def close(self) -> None:
        """Releases everything that takes memory."""
        self.adapters.clear()
        for _, scheduler, _ in self._decoders.values():
            scheduler.close()
        if not self.device.cpu:
            torch.cuda.synchronize()
        for name in (
            "_decoders",
            "scheduler",
            "stepper",
            "rows",
            "cache",
            "model",
            "weights",
            "adapters",
        ):
            delattr(self, name)
