"""The steps of smoke.py: each gives figures by name, from single runs."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import shutil
import statistics
import subprocess
import sys
import time
import unittest
from collections.abc import Callable, Iterator
from typing import Any

import torch
from blocks import StageSession
from decode_loop import PROMPT, DecodeLoop
from device import Device
from journal import CHECKOUT
from variants import MODEL

Found = dict[str, Any]

RUNS, TOKENS, CPU_TOKENS = 3, 160, 12
# Over so many tokens a step is compared with another form of itself.
COMPARED, CPU_COMPARED = 200, 12
DEVICE_TESTS = ("test_runtime", "test_decode", "test_online", "test_ring", "test_ring_ckks")
SANITIZED = ("test_decode", "test_sample", "test_online", "test_ring")
SANITIZER_TOOLS = ("memcheck", "racecheck", "synccheck")


def silent_session(cpu: bool) -> StageSession:
    """A session whose lines go nowhere: smoke has no journal."""
    return StageSession(lambda _: None, {}, 7, time.monotonic() + 600, time.monotonic(), cpu)


def environment(cpu: bool) -> Found:
    """Versions, the card, and its upper bounds."""
    from confide.cuda import nvrtc
    from stages import ceilings

    found: Found = {"python": sys.version.split()[0], "torch": torch.__version__}
    with contextlib.suppress(nvrtc.NvrtcMissing):
        found["nvrtc"] = ".".join(map(str, nvrtc.version()))
    found["cubins"] = "CONFIDE_CUBINS" in os.environ
    if not cpu:
        free, total = torch.cuda.mem_get_info()
        major, minor = torch.cuda.get_device_capability(0)
        found |= {"card": torch.cuda.get_device_name(0), "architecture": f"sm_{major}{minor}"}
        found |= {"free_gib": round(free / 2**30, 1), "total_gib": round(total / 2**30, 1)}
    device, side = Device(cpu), 128 if cpu else 8192
    found["copy_gib_per_s"] = round(device.measure_copy_bytes_per_s() / 2**30, 1)
    device.free_buffers()
    makers = {
        "bf16": ceilings.make_bf16_matmul,
        "fp8": ceilings.make_fp8_matmul,
        "int8": ceilings.make_int8_matmul,
    }
    for name, make in makers.items():
        try:
            took_ms = device.time_ms(make(device, side), 5)
        except (RuntimeError, NotImplementedError, AttributeError) as error:
            found[f"{name}_fault"] = str(error).splitlines()[0][:120]
        else:
            found[f"{name}_tera_per_s"] = round(2 * side**3 / (took_ms / 1e3) / 1e12, 3)
    return found


def base_by_torch(cpu: bool) -> Found:
    """Rates of the base by torch."""
    return measure_base(cpu, "decoder-torch", (1, 32))


def base_by_kernels(cpu: bool) -> Found:
    """Rates of the base by our kernels, and its share of the time in which all weights are read."""
    return measure_base(cpu, "decoder-kernels", (1, 8))


def measure_base(cpu: bool, decoder: str, batches: tuple[int, ...]) -> Found:
    """The median rate of a few runs at each batch."""
    found: Found = {}
    for batch in batches:
        loop = DecodeLoop(Device(cpu), min(batch, 2) if cpu else batch)
        loop.use_decoder(decoder)
        tokens = CPU_TOKENS if cpu else TOKENS
        began = time.perf_counter()
        loop.run(1, tokens, PROMPT if not cpu else 8)
        found[f"batch_{batch}_first_run_s"] = round(time.perf_counter() - began, 2)
        runs = [loop.run(seed, tokens, PROMPT if not cpu else 8) for seed in range(RUNS)]
        rate = statistics.median(one.tokens / one.seconds for one in runs)
        found[f"batch_{batch}_tokens_per_s"] = round(rate, 1)
        floor = loop.weight_read_floor(loop.slots)["value"]
        found[f"batch_{batch}_share_of_floor"] = round(rate / floor, 4)
        loop.close()
    return found


def transformers(cpu: bool) -> Found:
    """The rate of generate(), eager."""
    from stages import generate

    device, tokens = Device(cpu), 8 if cpu else 64
    peer = generate.make_transformers_model(device, cpu)
    prompt = torch.zeros(1, 16, dtype=torch.int64, device=device.torch_device)

    def work() -> None:
        peer.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=tokens,
                      min_new_tokens=tokens, pad_token_id=0)  # fmt: skip

    work()
    took_ms = statistics.median(device.time_wall_ms(work) for _ in range(RUNS))
    return {"tokens_per_s": round(tokens / took_ms * 1e3, 1)}


def kernels(cpu: bool) -> Found:
    """The relative error of each kernel of a step against torch in float64, and the microseconds of both."""
    loop = DecodeLoop(Device(cpu), 1)
    loop.use_decoder("decoder-kernels")
    model, config = loop.model, loop.config
    layer: Any = loop.weights.layers[0]
    head: Any = loop.weights.head
    own = loop.stepper.kernels
    assert own is not None, "the decoder was chosen two lines above"
    step = own.step(loop.stepper.shape(1, 1, "greedy"))
    generator = torch.Generator().manual_seed(3)
    found: Found = {}

    def random(width: int) -> torch.Tensor:
        return torch.randn(1, width, generator=generator).to(loop.device.torch_device)

    def norm(rows: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
        wide = rows.double()
        return (
            wide
            * (wide.square().mean(-1, keepdim=True) + config.norm_epsilon).rsqrt()
            * gain.double()
        )

    def add(
        name: str,
        launch: Callable[[], None],
        target: torch.Tensor,
        right: torch.Tensor,
        peer: Callable[[], Any],
    ) -> None:
        launch()
        loop.device.synchronize()
        error = float((target.double() - right).norm() / right.norm())
        found[f"{name}_error"] = float(f"{error:.3g}")
        found[f"{name}_us"] = round(loop.device.time_ms(launch, 20) * 1e3, 1)
        found[f"{name}_torch_us"] = round(loop.device.time_ms(peer, 20) * 1e3, 1)

    for name, matrix, gain, target, kind in (
        ("qkv", layer.qkv, layer.attention_norm, step.qkv, "STORE"),
        ("o", layer.o, None, step.hidden, "ADD"),
        ("gate_up", layer.gate_up, layer.ffn_norm, step.inner, "SWIGLU"),
        ("down", layer.down, None, step.hidden, "ADD"),
        ("head", head, loop.weights.final_norm, step.out, "STORE"),
    ):
        rows = random(matrix.weight.shape[1])
        wide = norm(rows, gain) if gain is not None else rows.double()
        right = wide @ matrix.weight.double().T
        if matrix.bias is not None:
            right = right + matrix.bias.double()
        if kind == "SWIGLU":
            gate, up = right.chunk(2, dim=-1)
            right = torch.nn.functional.silu(gate) * up
        target.zero_()
        narrow = rows.to(matrix.weight.dtype)
        launch = functools.partial(step._product, matrix, rows, gain, target, kind)
        # Once: an ADD that is collect_times grows.
        add(name, launch, target, right, lambda: torch.nn.functional.linear(narrow, matrix.weight))  # noqa: B023
    normed = random(config.hidden)
    step.hidden.copy_(normed)
    add("rms_norm", lambda: step._norm(layer.ffn_norm, step.normed), step.normed, norm(normed, layer.ffn_norm),
        lambda: norm(normed, layer.ffn_norm))  # fmt: skip
    found |= compare_attention(loop, random)
    loop.close()
    return {"model": MODEL, "dtype": str(model.dtype), **found}


def compare_attention(loop: DecodeLoop, random: Callable[[int], torch.Tensor]) -> Found:
    """One layer's attention at the end of the context, by our kernel and by torch."""
    from confide.worker.kernels import KernelAttention
    from confide.worker.model import ATTENTION_FORMS

    model, cache = loop.model, loop.cache
    model.kernel_attention = KernelAttention(model, cache)
    place = cache.size.context - 1
    with torch.inference_mode():
        cache.values.normal_()
        positions = torch.full((1,), place, device=loop.device.torch_device)
        qkv = random(loop.config.query_width + 2 * loop.config.key_width).to(model.dtype)
        forms = {name: model.decode_attention(positions, cache, cache.size.context, name)
                 for name in (ATTENTION_FORMS[0], "kernel")}  # fmt: skip
        right, got = (attend(0, qkv.clone()).double() for attend in forms.values())
        error = float((got - right).norm() / right.norm())
        times = [loop.device.time_ms(lambda: attend(0, qkv), 20) * 1e3 for attend in forms.values()]  # noqa: B023
    return {"attention_error": float(f"{error:.3g}"), "attention_us": round(times[1], 1),
            "attention_torch_us": round(times[0], 1)}  # fmt: skip


