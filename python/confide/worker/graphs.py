"""One decode step: recorded as CUDA graphs on a CUDA device, run as it stands elsewhere.

A step is recorded once for each *shape*: rows and context in buckets, how tokens are chosen, what adapters add. Where
an adapter has to be waited for, the step is a chain of graphs with the waiting between them. Token numbers, positions
and counters stay on the device; what was chosen is copied to pinned memory, with one event for each step, so that the
host launches the next step before it reads this one's tokens.
"""

from __future__ import annotations

import contextlib
import gc
import time
from collections import OrderedDict
from collections.abc import Callable, Generator, Hashable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from .cache import ROUND, Cache
from .deltas import NO_POINTS, Point, Points
from .model import ATTENTION_FORMS, Model
from .rows import FAST, SLOW, ChooseGreedy, Rows
from .sample import greedy

BATCHES = (1, 2, 4, 8, 16, 32, 64)
CONTEXTS = (256, 512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072)
# Shapes with adapters of one generation come and go; the least used graphs are forgotten beyond these.
GRAPHS_MAX = 256
# Steps whose tokens the host may not have read yet.
RING = 8
TRIALS = 16


@dataclass(frozen=True)
class Shape:
    """What a recorded step depends on. `adapters` is empty or the graph keys of what adds; `waits` says that the
    adapters are called between graphs.
    """

    batch: int
    context: int
    kind: str
    group: int = FAST
    points: Points = NO_POINTS
    adapters: Hashable = ()
    waits: bool = False


@dataclass
class TokenCopy:
    """Tokens that a step chose, on their way to the host."""

    values: Tensor
    event: Any

    def read(self) -> list[int]:
        """Waits for the tokens; gives one for each row, NOT_FOUND where no logit was a number."""
        if self.event is not None:
            self.event.synchronize()
        return self.values.tolist()


@dataclass
class RecordedStep:
    """A chain of graphs with the points between them (one fewer), and the logits that a replay leaves."""

    graphs: list[Any]
    points: list[Point]
    logits: Tensor


@dataclass
class RecordingCounts:
    """What recording has taken: shapes recorded, seconds, steps run, and the form of attention by size."""

    recorded: int = 0
    seconds: float = 0.0
    steps: int = 0
    forms: dict[str, str] = field(default_factory=dict)


# Adds what adapters give at a point. The flag tells a rehearsal, of which no adapter may keep count.
Add = Callable[[Point, bool], None]


def refuse_point(point: Point, rehearsal: bool) -> None:
    """Stands in for what adds where a step has no points."""
    raise RuntimeError(
        f"a step stopped at {point.source} of layer {point.layer} and no adapter adds there"
    )


