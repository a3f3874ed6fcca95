"""The peer arms with a GPU of their own: CuKKS, DESILO FHE, Concrete ML extensions (bench/PROTOCOL.md).

    python3 bench/peers/gpu/arm.py cukks|desilofhe|concrete-ml-extensions [--cpu]

One step 1536 -> 32 a request, from the vector to its 32 values: `step_ms`. CuKKS and DESILO in the layout of report 003
(the vector copied as often as it fits, a plaintext of as many rows, products decrypted, segments summed in the clear);
Concrete ML extensions by its own encrypted matrix product of 8-bit inputs. Keys and encoded weights are made before
`hello`. Every process here holds the key, the vector and the adapter: nobody is protected from anybody.

DESILO's licence allows no commercial use: it is fetched and run by whoever may, and never shipped.
"""

import argparse
import importlib.metadata
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy
from numpy.typing import NDArray

WIDTH, RANK = 1536, 32
REQUESTS_MAX = 10_000

Floats = NDArray[numpy.float64]


class Arm(Protocol):
    """What each peer gives: its rows in the clear, and their product with a vector."""

    version: str
    note: str
    rows: Floats
    # The error of a right answer, at most.
    close: float

    def draw_vector(self, generator: numpy.random.Generator) -> Floats: ...

    def run_step(self, vector: Floats) -> Sequence[float] | Floats: ...


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("mode", choices=sorted(MODES))
    parser.add_argument(
        "--cpu", action="store_true", help="on the CPU, where the peer can: to try the arm"
    )
    given = parser.parse_args()
    hello = {
        "type": "hello",
        "protocol": 1,
        "arm": given.mode,
        "version": "none",
        "guarantee": "none",
    }
    try:
        arm = MODES[given.mode](given.cpu)
    except Exception as error:  # A peer's own errors are of every kind; whichever it is, the arm is left out by name.
        print_json_line(
            **hello,
            cannot=f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no reason'}"[
                :300
            ],
        )
        return 0
    print_json_line(**{**hello, "version": arm.version, "note": arm.note})
    for line in sys.stdin:
        asked = json.loads(line)
        if asked.get("type") == "end":
            break
        if asked.get("type") == "run":
            answer_run(arm, asked)
    return 0


def answer_run(arm: Arm, asked: dict[str, Any]) -> None:
    """Runs what was asked for, then prints: printing is not in what is measured."""
    wanted = {"width": WIDTH, "rank": RANK}
    for name, value in asked.get("params", {}).items():
        if wanted.get(name) != value:
            print_json_line(
                type="error", id=asked["id"], reason=f"unknown param {name} = {value!r}"
            )
            return
    generator = numpy.random.default_rng(asked["seed"])
    samples = []
    for _ in range(min(int(asked.get("requests", 1)), REQUESTS_MAX)):
        vector = arm.draw_vector(generator)
        began = time.perf_counter()
        result = arm.run_step(vector)
        took = (time.perf_counter() - began) * 1e3
        right = arm.rows @ vector
        error = float(numpy.linalg.norm(numpy.asarray(result) - right) / numpy.linalg.norm(right))
        samples.append({"step_ms": took, "delta_error_ratio": error})
    for metrics in samples:
        close = metrics["delta_error_ratio"] <= arm.close
        print_json_line(
            type="sample", id=asked["id"], metrics=metrics, answer={"rows": RANK, "close": close}
        )
    print_json_line(type="done", id=asked["id"])


def print_json_line(**line: object) -> None:
    print(json.dumps(line), flush=True)


class SlotLayout:
    """What CuKKS and DESILO share: the layout of report 003."""

    close = 1e-5

    def __init__(self, slots: int) -> None:
        self.rows: Floats = numpy.random.default_rng(7).normal(0.0, 0.02, (RANK, WIDTH))
        self.copies = slots // WIDTH
        self.packs = [
            self.rows[at : at + self.copies].reshape(-1) for at in range(0, RANK, self.copies)
        ]

    def draw_vector(self, generator: numpy.random.Generator) -> Floats:
        return generator.normal(0.0, 1.0, WIDTH)

    def repeat_vector(self, vector: Floats) -> Floats:
        return numpy.tile(vector, self.copies)

    def segment_sums(self, slots: Sequence[float] | Floats, pack: Floats) -> Floats:
        return numpy.asarray(slots[: len(pack)], dtype=numpy.float64).reshape(-1, WIDTH).sum(axis=1)


