"""The card without any code of ours: the upper bounds of later rows."""

from __future__ import annotations

from collections.abc import Callable

import torch
from blocks import Arm, Measurement, StageSession
from device import Device


def run(session: StageSession) -> None:
    device = Device(session.cpu)
    side = 128 if session.cpu else 8192
    products = {
        "bf16_tflop_per_s": make_bf16_matmul(device, side),
        "fp8_tflop_per_s": make_fp8_matmul(device, side),
        "int8_top_per_s": make_int8_matmul(device, side),
    }
    usable: dict[str, Callable[[], object]] = {}
    for name, work in products.items():
        try:
            work()
            device.synchronize()
            usable[name] = work
        except (RuntimeError, NotImplementedError, AttributeError) as error:
            session.print_line(f"ceilings: {name} is left out: {str(error).splitlines()[0][:100]}")

    def measure(_seed: int) -> Measurement:
        metrics = {"copy_mib_per_s": device.measure_copy_bytes_per_s() / 2**20}
        for name, work in usable.items():
            metrics[name] = 2 * side**3 / (device.time_ms(work, 10) / 1e3) / 1e12
        found.append(metrics)
        return Measurement([metrics])

    found: list[dict[str, float]] = []
    says = "cpu" if session.cpu else torch.cuda.get_device_name(0)
    arm = Arm("card", measure, says=says, version=f"torch {torch.__version__}")
    session.run_case_blocks("ceilings", {}, arm.with_twin())
    for name in found[-1]:
        session.print_line(f"{name}: {found[-1][name]:.4g}")
    session.share_fact("copy_bytes_per_s", found[-1]["copy_mib_per_s"] * 2**20)


def random_matrix(device: Device, side: int, dtype: torch.dtype) -> torch.Tensor:
    """Random data: a product of zeros has been seen to run 13 % faster."""
    return torch.randn(side, side, device=device.torch_device, dtype=torch.float32).to(dtype)


def make_bf16_matmul(device: Device, side: int) -> Callable[[], object]:
    def work() -> object:
        return torch.matmul(left, right, out=out)

    left, right = (random_matrix(device, side, torch.bfloat16) for _ in range(2))
    out = torch.empty_like(left)
    return work


def make_fp8_matmul(device: Device, side: int) -> Callable[[], object]:
    def work() -> object:
        return torch._scaled_mm(left, right.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)

    left, right = (random_matrix(device, side, torch.float8_e4m3fn) for _ in range(2))
    one = torch.ones((), device=device.torch_device, dtype=torch.float32)
    return work


def make_int8_matmul(device: Device, side: int) -> Callable[[], object]:
    def work() -> object:
        # The layout that int8 products are fast in: both run along the summed side.
        return torch._int_mm(left, right.t())

    def make() -> torch.Tensor:
        return torch.randint(-127, 128, (side, side), device=device.torch_device, dtype=torch.int8)

    left, right = make(), make()
    return work
