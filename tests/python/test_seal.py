"""Asks SEAL and confide-rlwe for the same: ring arithmetic bit for bit, slots within precision.

    python tests/python/test_seal.py PATH-OF-THE-EXAMPLE-ring

Bit for bit: primes, roots, both transforms, negacyclic products, decryption's c0 + c1*s, exact
products under BFV, division by the last prime. Within precision, because f64 rounds differently on
both sides: encoding (coefficients differ by at most 1), decoding both ways, a rotated product.
Not compared: keys and ciphertexts made on one side and read by the other (the binding makes neither
from raw numbers), and samplers, which are each side's own. Needs the packages of
bench/peers/seal/requirements.txt. Ends 0 when all checks hold, 1 otherwise.
"""

import json
import math
import os
import random
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import tenseal.sealapi as seal

util = seal._sealapi_cpp.util
SOURCE = random.Random(2026)
CKKS_SETS = ["ckks-8192-tensafe", "ckks-16384-tensafe", "ckks-32768-tensafe"]
RINGS = [(1024, 25), (2048, 54), (4096, 50), (8192, 60), (16384, 40), (16384, 60), (32768, 40)]


def main() -> int:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    ring = Ring(sys.argv[1])
    checks = [check for name, check in globals().items() if name.startswith("check_")]
    failed = [check for check in checks if not holds(check, ring)]
    ring.close()
    print(f"{len(checks) - len(failed)} of {len(checks)} checks hold")
    return 1 if failed else 0


class Ring:
    """Our side: a process that answers JSON lines."""

    def __init__(self, binary: str) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([binary], stdin=pipe, stdout=pipe, text=True)
        assert self.process.stdin and self.process.stdout
        self.input, self.output = self.process.stdin, self.process.stdout

    def __call__(self, what: str, **fields: object) -> dict[str, Any]:
        self.input.write(json.dumps({"do": what, **fields}) + "\n")
        self.input.flush()
        answer: dict[str, Any] = json.loads(self.output.readline())
        if "error" in answer:
            raise AssertionError(f"{what}: {answer['error']}")
        return answer

    def close(self) -> None:
        self.input.close()
        assert self.process.wait(timeout=30) == 0


def holds(check: Callable[[Ring], None], ring: Ring) -> bool:
    try:
        check(ring)
    except AssertionError as error:
        print(f"{check.__name__}: {error or 'does not hold'}")
        return False
    return True


def check_the_primes_are_seals(ring: Ring) -> None:
    for name in CKKS_SETS:
        ours = ring("primes", set=name)
        created = seal.CoeffModulus.Create(ours["n"], [60, 40, 40, 60])
        assert ours["primes"] + [ours["special"]] == [q.value() for q in created], name
    for name, bits in [("rlwe-4096-q100-flood40", [50, 50]), ("rlwe-2048-q50", [50])]:
        ours = ring("primes", set=name)
        created = seal.CoeffModulus.Create(ours["n"], bits)
        assert sorted(ours["primes"]) == sorted(q.value() for q in created), name


def check_transforms_and_products_are_equal(ring: Ring) -> None:
    for n, bits in RINGS:
        modulus = seal.CoeffModulus.Create(n, [bits])[0]
        q, table = modulus.value(), util.NTTTables(n.bit_length() - 1, modulus)
        left, right = ([SOURCE.randrange(q) for _ in range(n)] for _ in range(2))
        ours = ring("transform", n=n, modulus=q, coefficients=left)
        values = util.ntt_negacyclic_harvey(left, table)
        assert ours["root"] == table.get_root(), f"root of {q}"
        assert ours["values"] == values, f"transform of degree {n} modulo {q}"
        # The binding's inverse leaves some values at q + x.
        back = [x % q for x in util.inverse_ntt_negacyclic_harvey(values, table)]
        assert ours["inverse"] == back == left, f"inverse of degree {n} modulo {q}"
        product = [a * b % q for a, b in zip(values, util.ntt_negacyclic_harvey(right, table))]
        product = [x % q for x in util.inverse_ntt_negacyclic_harvey(product, table)]
        ours = ring("multiply", n=n, modulus=q, left=left, right=right)
        assert ours["coefficients"] == product, f"product of degree {n} modulo {q}"


