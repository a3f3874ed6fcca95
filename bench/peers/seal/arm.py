"""The peer arm: Microsoft SEAL through the wheel of TenSEAL (bench/PROTOCOL.md).

    python3 bench/peers/seal/arm.py MODE [--n N]

`ckks-slots`: one step 1536 -> 32 in the layout of report 003, N = 8192, 16384 or 32768; `step_ms`
and its parts `encode_ms`, `encrypt_ms`, `product_ms`, `decrypt_ms`, `decode_ms`, `sum_ms`.
`bfv-packed`: the same product by coefficient packing, N = 2048, one 54-bit prime, tiles of 512x4.
`operations`: one of each CKKS operation, N as above; the parts, with `rotation_ms`.

Weights are encoded and keys are made before `hello`: they are not measured. `step_ms` runs from the
vector to its 32 sums. What the binding itself costs (a Python list becomes a C++ vector) is in
`encode_ms` and, on the way back, in `decode_ms`; `binding_ms` is the first of the two, apart.
Every process here holds the key, the vector and the adapter: nobody is protected from anybody.
"""

import argparse
import json
import math
import random
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

try:
    import tenseal.sealapi as seal
except ImportError as error:
    sys.exit(f"arm.py: no tenseal: {error}\nhint: `make seal` builds .venv-seal, which has it")

WIDTH, RANK = 1536, 32
SCALE = 2.0**40
PRIMES = [60, 40, 40, 60]
# A CKKS product of report 003's parameters keeps about nine digits; a wrong slot is far beyond this.
CLOSE = 1e-7
VERSION = "SEAL in tenseal 0.3.18"
REQUESTS_MAX = 50_000

# What an arm computes in: real numbers or integers.
Number = TypeVar("Number", int, float)


class Arm(Protocol[Number]):
    """What each mode gives: its inputs, one measured step of them, whether its result is right."""

    NOTE: str
    n: int

    def draw_vector(self, source: random.Random) -> list[Number]: ...

    def run_step(self, vector: list[Number]) -> tuple[dict[str, float], list[Number]]: ...

    def check_result(self, vector: list[Number], result: list[Number]) -> dict[str, int | bool]: ...


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("mode", choices=sorted(MODES))
    parser.add_argument("--n", type=int, choices=[2048, 8192, 16384, 32768])
    arguments = parser.parse_args()
    try:
        arm = MODES[arguments.mode](arguments.n)
    except ValueError as error:
        parser.error(str(error))
    print_json_line(
        type="hello",
        protocol=1,
        arm=f"SEAL {arguments.mode} N={arm.n}",
        version=VERSION,
        guarantee="none",
        note=arm.NOTE,
    )
    for line in sys.stdin:
        asked = json.loads(line)
        if asked.get("type") == "end":
            break
        if asked.get("type") == "run":
            answer_run(arm, asked)
    return 0


def answer_run(arm: Arm[Number], asked: dict[str, Any]) -> None:
    """Runs what was asked for, then prints: printing is not in what is measured."""
    number = asked["id"]
    wanted = {"width": WIDTH, "rank": RANK}
    for name, value in asked.get("params", {}).items():
        if wanted.get(name) != value:
            print_json_line(type="error", id=number, reason=f"unknown param {name} = {value!r}")
            return
    requests = min(int(asked.get("requests", 1)), REQUESTS_MAX)
    source = random.Random(asked["seed"])
    inputs = [arm.draw_vector(source) for _ in range(requests)]
    wall, cpu = time.perf_counter(), time.process_time()
    samples = [arm.run_step(vector) for vector in inputs]
    cpu_s, wall_s = time.process_time() - cpu, time.perf_counter() - wall
    for vector, (metrics, result) in zip(inputs, samples):
        print_json_line(
            type="sample", id=number, metrics=metrics, answer=arm.check_result(vector, result)
        )
    print_json_line(type="done", id=number, cpu_s=cpu_s, wall_s=wall_s)


