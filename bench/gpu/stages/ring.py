"""Micro-benchmarks of the ring's kernels and the online step: one operation of a batch.

Everything is built and uploaded before the clock runs: what is timed are launches, with no copy between host and card.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
from blocks import Arm, Measurement, StageSession
from confide.cuda import ciphertexts, ring
from device import Device

SETS = {
    1024: "rlwe-1024-q25",
    2048: "rlwe-2048-q50",
    4096: "rlwe-4096-q100-flood40",
    8192: "rlwe-8192-q200-flood40",
}
ROWS, COLUMNS = 32, 1536
SERVED = 4096

Work = tuple[Callable[[], Any], int]


def run(session: StageSession) -> None:
    device = Device(session.cpu)
    # First, since it is what a token takes; the others are parts of what is done beforehand.
    measure(session, device, "online-step", SERVED, lambda: online_step(device))
    for n in (SERVED,) if session.cpu else (SERVED, 2048, 8192):
        context = ring.Context.dangerous_named(SETS[n], device=device.name)
        for operation, make in ring_operations(context, session.cpu).items():
            if session.remaining_s() < 1.0:
                session.report_not_run("ring", f"{operation}, N = {n}: no time left")
                continue
            measure(session, device, operation, n, make)


def measure(
    session: StageSession, device: Device, operation: str, n: int, make: Callable[[], Work]
) -> None:
    def make_and_warm_up() -> Work:
        work, count = make()
        work()
        device.synchronize()
        return work, count

    found = session.make_or_leave_out("ring", "kernels", make_and_warm_up)
    if found is None:
        return
    work, count = found

    def time_launch(_seed: int) -> Measurement:
        launch_us = device.time_ms(work, 20) * 1e3
        return Measurement([{"operation_us": launch_us / count, "launch_us": launch_us}])

    arm = Arm("kernels", time_launch, says=f"{count} in a batch")
    session.run_case_blocks("ring", {"operation": operation, "n": n}, arm.with_twin())


def ring_operations(context: Any, cpu: bool) -> dict[str, Callable[[], Work]]:
    """The operations at this ring; answers only where the parameters flood them."""
    count = 2 if cpu else 1024
    rows = 2 if cpu else ROWS
    key = ring.SecretKey.random(context)
    shape = (count, context.n)
    numbers = numpy.random.default_rng(3).integers(0, 1 << 16, shape, dtype=numpy.uint64)
    messages = to_context_array(context, numbers)

    def transforms(forward: bool) -> Work:
        encrypted = ring.Encryptor(key).encrypt(messages)
        values = encrypted.c0
        function = context.ntt_forward if forward else context.ntt_inverse
        return lambda: function(values), count * context.limbs

    def encrypt() -> Work:
        encryptor = ring.Encryptor(key)
        return lambda: encryptor.encrypt(messages), count

    def expand() -> Work:
        seeds = to_context_array(
            context,
            numpy.random.default_rng(5).integers(0, 1 << 32, (count, 8)).astype(numpy.uint32),
        )
        indices = to_context_array(context, numpy.arange(count, dtype=numpy.uint32))
        return lambda: ciphertexts.expand_seeds(context, seeds, indices), count

    def masks() -> Work:
        stream = ring.MaskStream(bytes(range(32)), context.device)
        return lambda: stream.rows(0, count, COLUMNS, 34), count * COLUMNS // context.n or 1

    def make_sums(columns: int) -> tuple[ring.ScalarProducts, Callable[[], None]]:
        """Sums of `rows` products, and what adds all columns to them once."""
        c0, c1 = ring.Encryptor(key).encrypt(messages[:columns]).expand()
        wide = numpy.random.default_rng(4).integers(-100, 101, (rows, columns)).astype(numpy.int16)
        made = ring.ScalarProducts(context, wide)

        def add() -> None:
            made.added = 0
            made.add(0, c0, c1)

        return made, add

    def products() -> Work:
        return make_sums(count)[1], count

    def answers() -> Work:
        made, add = make_sums(1)
        public, drawn = key.public_key(), ring.Rng.from_seed(bytes(32), context.device)
        plain = to_context_array(context, numpy.zeros((rows, context.n), dtype=numpy.uint64))
        add()

        def work() -> Any:
            # The sums are zeros after the first answer, which costs the same.
            made.added = 1
            return made.answers(public, plain, drawn)

        return work, rows

    def decrypt() -> Work:
        work, count_of = answers()
        small = work()
        return lambda: key.decrypt(small), count_of

    found = {"ntt": lambda: transforms(True), "inverse-ntt": lambda: transforms(False), "encrypt": encrypt,
             "expand": expand, "mask-stream": masks}  # fmt: skip
    if context.n >= SERVED:
        found |= {"scalar-products": products, "answers": answers, "decrypt": decrypt}
    return found


def online_step(device: Device) -> Work:
    """One vector of 1,536 through both roles of one input: quantise, mask, multiply, unmask, B."""
    from steps import MaskedStep

    return MaskedStep(device).run_row, 1


def to_context_array(context: Any, values: numpy.ndarray) -> Any:
    """The values as an array on the context's device."""
    if context.device == "cpu":
        return values
    import torch

    signed = values.view(numpy.int64) if values.dtype == numpy.uint64 else values
    return torch.from_numpy(signed).to(context.device)