def check_exact_products_are_equal(ring: Ring) -> None:
    """The same messages and weights under BFV on both sides, and modulo 2^k in the clear."""
    name = "rlwe-2048-q50"
    ours = ring("primes", set=name)
    n, t = ours["n"], 1 << ours["plaintext_bits"]
    context = context_of("BFV", n, [50], t)
    keys = seal.KeyGenerator(context)
    messages = [SOURCE.randrange(t) for _ in range(n)]
    weights = [SOURCE.randrange(-127, 128) if at < 512 else 0 for at in range(n)]
    encrypted, plain = seal.Ciphertext(), seal.Plaintext()
    seal.Encryptor(context, keys.secret_key()).encrypt_symmetric(polynomial(messages, t), encrypted)
    seal.Evaluator(context).multiply_plain(encrypted, polynomial(weights, t), encrypted)
    seal.Decryptor(context, keys.secret_key()).decrypt(encrypted, plain)
    theirs = [plain[at] if at < plain.coeff_count() else 0 for at in range(n)]
    found = ring("bfv_product", set=name, messages=messages, weights=weights)["messages"]
    assert found == theirs == negacyclic(messages, weights, t)


def check_the_phase_of_a_ciphertext_is_its_message_and_small_noise(ring: Ring) -> None:
    """Our c0 + c1*s of SEAL's ciphertext and SEAL's key: what its decryption rounds."""
    n, t = 4096, 1 << 20
    context = context_of("BFV", n, [50], t)
    q = context.key_context_data().parms().coeff_modulus()[0].value()
    keys = seal.KeyGenerator(context)
    messages = [SOURCE.randrange(t) for _ in range(n)]
    encrypted = seal.Ciphertext()
    seal.Encryptor(context, keys.secret_key()).encrypt_symmetric(polynomial(messages, t), encrypted)
    seal.Evaluator(context).transform_to_ntt_inplace(encrypted)
    parts = words(encrypted, 2 * n)
    # The key must outlive what it gives: that is a view.
    key = keys.secret_key()
    secret = words(key.data(), n)
    ours = ring("phase", n=n, primes=[q], c0=parts[:n], c1=parts[n:], s=secret)["coefficients"]
    noise = [(x - (q * m + t // 2) // t + q // 2) % q - q // 2 for x, m in zip(ours, messages)]
    assert max(map(abs, noise)) <= 42, max(map(abs, noise))


def check_division_by_the_last_prime_is_equal(ring: Ring) -> None:
    context = context_of("CKKS", 8192, [60, 40, 40, 60])
    n, primes = 8192, [q.value() for q in seal.CoeffModulus.Create(8192, [60, 40, 40, 60])][:3]
    keys, plain = seal.KeyGenerator(context), seal.Plaintext()
    seal.CKKSEncoder(context).encode(draw(n // 2, 3.0), 2.0**80, plain)
    encrypted, rescaled = seal.Ciphertext(), seal.Ciphertext()
    seal.Encryptor(context, keys.secret_key()).encrypt_symmetric(plain, encrypted)
    seal.Evaluator(context).rescale_to_next(encrypted, rescaled)
    before, after = words(encrypted, 2 * 3 * n), words(rescaled, 2 * 2 * n)
    for part in range(2):
        values = before[part * 3 * n : (part + 1) * 3 * n]
        ours = ring("drop_limb", n=n, primes=primes, values=values)["values"]
        assert ours == after[part * 2 * n : (part + 1) * 2 * n], f"part {part}"


def check_slots_are_encoded_alike(ring: Ring) -> None:
    for name in CKKS_SETS:
        ours = ring("primes", set=name)
        n, first = ours["n"], ours["primes"][0]
        context = context_of("CKKS", n, [60, 40, 40, 60])
        encoder, plain = seal.CKKSEncoder(context), seal.Plaintext()
        slots = draw(n // 2, 60.0)
        encoder.encode(slots, 2.0**40, plain)
        values = words(plain, 3 * n)
        table = util.NTTTables(n.bit_length() - 1, seal.CoeffModulus.Create(n, [60, 40, 40, 60])[0])
        residues = (x % first for x in util.inverse_ntt_negacyclic_harvey(values[:n], table))
        theirs = [x - first if x > first // 2 else x for x in residues]
        encoded = ring("ckks_encode", set=name, slots=slots)
        apart = [abs(a - b) for a, b in zip(encoded["coefficients"], theirs)]
        assert max(apart) <= 1, f"{name}: {max(apart)} apart"
        assert sum(apart) < n // 50, f"{name}: {sum(apart)} coefficients differ"
        decoded = ring("ckks_decode", set=name, values=values, scale=2.0**40)["slots"]
        assert relative_error(decoded, encoder.decode_double(plain)) < 1e-12, name
        assert relative_error(decoded, slots) < 1e-9, name
        loaded = plaintext_of(context, encoded["values"], encoded["scale"])
        assert relative_error(encoder.decode_double(loaded), slots) < 1e-9, name


def check_a_rotated_product_has_the_same_slots(ring: Ring) -> None:
    for name in CKKS_SETS:
        n, steps = ring("primes", set=name)["n"], 5
        context = context_of("CKKS", n, [60, 40, 40, 60])
        slots, factor = draw(n // 2, 3.0), draw(n // 2, 0.05)
        keys, encoder = seal.KeyGenerator(context), seal.CKKSEncoder(context)
        galois, evaluator = seal.GaloisKeys(), seal.Evaluator(context)
        keys.create_galois_keys([pow(3, steps, 2 * n)], galois)
        plain, product, answer = seal.Plaintext(), seal.Ciphertext(), seal.Plaintext()
        encoder.encode(slots, 2.0**40, plain)
        seal.Encryptor(context, keys.secret_key()).encrypt_symmetric(plain, product)
        encoder.encode(factor, 2.0**40, plain)
        evaluator.multiply_plain_inplace(product, plain)
        evaluator.rescale_to_next_inplace(product)
        evaluator.rotate_vector_inplace(product, steps, galois)
        seal.Decryptor(context, keys.secret_key()).decrypt(product, answer)
        theirs = encoder.decode_double(answer)
        ours = ring("ckks_product", set=name, slots=slots, factor=factor, steps=steps)
        wanted = [a * b for a, b in zip(slots, factor)]
        wanted = wanted[steps:] + wanted[:steps]
        assert math.isclose(ours["scale"], answer.scale, rel_tol=1e-15), name
        # What switching keys adds at scale 2^40: SEAL's digits are not centred and add more.
        errors = relative_error(ours["slots"], wanted), relative_error(theirs, wanted)
        # Both are random and these bounds far from what is seen; a wrong slot is off by 0.1.
        assert errors[0] < 2e-5 and errors[1] < 5e-4, f"{name}: {errors}"


def context_of(scheme: str, n: int, bits: list[int], t: int | None = None) -> Any:
    parameters = seal.EncryptionParameters(getattr(seal.SCHEME_TYPE, scheme))
    parameters.set_poly_modulus_degree(n)
    parameters.set_coeff_modulus(seal.CoeffModulus.Create(n, bits))
    if t:
        parameters.set_plain_modulus(t)
    context = seal.SEALContext(parameters, True, seal.SEC_LEVEL_TYPE.TC128)
    assert context.parameters_set(), context.parameters_error_message()
    return context


def polynomial(coefficients: list[int], t: int) -> Any:
    """A plaintext from text: the only way in that the binding has."""
    terms = [
        f"{value % t:X}x^{at}" if at else f"{value % t:X}"
        for at, value in reversed(list(enumerate(coefficients)))
        if value % t
    ]
    return seal.Plaintext(" + ".join(terms) or "0")


def plaintext_of(context: Any, values: list[int], scale: float) -> Any:
    """A plaintext in NTT form from its residues, through SEAL's file format without compression."""

    def frame(body: bytes, minor: int) -> bytes:
        # Magic, header size, version, compression: none; size of all.
        return struct.pack("<HBBBBHQ", 0xA15E, 16, 4, minor, 0, 0, 16 + len(body)) + body

    parms = struct.pack("<4Q", *context.first_parms_id())
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "plaintext")
        seal.Plaintext("1").save(path)
        with open(path, "rb") as file:
            minor = file.read(5)[4]
        data = frame(struct.pack(f"<Q{len(values)}Q", len(values), *values), minor)
        body = parms + struct.pack("<Qd", len(values), scale) + data
        with open(path, "wb") as target:
            target.write(frame(body, minor))
        plain = seal.Plaintext()
        plain.load(context, path)
    return plain


def words(thing: Any, count: int) -> list[int]:
    return [thing[at] for at in range(count)]


def draw(count: int, size: float) -> list[float]:
    return [SOURCE.uniform(-size, size) for _ in range(count)]


def negacyclic(left: list[int], right: list[int], t: int) -> list[int]:
    """The product modulo X^n + 1 and t, through one product of large integers."""
    width = 64
    low = [value % t for value in left]
    positive, negative = ([max(sign * w, 0) for w in right] for sign in (1, -1))

    def times(a: list[int], b: list[int]) -> list[int]:
        packed = [sum(value << (width * at) for at, value in enumerate(part)) for part in (a, b)]
        product = packed[0] * packed[1]
        mask = (1 << width) - 1
        return [(product >> (width * at)) & mask for at in range(2 * len(a))]

    whole = [a - b for a, b in zip(times(low, positive), times(low, negative))]
    return [(a - b) % t for a, b in zip(whole[: len(left)], whole[len(left) :])]


def relative_error(found: Any, wanted: Any) -> float:
    size = max(map(abs, wanted))
    assert len(found) == len(wanted)
    return max(abs(a - b) for a, b in zip(found, wanted)) / size


if __name__ == "__main__":
    sys.exit(main())
