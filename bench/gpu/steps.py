"""One projection by each of our schemes, for the benches `step`, `ring` and `decode`."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import adapter as made
import numpy
import torch
from blocks import Arm, ArmFailed, Measurement
from confide.cuda import ckks
from confide.worker.deltas import AdapterError
from decode_loop import model_config
from device import Device
from variants import MODEL

RANK, REPEATS = 32, 6
SCALE = made.ALPHA / made.RANK
# A rehearsal has a ring that is small enough for a CPU, and protects nothing.
DEGREE, TOY_DEGREE = 16384, 1024
TOY = {"parameters": "toy-256-q100-flood40", "dangerous_parameters": True}


class CkksLayout:
    """Report 003's step on a device: a float64 vector in, `A·x` out; recorded in a CUDA graph on a card."""

    def __init__(self, device: Device, matrix: numpy.ndarray) -> None:
        self.device, self.width = device, matrix.shape[1]
        degree = TOY_DEGREE if device.cpu else DEGREE
        self.inner = ckks.CkksSlots(ckks.Ckks(degree, device.name), matrix)
        self.guarantee = self.inner.guarantee
        self.vector = torch.zeros(self.width, dtype=torch.float64, device=device.torch_device)
        self._graph: Any = None

    def step(self) -> torch.Tensor:
        """The answer to `vector`."""
        vector = self.vector.numpy() if self.device.cpu else self.vector
        answer = self.inner.step(vector)
        return torch.from_numpy(answer) if self.device.cpu else answer

    def replay(self) -> torch.Tensor:
        """The same as `step`, by a recorded graph on a card."""
        if self.device.cpu:
            return self.step()
        if self._graph is None:
            self.step()
            torch.cuda.synchronize()
            self._graph = torch.cuda.CUDAGraph()
            # Masks are prepared on another thread meanwhile.
            with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
                self._answer = self.step()
        self._graph.replay()
        return self._answer

    def has_overflowed(self) -> bool:
        """Whether a vector did not fit the scale since the beginning. Waits for the device."""
        status = self.inner.status if self.device.cpu else self.inner.status.cpu()
        return bool(numpy.asarray(status).any())


def random_matrix(width: int, rows: int = RANK, seed: int = 7) -> numpy.ndarray:
    return numpy.random.default_rng(seed).normal(0.0, 0.02, (rows, width))


def ckks_step(device: Device) -> Arm:
    """Report 003's step by our kernels."""
    width = model_config(MODEL, device.cpu).hidden
    weights = random_matrix(width)
    layout = CkksLayout(device, weights)

    def run(seed: int) -> Measurement:
        samples = []
        for vector in numpy.random.default_rng(seed).normal(0.0, 1.0, (REPEATS, width)):
            layout.vector.copy_(torch.from_numpy(vector))
            answers: list[torch.Tensor] = []

            def replay(to: list[torch.Tensor] = answers) -> None:
                to.append(layout.replay().cpu())

            step_ms = device.time_wall_ms(replay)
            error = relative_distance(answers[0].numpy(), weights @ vector)
            samples.append({"step_ms": step_ms, "delta_error_ratio": error})
        if layout.has_overflowed() or max(one["delta_error_ratio"] for one in samples) > 1e-6:
            raise ArmFailed(f"wrong answer: {samples}")
        return Measurement(samples)

    says = f"confide CKKS N={layout.inner.ckks.n}"
    return Arm("ckks-step", run, says=says, guarantee=layout.guarantee)


class CkksAdapter:
    """Report 003's step on the last hidden state, as an adapter of the worker; key and A are in one process."""

    opens_at_once = True
    guarantee = "none"

    def __init__(self, device: Device, config: Any) -> None:
        self.name, hidden = "ckks-slots", config.hidden
        self.sites = {(0, "final_hidden"): (hidden, hidden)}
        self.layout = CkksLayout(device, random_matrix(hidden))
        factor = numpy.random.default_rng(8).normal(0.0, 0.02, (hidden, RANK)) * SCALE
        self.factor = torch.from_numpy(factor).to(device.torch_device, torch.float32)

    def open(self) -> CkksDeltas:
        return CkksDeltas(self)