def decode_step(cpu: bool) -> Found:
    """Whether forms of the same step agree over many tokens: tokens, the last logits and the whole cache."""
    tokens = CPU_COMPARED if cpu else COMPARED

    def decode(decoder: str, graphs: bool = True) -> tuple[list[int], torch.Tensor, torch.Tensor]:
        loop = DecodeLoop(Device(cpu), 1, context=PROMPT + tokens + 8)
        loop.use_decoder(decoder)
        if not graphs:
            loop.stepper.graphs = False
        decoded = loop.run(5, tokens, 8)
        (told,) = decoded.told.values()
        result = (told, loop.stepper.logits[:1].clone(), loop.cache.values.clone())
        loop.close()
        return result

    def is_equal(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
        return (
            one[0] == other[0] and torch.equal(one[1], other[1]) and torch.equal(one[2], other[2])
        )

    own = decode("decoder-kernels")
    peer = decode("decoder-torch")
    same = next((at for at, pair in enumerate(zip(own[0], peer[0])) if pair[0] != pair[1]), tokens)
    found: Found = {"tokens": tokens, "greedy_tokens_equal_to_torch": same}
    found["eager_bit_equal"] = is_equal(own, decode("decoder-kernels", graphs=False))
    found["in_turn_bit_equal"] = is_equal(own, decode("decoder-kernels-in-turn"))
    if not found["eager_bit_equal"] or not found["in_turn_bit_equal"]:
        print(found, file=sys.stderr)
        raise SystemExit("a form of the step differs from the recorded one")
    return found


def device_tests(cpu: bool) -> Found:
    """The outcome of each file of the kernels' tests; on a card their CPU forms are left out."""
    if not cpu:
        os.environ["CONFIDE_TEST_DEVICES"] = "cuda"
    found: Found = {}
    for name in DEVICE_TESTS[:2] if cpu else DEVICE_TESTS:
        suite = unittest.defaultTestLoader.loadTestsFromName(f"confide.cuda.tests.{name}")
        out = io.StringIO()
        result = unittest.TextTestRunner(out).run(suite)
        found[name] = f"{result.testsRun} run, {len(result.failures) + len(result.errors)} failed"
        print(out.getvalue(), file=sys.stderr)
        if not result.wasSuccessful():
            found[f"{name}_first"] = (result.failures + result.errors)[0][1].splitlines()[-1][:200]
    return found


def adapters(cpu: bool) -> Found:
    """Rates with each kind of adapter in one process, and the card's time in each kernel of a token."""
    import steps
    from arms import AdapterKit

    session = silent_session(cpu)
    found: Found = {}
    loop = DecodeLoop(Device(cpu), 1)
    loop.use_decoder("decoder-torch" if cpu else "decoder-kernels")
    kit, tokens = AdapterKit(session, loop), CPU_TOKENS if cpu else TOKENS
    makers: dict[str, Callable[[], Any]] = {
        "final_hidden": kit.load_final_hidden,
        "one_graph": kit.load_one_graph,
        "ckks_slots": lambda: steps.CkksAdapter(loop.device, loop.config),
    }
    for name, make in makers.items():
        try:
            held = make()
            loop.run(1, tokens, 8, [held])
            decoded = loop.run(2, tokens, 8, [held])
        except Exception as error:  # One kind that breaks is told, and the others are tried.
            found[f"{name}_fault"] = f"{type(error).__name__}: {error}"[:200]
            continue
        found[f"{name}_tokens_per_s"] = round(decoded.tokens / decoded.seconds, 1)
        found[f"{name}_kernels_us"] = time_kernels(loop, held, tokens, cpu)
    kit.close()
    return found


def time_kernels(loop: DecodeLoop, held: Any, tokens: int, cpu: bool) -> dict[str, float]:
    """Microseconds of a token by kernel, the ten longest, by torch's profiler; of a rehearsal none."""
    if cpu:
        return {}
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        loop.run(3, tokens, 8, [held])
    rows = sorted(profiled.key_averages(), key=lambda row: -row.device_time_total)[:10]
    return {row.key[:60]: round(row.device_time_total / tokens, 2) for row in rows}


def ipc(cpu: bool) -> Found:
    """Microseconds of the parts of a round trip between two processes, at the side that asks."""
    from arms import AdapterKit
    from confide.blind import lane, online_step

    loop = DecodeLoop(Device(cpu), 1)
    loop.use_decoder("decoder-torch" if cpu else "decoder-kernels")
    kit, tokens = AdapterKit(silent_session(cpu), loop), CPU_TOKENS if cpu else TOKENS
    held: Any = kit.load_masked("ipc", "ipc")
    loop.run(1, tokens, 8, [held])
    parts = {"mask": (online_step.OnlineStep, "mask_into"), "ask": (lane.Lane, "send_request"),
             "unmask": (online_step.OnlineStep, "unmask_words"), "add": (online_step.OnlineStep, "add")}  # fmt: skip
    with contextlib.ExitStack() as stack:
        times = {name: stack.enter_context(collect_times(*place)) for name, place in parts.items()}
        decoded = loop.run(2, tokens, 8, [held])
    found: Found = {"tokens_per_s": round(decoded.tokens / decoded.seconds, 1)}
    for name, each in times.items():
        found[f"{name}_us"] = round(statistics.median(each) * 1e6, 1) if each else None
        found[f"{name}_calls_per_token"] = round(len(each) / tokens, 1)
    held.close()
    kit.close()
    return found


@contextlib.contextmanager
def collect_times(owner: type, name: str) -> Iterator[list[float]]:
    """Collects the seconds of each call of a method."""
    original, seconds = getattr(owner, name), []

    @functools.wraps(original)
    def call(*args: Any, **more: Any) -> Any:
        began = time.perf_counter()
        try:
            return original(*args, **more)
        finally:
            seconds.append(time.perf_counter() - began)

    setattr(owner, name, call)
    try:
        yield seconds
    finally:
        setattr(owner, name, original)


def tilings(cpu: bool) -> Found:
    """The best tiling of each product and of the attention, with the microseconds of it and of the choice by shape."""
    if cpu:
        return {"note": "a rehearsal has no card to measure tilings on"}
    from confide.cuda import tune
    from confide.worker.tune import random_step

    best = tune.tune(random_step(MODEL, 1, None, "cuda:0"), 12)
    return {
        one.name: [str(one.chosen), round(one.us, 2), round(one.by_shape_us, 2)] for one in best
    }


def sanitizer(cpu: bool) -> Found:
    """The outcome of compute-sanitizer's tools on the kernels' tests."""
    program = shutil.which(
        "compute-sanitizer", path=f"{os.environ.get('PATH', os.defpath)}:/usr/local/cuda/bin"
    )
    if cpu or program is None:
        return {"note": "a rehearsal has no card" if cpu else "compute-sanitizer is not in PATH"}
    names = [f"confide.cuda.tests.{name}" for name in SANITIZED]
    environment = os.environ | {
        "PYTHONPATH": str(CHECKOUT / "python"),
        "CONFIDE_TEST_DEVICES": "cuda",
    }
    found: Found = {}
    for tool in SANITIZER_TOOLS:
        command = [
            program,
            "--tool",
            tool,
            "--error-exitcode",
            "9",
            sys.executable,
            "-m",
            "unittest",
            *names,
        ]
        try:
            ended = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=18, check=False
            )
        except subprocess.TimeoutExpired:
            found[tool] = "no time left"
            continue
        print(ended.stdout[-4000:], ended.stderr[-4000:], file=sys.stderr)
        summary = [row for row in ended.stdout.splitlines() if "SUMMARY" in row]
        found[tool] = (
            f"status {ended.returncode}; {summary[-1].strip('= ') if summary else 'no summary'}"
        )
    return found