class Cukks(SlotLayout):
    """The native module beneath CuKKS: its Python face refuses a torch that is built for another CUDA."""

    note = "N = 16384, 60/40/40/60 bits, scale 2^40; plaintexts from CuKKS's own cache after the first step"

    def __init__(self, cpu: bool) -> None:
        if cpu:
            raise RuntimeError("it has no CPU form")
        os.environ["CUKKS_AUTO_INSTALL"] = "0"
        from ckks import CKKSConfig, CKKSContext

        super().__init__(8192)
        self.version = installed_version("cukks-cu128", "cukks-cu124", "cukks-cu121", "cukks")
        self.context = CKKSContext(
            CKKSConfig(16384, (60, 40, 40, 60), 40, "128_classic"), device="cpu"
        )
        if not self.context.gpu_enabled:
            raise RuntimeError("its GPU module is not at work")
        self.lists = [pack.tolist() for pack in self.packs]

    def run_step(self, vector: Floats) -> list[float]:
        backend, inner, keys = self.context._active_backend, self.context._ctx, self.context._keys
        encrypted = backend.encrypt(inner, keys, self.repeat_vector(vector).tolist())
        result: list[float] = []
        for plain, pack in zip(self.lists, self.packs):
            product = backend.mul_plain(
                encrypted, plain + [0.0] * (self.copies * WIDTH - len(plain))
            )
            result.extend(self.segment_sums(backend.decrypt(inner, keys, product), pack))
        return result


class Desilo(SlotLayout):
    """DESILO's engine at its own parameters: it takes a level, not a ring."""

    note = "engine of three levels (its own N and primes); non-commercial licence; weights encoded once"

    def __init__(self, cpu: bool) -> None:
        import desilofhe

        self.engine = desilofhe.Engine(max_level=3, mode="cpu" if cpu else "gpu")
        super().__init__(self.engine.slot_count)
        self.version = installed_version(
            "desilofhe-cu130", "desilofhe-cu132", "desilofhe-cu129", "desilofhe-cu124", "desilofhe"
        )
        self.key = self.engine.create_secret_key()
        self.weights = [self.engine.encode(pack) for pack in self.packs]

    def run_step(self, vector: Floats) -> list[float]:
        encrypted = self.engine.encrypt(self.repeat_vector(vector), self.key)
        result: list[float] = []
        for weights, pack in zip(self.weights, self.packs):
            product = self.engine.multiply(encrypted, weights)
            result.extend(self.segment_sums(self.engine.decrypt(product, self.key).real, pack))
        return result


class Concrete:
    """Concrete ML's hybrid models' product: encrypted 8-bit rows times a clear matrix of 8 bits."""

    note = "GLWE, its default parameters, inputs and weights of 8 bits; BSD-3-Clause-Clear (no patent grant)"
    # Of its rounding to 16 bits of answer; its inputs are integers here, so quantisation is not in it.
    close = 5e-2

    def __init__(self, cpu: bool) -> None:
        import concrete_ml_extensions as extensions

        if not cpu and not (extensions.is_cuda_enabled() and extensions.is_cuda_available()):
            raise RuntimeError("its CUDA part is not at work")
        self.extensions = extensions
        self.version = installed_version("concrete-ml-extensions")
        self.parameters = extensions.MatmulCryptoParameters.deserialize(extensions.default_params())
        self.key, self.compression = extensions.create_private_key(self.parameters)
        self.rows = (
            numpy.random.default_rng(7).integers(-127, 128, (RANK, WIDTH)).astype(numpy.float64)
        )
        self.clear = numpy.ascontiguousarray(self.rows.T.astype(numpy.int64)).view(numpy.uint64)
        if not cpu:
            self.clear = extensions.make_cuda_clear_matrix(self.clear, self.compression)
        self.bits = 26

    def draw_vector(self, generator: numpy.random.Generator) -> Floats:
        return generator.integers(-127, 128, WIDTH).astype(numpy.float64)

    def run_step(self, vector: Floats) -> Floats:
        ours = vector.astype(numpy.int64).view(numpy.uint64).reshape(1, WIDTH)
        encrypted = self.extensions.encrypt_matrix(self.key, self.parameters, ours)
        product = self.extensions.matrix_multiplication(encrypted, self.clear, self.compression)
        answer = self.extensions.decrypt_matrix(
            product, self.key, self.parameters, num_valid_glwe_values_in_last_ciphertext=RANK
        )
        return numpy.asarray(answer).reshape(-1).view(numpy.int64).astype(numpy.float64)[:RANK]


def installed_version(*names: str) -> str:
    for name in names:
        try:
            return f"{name} {importlib.metadata.version(name)}"
        except importlib.metadata.PackageNotFoundError:
            continue
    return "unknown"


MODES: dict[str, Callable[[bool], Arm]] = {
    "cukks": Cukks,
    "desilofhe": Desilo,
    "concrete-ml-extensions": Concrete,
}


if __name__ == "__main__":
    sys.exit(main())