class CkksDeltas:
    """One generation with the adapter. It runs kernels alone, so it is recorded together with the model."""

    capturable = True
    rehearsable = True
    guarantee = "none"

    def __init__(self, adapter: CkksAdapter) -> None:
        self.adapter = adapter
        self.graph_key = ("ckks-slots", id(adapter))

    def add(
        self, layer: int, source: str, rows: torch.Tensor, outputs: dict[str, torch.Tensor]
    ) -> None:
        """Adds the deltas one vector at a time, because the layout holds one."""
        layout, output = self.adapter.layout, outputs["final_hidden"]
        for index in range(rows.shape[0]):
            layout.vector.copy_(rows[index])
            delta = layout.step().to(torch.float32) @ self.adapter.factor.t()
            output[index].add_(delta.to(output.dtype))

    def report(self) -> dict[str, Any]:
        return {"guarantee": self.guarantee}

    def close(self) -> None:
        if self.adapter.layout.has_overflowed():
            raise AdapterError("a vector does not fit the scale", "activation")


class MaskedStep:
    """The masked step of one projection, both roles in one process, outside any model."""

    def __init__(self, device: Device) -> None:
        from confide.blind import one_graph

        self.device, self.config = device, model_config(MODEL, device.cpu)
        self._folder = tempfile.TemporaryDirectory(prefix="confide-gpu-")
        path = made.write_random_adapter(
            Path(self._folder.name) / "lora", self.config, seed=13, layers=1
        )
        self.bank = one_graph.OneGraphBank(device.name, 1)
        toy: dict[str, Any] = {"set_name": TOY["parameters"]} if device.cpu else {}
        toy |= {"dangerous_parameters": True} if device.cpu else {}
        self.adapter = one_graph.OneGraphAdapter(
            "masked", path, self.bank, mode="final-hidden", **toy
        )
        self.deltas = self.adapter.open()
        self.deltas.assign_row(0)
        self.width = self.config.hidden
        dtype = torch.float32 if device.cpu else torch.bfloat16
        self.rows = torch.zeros(1, self.width, dtype=dtype, device=device.torch_device)
        self.output = torch.zeros(1, self.width, dtype=dtype, device=device.torch_device)
        self.exact = make_exact_delta(path)

    def step(self) -> None:
        """Adds the delta onto `output`; the caller has announced the row."""
        rows, output = self.rows, self.output
        if self.device.cpu:
            rows, output = rows.numpy(), output.numpy()
        self.bank.add(0, "final_hidden", rows, {"final_hidden": output}, [])

    def run_row(self) -> None:
        """Runs one row; waits for its masks where they are not there."""
        self.deltas.before_step(1)
        self.step()


def make_exact_delta(path: Path) -> Callable[[numpy.ndarray], numpy.ndarray]:
    """Returns scale · B · A · x of layer 0's q, in float64."""
    from safetensors.torch import load_file

    tensors = load_file(path / "adapter_model.safetensors")
    at = "base_model.model.model.layers.0.self_attn.q_proj.lora_{}.weight"
    a, b = (tensors[at.format(part)].double().numpy() for part in "AB")
    return lambda vector: SCALE * (b @ (a @ vector))


def masked_step(device: Device) -> Arm:
    """The masked step, B included, with its share of the offline work."""
    masked = MaskedStep(device)
    milliseconds, tokens = masked.adapter.measure_offline()

    def run(seed: int) -> Measurement:
        samples = []
        for vector in numpy.random.default_rng(seed).normal(0.0, 1.0, (REPEATS, masked.width)):
            masked.rows.copy_(torch.from_numpy(vector)[None])
            masked.output.zero_()
            took_ms = device.time_wall_ms(masked.run_row) + milliseconds / tokens
            got = masked.output[0].double().cpu().numpy()
            right = masked.exact(masked.rows[0].double().cpu().numpy())
            samples.append({"step_ms": took_ms, "delta_error_ratio": relative_distance(got, right)})
        masked.deltas.after_step()
        if max(one["delta_error_ratio"] for one in samples) > 1e-2:
            raise ArmFailed(f"wrong answer: {samples}")
        return Measurement(samples)

    says = f"confide masked, N={masked.adapter.context.n}, B included"
    return Arm("masked-step", run, says=says, guarantee=masked.adapter.guarantee)


def relative_distance(got: numpy.ndarray, right: numpy.ndarray) -> float:
    return float(numpy.linalg.norm(got - right) / numpy.linalg.norm(right))