def print_json_line(**line: object) -> None:
    print(json.dumps(line), flush=True)


class LapTimer:
    """Milliseconds by step: `lap` books the time since the last one."""

    def __init__(self) -> None:
        self.metrics: dict[str, float] = {}
        self.begin = self.last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.metrics[name] = self.metrics.get(name, 0.0) + (now - self.last) * 1e3
        self.last = now

    def finish_step(self) -> dict[str, float]:
        self.metrics["step_ms"] = (self.last - self.begin) * 1e3
        return self.metrics


class Ckks:
    """Keys, encoder and evaluator for 60/40/40 bits and a 60-bit special prime, scale 2^40."""

    NOTE = "weights encoded once; lists of the Python binding are in encode and decode"

    def __init__(self, n: int | None) -> None:
        self.n = n or 16384
        if self.n == 2048:
            raise ValueError("--n: wanted 8192, 16384 or 32768")
        parameters = seal.EncryptionParameters(seal.SCHEME_TYPE.CKKS)
        parameters.set_poly_modulus_degree(self.n)
        parameters.set_coeff_modulus(seal.CoeffModulus.Create(self.n, PRIMES))
        context = seal.SEALContext(parameters, True, seal.SEC_LEVEL_TYPE.TC128)
        if not context.parameters_set():
            raise ValueError(f"--n: SEAL refuses {self.n}: {context.parameters_error_message()}")
        self.context = context
        self.keys = seal.KeyGenerator(context)
        secret = self.keys.secret_key()
        self.encoder = seal.CKKSEncoder(context)
        self.encryptor = seal.Encryptor(context, secret)
        self.decryptor = seal.Decryptor(context, secret)
        self.evaluator = seal.Evaluator(context)
        self.slots = self.n // 2
        self.plain, self.answer = seal.Plaintext(), seal.Plaintext()
        self.encrypted, self.product = seal.Ciphertext(), seal.Ciphertext()

    def draw_vector(self, source: random.Random) -> list[float]:
        return [source.gauss(0.0, 1.0) for _ in range(WIDTH)]

    def encode(self, values: list[float]) -> seal.Plaintext:
        plain = seal.Plaintext()
        self.encoder.encode(values, SCALE, plain)
        return plain


class CkksSlots(Ckks):
    """The vector copied as often as it fits, a plaintext of as many rows, no rotation."""

    def __init__(self, n: int | None) -> None:
        super().__init__(n)
        self.rows = random_matrix(lambda source: source.gauss(0.0, 0.02))
        self.copies = self.slots // WIDTH
        packs = [self.rows[at : at + self.copies] for at in range(0, RANK, self.copies)]
        self.weights = [self.encode([value for row in pack for value in row]) for pack in packs]

    def run_step(self, vector: list[float]) -> tuple[dict[str, float], list[float]]:
        clock = LapTimer()
        self.encoder.encode(vector * self.copies, SCALE, self.plain)
        clock.lap("encode_ms")
        self.encryptor.encrypt_symmetric(self.plain, self.encrypted)
        clock.lap("encrypt_ms")
        sums: list[float] = []
        for weights in self.weights:
            self.evaluator.multiply_plain(self.encrypted, weights, self.product)
            clock.lap("product_ms")
            self.decryptor.decrypt(self.product, self.answer)
            clock.lap("decrypt_ms")
            slots = self.encoder.decode_double(self.answer)
            clock.lap("decode_ms")
            sums += segment_sums(slots, self.copies)
            clock.lap("sum_ms")
        return clock.finish_step(), sums[:RANK]

    def check_result(self, vector: list[float], result: list[float]) -> dict[str, int | bool]:
        right = dot_products(self.rows, vector)
        size = max(abs(value) for value in right)
        close = all(abs(a - b) <= CLOSE * size for a, b in zip(result, right))
        return {"rows": len(result), "close": close}


