"""Batches of 1, 8 and 32, larger shapes, and the memory that each takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from arms import AdapterKit, base_arms, decode_arm
from blocks import Arm, ArmFailed, Measurement, StageSession
from decode_loop import DecodeLoop, model_config
from device import Device, release_cached_memory
from probe import choose_decoder
from variants import CASES, MODEL

# Next to the weights: cache, graphs, workspaces, the copy's buffers.
SPARE_BYTES = 8 << 30
GROUPED, GROUPED_BATCH = 8, 32


def run(session: StageSession) -> None:
    device = Device(session.cpu)
    for model, batches, bits in CASES:
        for batch in batches:
            if session.remaining_s() < 3.0:
                session.report_not_run("batch", f"{model}, batch {batch}: no time left")
                continue
            # A tiny shape is narrower than a group of four-bit weights.
            measure_base(session, device, model, batch, 0 if session.cpu else bits)
    # Last: what prepares masks takes longest, and the others do not wait for it.
    for batch in (1, GROUPED_BATCH):
        if session.remaining_s() > 3.0:
            measure_with_loop(session, device, MODEL, batch, 0, measure_private)


def measure_base(session: StageSession, device: Device, model: str, batch: int, bits: int) -> None:
    """Measures the base decode, and memory by use."""

    def work(session: StageSession, loop: DecodeLoop, params: dict[str, Any], before: int) -> None:
        arms = base_decode_arm(loop, batch, session.cpu).with_twin()
        session.run_case_blocks(
            "batch", params, arms, blocks=None if batch == 32 and model == MODEL else 3
        )
        session.run_case_blocks("memory", params, [memory_arm(loop, session.cpu, before)])

    measure_with_loop(session, device, model, batch, bits, work)


def measure_with_loop(
    session: StageSession,
    device: Device,
    model: str,
    batch: int,
    bits: int,
    work: Callable[..., None],
) -> None:
    """Does `work` with a loop, its parameters, and the bytes that were in use before it."""
    params = {"model": model, "batch": batch}
    loop, before = None, used_device_bytes(session.cpu)
    try:
        # A rehearsal needs no more than two sessions to take every turn.
        slots = min(batch, 2) if session.cpu else batch
        layers = max_layers_in_memory(session, model, bits)
        loop = DecodeLoop(device, slots, model, layers=layers, bits=bits)
        choose_decoder(session, loop)
        work(session, loop, params, before)
    except torch.OutOfMemoryError as error:
        reason = f"{model}, batch {batch}: out of memory: {str(error).splitlines()[0][:120]}"
        session.report_not_run("batch", reason)
        session.print_line(reason)
    finally:
        if loop is not None:
            loop.close()
        device.free_buffers()
        del loop
        release_cached_memory(session.cpu)


def measure_private(
    session: StageSession, loop: DecodeLoop, params: dict[str, Any], _before: int
) -> None:
    """At batch 1 the memory of a private adapter; at batch 32 eight of them over all sessions, in one grouped step."""
    count, kit = (
        (1 if params["batch"] == 1 else min(GROUPED, loop.slots)),
        AdapterKit(session, loop),
    )
    before = used_device_bytes(session.cpu)
    # The arm by which the figures go: of memory at batch 1, of the grouped step at batch 32.
    bench, name = ("memory", "one-graph") if params["batch"] == 1 else ("sessions", "grouped")

    def make() -> list[Any]:
        return [kit.load_masked(f"private-{index}", "one-graph") for index in range(count)]

    held = session.make_or_leave_out(bench, name, make)
    kit.close()
    if held is None:
        return
    if count == 1:
        masks = float(max(0, used_device_bytes(session.cpu) - before))
        arm = Arm("one-graph", lambda _: Measurement([{"masks_bytes": masks}]), says=loop.says)
        session.run_case_blocks("memory", params, [arm])
        return
    each = [held[slot % count] for slot in range(loop.slots)]
    arms = [*base_arms(session, loop), decode_arm(session, loop, "grouped", each)]
    session.run_case_blocks("sessions", params, arms, blocks=3)


def max_layers_in_memory(session: StageSession, model: str, bits: int) -> int | None:
    """The number of layers whose weights fit the card; None if all do."""
    if session.cpu:
        return None
    shape, (free, _) = model_config(model, False), torch.cuda.mem_get_info()
    per_weight = 0.5625 if bits == 4 else 2.0
    embedding = 2 * shape.vocabulary * shape.hidden * (1 if shape.tied else 2)
    of_layers = (shape.parameters() - embedding / 2) * per_weight
    room = free - SPARE_BYTES - embedding
    return None if of_layers <= room else max(1, int(shape.layers * room / of_layers))


def base_decode_arm(loop: DecodeLoop, batch: int, cpu: bool) -> Arm:
    """The decode loop of `batch` sessions."""
    tokens = 8 if cpu else 96

    def run_once(seed: int) -> Measurement:
        floor = loop.weight_read_floor(batch)
        decoded = loop.run(seed, tokens)
        if decoded.seconds <= 0:
            raise ArmFailed("no time passed")
        rate = decoded.tokens / decoded.seconds
        metrics = {"tokens_per_s": rate, "token_ms": 1e3 * batch / rate}
        return Measurement([metrics], floor=floor, marks=list_marks(loop))

    return Arm("base", run_once, says=loop.says, version=torch.__version__, guarantee="none")


def list_marks(loop: DecodeLoop) -> list[str]:
    """The remarks that a reader of the figures needs."""
    found = [f"truncated to {loop.config.layers} layers"] if loop.truncated else []
    return found + (["weights in 4 bits"] if loop.weights.bits else [])


def memory_arm(loop: DecodeLoop, cpu: bool, before: int) -> Arm:
    """Bytes by use; a figure, without a clock."""

    def read(_seed: int) -> Measurement:
        weights, cache = loop.weights.bytes(), loop.cache.bytes()
        loop.device.free_buffers()
        other = max(0, used_device_bytes(cpu) - before - weights - cache)
        sizes = {"weights_bytes": weights, "cache_bytes": cache, "other_bytes": other}
        metrics = {name: float(value) for name, value in sizes.items()}
        return Measurement([metrics], marks=list_marks(loop))

    return Arm("base", read, says=loop.says)


def used_device_bytes(cpu: bool) -> int:
    """Bytes of the card in use by everybody; 0 in a rehearsal."""
    if cpu:
        return 0
    free, total = torch.cuda.mem_get_info()
    return total - free