class Stepper:
    """Runs decode steps of a model over its cache and rows."""

    def __init__(
        self,
        model: Model,
        cache: Cache,
        rows: Rows,
        graphs: bool = True,
        decoder: str = "torch",
        overlap: bool = True,
    ) -> None:
        """decoder: `torch` or `kernels`; of kernels `overlap` as in `KernelDecoder`."""
        self.model, self.cache, self.rows = model, cache, rows
        self.device = model.device
        self.graphs = graphs and can_record(self.device)
        self.batches = step_buckets(BATCHES, cache.size.slots)
        self.contexts = step_buckets(CONTEXTS, -(-cache.size.context // ROUND) * ROUND)
        self.counts = RecordingCounts()
        self.recorded: OrderedDict[Shape, RecordedStep] = OrderedDict()
        self.forms: dict[tuple[int, int], str] = {}
        self.shadow: Rows | None = None
        self.next = 0
        # Those of the latest step [batch, vocabulary], until the next one runs.
        self.logits = torch.empty(0)
        # Whether what adapters add is recorded now, to be replayed for others.
        self.is_recording = False
        self.ring = [self.make_pinned() for _ in range(RING)]
        self.kernels = None
        self.choose_greedy: ChooseGreedy = greedy
        if decoder == "kernels":
            from confide.cuda.sample import GreedyChoice

            from .kernels import KernelAttention, KernelDecoder

            device = str(self.device)
            self.choose_greedy = GreedyChoice(device, cache.size.slots, rows.vocabulary)
            self.kernels = KernelDecoder(model, cache, overlap)
            model.kernel_attention = KernelAttention(model, cache)
        if self.graphs:
            # Recorded kernels keep the stream's priority: masks that are prepared meanwhile give way to tokens.
            self.stream = torch.cuda.Stream(self.device, priority=-1)
            # A slow step waits between its graphs while fast ones run, so they share no memory.
            self.pools = {
                FAST: torch.cuda.graph_pool_handle(),
                SLOW: torch.cuda.graph_pool_handle(),
            }
            self.anchors = [self.make_anchor(pool) for pool in self.pools.values()]
            slots, width = cache.size.slots, rows.draws.shape[1]
            self.shadow = Rows(slots, width, rows.vocabulary, rows.idle, self.device)

    def make_anchor(self, pool: Any) -> Any:
        """Makes a graph that keeps a pool: torch takes a pool without graphs for one that is over, though libraries may
        hold memory in it, and refuses the next graph.
        """
        graph, mark = torch.cuda.CUDAGraph(), torch.zeros(1, device=self.device)
        self.stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self.stream):
            mark.add_(1)
            graph.capture_begin(pool=pool, capture_error_mode="thread_local")
            mark.add_(1)
            graph.capture_end()
        return graph, mark

    def record_without_adapters(
        self, kinds: tuple[str, ...] = ("greedy", "sampled"), contexts: tuple[int, ...] = ()
    ) -> None:
        """Records the shapes without adapters beforehand, so that no request waits for it."""
        if not self.graphs:
            return
        for batch in reversed(self.batches):
            for context in contexts or self.contexts:
                for kind in kinds:
                    shape = self.shape(batch, context, kind)
                    if shape not in self.recorded:
                        self.record(shape, refuse_point)
        torch.cuda.synchronize(self.device)

    def shape(self, rows: int, tokens: int, kind: str, **more: Any) -> Shape:
        """Gives the smallest shape that holds so many rows with so many tokens before and at them."""
        batch = next(bucket for bucket in self.batches if bucket >= rows)
        context = next(bucket for bucket in self.contexts if bucket >= tokens)
        shape = Shape(batch, context, kind, **more)
        if self.kernels is not None and self.kernels.supports(shape):
            # These read each row's own length on the device: one shape serves all contexts.
            return replace(shape, context=self.contexts[-1])
        return shape

    def step(self, shape: Shape, add: Add = refuse_point) -> TokenCopy:
        """Runs one step. `add` is called at each point while a shape is recorded, and at each step where it waits."""
        self.counts.steps += 1
        if not self.graphs:
            with torch.inference_mode():
                for point in self.run_body(shape, self.rows):
                    add(point, False)
        else:
            recorded = self.recorded.get(shape) or self.record(shape, add)
            self.recorded.move_to_end(shape)
            self.replay(shape, recorded, add)
        return self.copy_chosen(slice(0, shape.batch), shape.group)

    def copy_chosen(self, slots: slice, group: int) -> TokenCopy:
        """Starts the copy of what was chosen for these slots to the host."""
        source = self.rows.chosen[group, slots]
        target = self.ring[self.next][: source.shape[0]]
        self.next = (self.next + 1) % RING
        return self.start_copy(source, target)

    def start_copy(self, source: Tensor, target: Tensor) -> TokenCopy:
        """Copies `source` into `target` without waiting and returns what can be read after its event."""
        target.copy_(source, non_blocking=True)
        if self.device.type != "cuda":
            return TokenCopy(target.clone(), None)
        event = torch.cuda.Event()
        event.record()
        return TokenCopy(target, event)

    def run_body(self, shape: Shape, rows: Rows) -> Generator[Point, None, None]:
        """Runs the step itself, stopping at the shape's points."""
        batch, tokens = shape.batch, rows.token[shape.group, : shape.batch]
        positions = rows.position[shape.group, :batch]
        if self.kernels is not None and self.kernels.supports(shape):
            logits = yield from self.kernels.decode(tokens, positions, shape)
        else:
            form = self.attention_form(batch, shape.context)
            logits = yield from self.model.decode(
                tokens, positions, self.cache, shape.context, shape.points, form
            )
        self.logits = logits
        rows.advance(batch, shape.group, logits, shape.kind, self.choose_greedy)

    def replay(self, shape: Shape, recorded: RecordedStep, add: Add) -> None:
        """Replays the recorded graphs of a step, with what `add` does between them."""
        self.logits = recorded.logits
        for index, graph in enumerate(recorded.graphs):
            graph.replay()
            if index < len(recorded.points):
                add(recorded.points[index], False)

    def record(self, shape: Shape, add: Add) -> RecordedStep:
        """Records a shape. Nothing runs on the true rows; the one run that libraries need is on idle ones."""
        began, shadow = time.monotonic(), self.shadow
        if shadow is None:
            raise RuntimeError(f"device {self.device}: steps cannot be recorded")
        if self.kernels is None or not self.kernels.supports(shape):
            self.attention_form(shape.batch, shape.context)
        self.is_recording = not shape.waits
        try:
            with torch.inference_mode():
                for point in self.run_body(shape, shadow):
                    if not shape.waits:
                        add(point, True)
                self.stream.wait_stream(torch.cuda.current_stream(self.device))
                with torch.cuda.stream(self.stream):
                    recorded = self.capture(shape, add)
                torch.cuda.current_stream(self.device).wait_stream(self.stream)
        finally:
            self.is_recording = False
        while len(self.recorded) >= GRAPHS_MAX:
            self.forget_oldest()
        self.recorded[shape] = recorded
        self.counts.recorded += 1
        self.counts.seconds += time.monotonic() - began
        return recorded

    def capture(self, shape: Shape, add: Add) -> RecordedStep:
        """Runs the body once under capture, cut at each point that has to be waited for."""
        run, ended = self.run_body(shape, self.rows), False
        graphs: list[Any] = []
        points: list[Point] = []
        # What the collector frees in the middle of a capture may be a graph or an event, which breaks the capture.
        gc.disable()
        try:
            while not ended:
                ended = self.capture_part(run, shape, graphs, points, add)
        finally:
            gc.enable()
        return RecordedStep(graphs, points, self.logits)

    def capture_part(
        self,
        run: Generator[Point, None, None],
        shape: Shape,
        graphs: list[Any],
        points: list[Point],
        add: Add,
    ) -> bool:
        """Captures up to the next point that has to be waited for, or to the end; says whether it is the end."""
        graph, ended = torch.cuda.CUDAGraph(), False
        graph.capture_begin(pool=self.pools[shape.group], capture_error_mode="thread_local")
        try:
            while True:
                point = next(run)
                if shape.waits:
                    points.append(point)
                    break
                add(point, False)
        except StopIteration:
            ended = True
        except BaseException:
            # What went wrong may have spoilt the capture too; the first of the two is what has to be told.
            with contextlib.suppress(RuntimeError):
                graph.capture_end()
            raise
        graph.capture_end()
        graphs.append(graph)
        return ended

    def forget_oldest(self) -> None:
        """Drops the graph that was used longest ago, once the device has done with it."""
        torch.cuda.synchronize(self.device)
        self.recorded.popitem(last=False)

    def forget_graphs(self, adapters: Callable[[Hashable], bool]) -> None:
        """Drops graphs whose adapters are of no further use."""
        gone = [shape for shape in self.recorded if shape.adapters and adapters(shape.adapters)]
        if gone:
            torch.cuda.synchronize(self.device)
        for shape in gone:
            del self.recorded[shape]

    def attention_form(self, batch: int, context: int) -> str:
        """Chooses the form of attention at this size: on CUDA the one that took less time when first asked."""
        if (batch, context) not in self.forms:
            forms = (
                ATTENTION_FORMS
                if self.model.kernel_attention is None
                else (*ATTENTION_FORMS, "kernel")
            )
            form = forms[0] if self.device.type != "cuda" else forms[-1]
            if self.graphs and self.device.type == "cuda":
                times = {form: self.attention_ms(batch, context, form) for form in forms}
                form = min(times, key=lambda form: times[form])
                told = ", ".join(f"{name} {ms * 1e3:.1f} us" for name, ms in times.items())
                self.counts.forms[f"{batch}x{context}"] = f"{form} ({told})"
            self.forms[batch, context] = form
        return self.forms[batch, context]

    def attention_ms(self, batch: int, context: int, form: str) -> float:
        """Milliseconds of one layer's attention at this size, positions and cache included: TRIALS of them in a graph,
        since launched one by one they would take the host's time. Infinite where the form cannot be recorded.
        """
        config, model = self.model.config, self.model
        width = config.query_width + 2 * config.key_width
        qkv = torch.zeros(batch, width, device=self.device, dtype=model.dtype)
        # All rows stand at the end of the context; what they write there is put back.
        place = min(context, self.cache.size.context) - 1
        positions = torch.full((batch,), place, device=self.device)
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        kept = self.cache.values[0, :, :batch, :, place].clone()
        try:
            with torch.inference_mode():
                attend = model.decode_attention(positions, self.cache, context, form)
                attend(0, qkv)
                torch.cuda.synchronize(self.device)
                graph = torch.cuda.CUDAGraph()
                # Other threads prepare masks and may take memory meanwhile.
                with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                    for _ in range(TRIALS):
                        attend(0, qkv)
                graph.replay()
                first.record()
                graph.replay()
                last.record()
                last.synchronize()
        except RuntimeError:
            return float("inf")
        finally:
            # Also after a failure: the place may be that of a longer text in the other group.
            self.cache.values[0, :, :batch, :, place].copy_(kept)
        return first.elapsed_time(last) / TRIALS

    def make_pinned(self) -> Tensor:
        """Returns zeros int64 [slots] in host memory, pinned where the device is a CUDA device."""
        pin = self.device.type == "cuda"
        return torch.zeros(self.cache.size.slots, dtype=torch.int64, pin_memory=pin)


def can_record(device: torch.device) -> bool:
    """Whether steps can be recorded on this device."""
    return device.type == "cuda"


def step_buckets(steps: tuple[int, ...], most: int) -> tuple[int, ...]:
    """Gives those of `steps` below `most`, and `most`."""
    return (*tuple(step for step in steps if step < most), most)