class CkksOperations(Ckks):
    """One of each operation, apart: what report 003 tabulates."""

    def __init__(self, n: int | None) -> None:
        super().__init__(n)
        source = random.Random(1)
        self.factor = [source.gauss(0.0, 0.02) for _ in range(self.slots)]
        self.weights = self.encode(self.factor)
        self.galois = seal.GaloisKeys()
        # This binding takes Galois elements; 3 is the one of a rotation by one step.
        self.keys.create_galois_keys([3], self.galois)
        self.rotated = seal.Ciphertext()

    def run_step(self, vector: list[float]) -> tuple[dict[str, float], list[float]]:
        values = (vector * (self.slots // WIDTH + 1))[: self.slots]
        clock = LapTimer()
        self.encoder.encode(values, SCALE, self.plain)
        clock.lap("encode_ms")
        self.encryptor.encrypt_symmetric(self.plain, self.encrypted)
        clock.lap("encrypt_ms")
        self.evaluator.multiply_plain(self.encrypted, self.weights, self.product)
        clock.lap("product_ms")
        self.evaluator.rotate_vector(self.product, 1, self.galois, self.rotated)
        clock.lap("rotation_ms")
        self.decryptor.decrypt(self.rotated, self.answer)
        clock.lap("decrypt_ms")
        slots = self.encoder.decode_double(self.answer)
        clock.lap("decode_ms")
        try:
            # Refused for its scale, after the list has become a vector: that alone is timed.
            self.encoder.encode(values, 0.0, seal.Plaintext())
        except ValueError:
            clock.lap("binding_ms")
        return clock.metrics, slots

    def check_result(self, vector: list[float], result: list[float]) -> dict[str, int | bool]:
        values = (vector * (self.slots // WIDTH + 1))[: self.slots]
        right = [a * b for a, b in zip(values, self.factor)]
        right = right[1:] + right[:1]
        size = max(abs(value) for value in right)
        close = all(abs(a - b) <= CLOSE * size for a, b in zip(result, right))
        return {"slots": len(result), "close": close}


class BfvPacked:
    """Tiles of 512 columns by 4 rows in the coefficients, exact modulo 2^27 (he-lora.md, 3.5).

    A plaintext can only be made from text in this binding. Making it is `encode_ms` and is not in
    `step_ms`: a C++ caller writes the coefficients in place.
    """

    NOTE = "not flooded, adapter not protected; text of plaintexts is outside step_ms"
    COLUMNS, ROWS = 512, 4
    T = 1 << 27

    def __init__(self, n: int | None) -> None:
        self.n = n or 2048
        if self.n != 2048:
            raise ValueError("--n: wanted 2048 for bfv-packed")
        parameters = seal.EncryptionParameters(seal.SCHEME_TYPE.BFV)
        parameters.set_poly_modulus_degree(self.n)
        parameters.set_coeff_modulus(seal.CoeffModulus.Create(self.n, [54]))
        parameters.set_plain_modulus(self.T)
        self.context = seal.SEALContext(parameters, True, seal.SEC_LEVEL_TYPE.TC128)
        if not self.context.parameters_set():
            raise ValueError(f"SEAL refuses: {self.context.parameters_error_message()}")
        secret = seal.KeyGenerator(self.context).secret_key()
        self.encryptor = seal.Encryptor(self.context, secret)
        self.decryptor = seal.Decryptor(self.context, secret)
        self.evaluator = seal.Evaluator(self.context)
        self.rows = random_matrix(lambda source: source.randint(-127, 127))
        self.weights = [
            [self.encode_matrix_tile(row, column) for row in range(0, RANK, self.ROWS)]
            for column in range(0, WIDTH, self.COLUMNS)
        ]

    def encode_matrix_tile(self, first_row: int, first_column: int) -> seal.Plaintext:
        """Row o, column j of the tile stands at coefficient (o + 1) * 512 - 1 - j, in NTT form."""
        coefficients = [0] * self.n
        for o in range(self.ROWS):
            for j in range(self.COLUMNS):
                at = (o + 1) * self.COLUMNS - 1 - j
                coefficients[at] = self.rows[first_row + o][first_column + j]
        plain = seal.Plaintext()
        parms = self.context.first_parms_id()
        self.evaluator.transform_to_ntt(self.make_plaintext(coefficients), parms, plain)
        return plain

    def make_plaintext(self, coefficients: list[int]) -> seal.Plaintext:
        terms = [
            f"{value % self.T:X}x^{at}" if at else f"{value % self.T:X}"
            for at, value in reversed(list(enumerate(coefficients)))
            if value
        ]
        return seal.Plaintext(" + ".join(terms) or "0")

    def draw_vector(self, source: random.Random) -> list[int]:
        return [max(-32767, min(32767, round(source.gauss(0.0, 2048.0)))) for _ in range(WIDTH)]

    def run_step(self, vector: list[int]) -> tuple[dict[str, float], list[int]]:
        clock = LapTimer()
        starts = range(0, WIDTH, self.COLUMNS)
        plains = [self.make_plaintext(vector[at : at + self.COLUMNS]) for at in starts]
        clock.lap("encode_ms")
        clock.begin = clock.last
        inputs = [seal.Ciphertext() for _ in plains]
        for plain, encrypted in zip(plains, inputs):
            self.encryptor.encrypt_symmetric(plain, encrypted)
        clock.lap("encrypt_ms")
        forms = [seal.Ciphertext() for _ in plains]
        for encrypted, form in zip(inputs, forms):
            self.evaluator.transform_to_ntt(encrypted, form)
        totals = [self.multiply_row_group(forms, group) for group in range(RANK // self.ROWS)]
        clock.lap("product_ms")
        result: list[int] = []
        for total in totals:
            plain = seal.Plaintext()
            self.decryptor.decrypt(total, plain)
            # SEAL keeps no leading zeroes: what lies beyond is zero.
            known = plain.coeff_count()
            wanted = [(o + 1) * self.COLUMNS - 1 for o in range(self.ROWS)]
            result += [plain[at] if at < known else 0 for at in wanted]
        clock.lap("decrypt_ms")
        return clock.finish_step(), result

    def multiply_row_group(self, forms: list[seal.Ciphertext], group: int) -> seal.Ciphertext:
        total, product = seal.Ciphertext(), seal.Ciphertext()
        self.evaluator.multiply_plain(forms[0], self.weights[0][group], total)
        for form, weights in zip(forms[1:], self.weights[1:]):
            self.evaluator.multiply_plain(form, weights[group], product)
            self.evaluator.add_inplace(total, product)
        answer = seal.Ciphertext()
        self.evaluator.transform_from_ntt(total, answer)
        return answer

    def check_result(self, vector: list[int], result: list[int]) -> dict[str, int | bool]:
        centred = [value - self.T if value > self.T // 2 else value for value in result]
        right = [sum(a * x for a, x in zip(row, vector)) for row in self.rows]
        return {"rows": len(result), "close": centred == right}


MODES: dict[str, Callable[[int | None], Arm[Any]]] = {
    "ckks-slots": CkksSlots,
    "bfv-packed": BfvPacked,
    "operations": CkksOperations,
}


def random_matrix(value: Callable[[random.Random], Number]) -> list[list[Number]]:
    source = random.Random(7)
    return [[value(source) for _ in range(WIDTH)] for _ in range(RANK)]


def segment_sums(slots: list[float], copies: int) -> list[float]:
    return [sum(slots[at * WIDTH : (at + 1) * WIDTH]) for at in range(copies)]


def dot_products(rows: list[list[float]], vector: list[float]) -> list[float]:
    return [math.fsum(a * x for a, x in zip(row, vector)) for row in rows]


if __name__ == "__main__":
    sys.exit(main())
