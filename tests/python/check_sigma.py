"""A second checker of sigma proofs, written from docs/sigma-proofs.md: integers and hashlib only.

Usage: check_sigma.py vectors/sigma

Judges every vector and compares with the outcome it names; then changes what holds, byte by byte in a
sample, and expects a refusal each time.
"""

import hashlib
import json
import pathlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any

# The fields of a vector: bytes for those of BYTES, JSON's strings and lists for the others.
Vector = dict[str, Any]
# A point of a short Weierstrass curve, and a point of the Edwards curve behind ristretto255 in extended coordinates.
Affine = tuple[int, int]
Point = tuple[int, int, int, int]
# A key: `rsa` and its modulus, or `ec`, its curve and its point.
Key = tuple[Any, ...]
MAGIC = b"confide sigma v1\n"
HASHES = {1: "sha256", 2: "sha384", 3: "sha512"}
DIGEST_INFO = {
    "sha256": bytes.fromhex("3031300d060960864801650304020105000420"),
    "sha384": bytes.fromhex("3041300d060960864801650304020205000430"),
    "sha512": bytes.fromhex("3051300d060960864801650304020305000440"),
}


class Refusal(Exception):
    """The reason for which a proof is refused."""


def require(condition: object, why: str) -> None:
    if not condition:
        raise Refusal(why)


def part(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def challenge(tag: str, *parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(map(part, (tag.encode(), *parts)))).digest()[:16]


# ------------------------------------------------------------------ DER keys


def tlv(data: bytes, tag: int) -> tuple[bytes, bytes]:
    """The content of the element at the front, and what follows it."""
    require(len(data) >= 2 and data[0] == tag, "malformed")
    length, start = data[1], 2
    if length & 0x80:
        start = 2 + (length & 0x7F)
        length = int.from_bytes(data[2:start], "big")
    require(len(data) >= start + length, "malformed")
    return data[start : start + length], data[start + length :]


def read_key(spki: bytes) -> Key:
    body, rest = tlv(spki, 0x30)
    require(rest == b"", "malformed")
    algorithm, bits = tlv(body, 0x30)
    bits, rest = tlv(bits, 0x03)
    require(rest == b"" and bits[:1] == b"\0", "malformed")
    name, parameters = tlv(algorithm, 0x06)
    if name.hex() == "2a864886f70d010101":
        numbers, _ = tlv(bits[1:], 0x30)
        first, rest = tlv(numbers, 0x02)
        modulus, exponent = (int.from_bytes(x, "big") for x in (first, tlv(rest, 0x02)[0]))
        require(exponent == 65537, "exponent")
        require(2048 <= modulus.bit_length() <= 4096, "modulus length")
        require(modulus % 2 == 1, "modulus even")
        return ("rsa", modulus)
    curve = CURVES[tlv(parameters, 0x06)[0].hex()]
    return ("ec", curve, curve.decode(bits[1:]))


# ------------------------------------------------------- short Weierstrass curves


class Curve:
    """y² = x³ − 3x + b; a point is (x, y), the neutral element None."""

    def __init__(self, size: int, p: int, b: int, n: int, generator: Affine) -> None:
        self.size, self.p, self.b, self.n, self.generator = size, p, b, n, generator

    def decode(self, data: bytes) -> Affine:
        require(data[:1] in (b"\2", b"\3", b"\4"), "not on curve")
        x = int.from_bytes(data[1 : 1 + self.size], "big")
        require(x < self.p, "not on curve")
        square = (x**3 - 3 * x + self.b) % self.p
        if data[0] == 4:
            require(len(data) == 1 + 2 * self.size, "not on curve")
            y = int.from_bytes(data[1 + self.size :], "big")
        else:
            require(len(data) == 1 + self.size, "not on curve")
            y = pow(square, (self.p + 1) // 4, self.p)
            y = y if y & 1 == data[0] & 1 else self.p - y
        require(y < self.p and y * y % self.p == square, "not on curve")
        return (x, y)

    def encode(self, point: Affine, compressed: bool = True) -> bytes:
        x, y = (c.to_bytes(self.size, "big") for c in point)
        return bytes([2 + (point[1] & 1)]) + x if compressed else b"\4" + x + y

    def add(self, one: Affine | None, other: Affine | None) -> Affine | None:
        if one is None or other is None:
            return other if one is None else one
        (x1, y1), (x2, y2) = one, other
        if x1 == x2 and (y1 + y2) % self.p == 0:
            return None
        slope = (
            (3 * x1 * x1 - 3) * pow(2 * y1, -1, self.p)
            if one == other
            else (y2 - y1) * pow(x2 - x1, -1, self.p)
        )
        x = (slope * slope - x1 - x2) % self.p
        return (x, (slope * (x1 - x) - y1) % self.p)

    def times(self, scalar: int, point: Affine) -> Affine | None:
        sum_ = None
        for bit in bin(scalar % self.n)[2:]:
            sum_ = self.add(sum_, sum_)
            if bit == "1":
                sum_ = self.add(sum_, point)
        return sum_


P256 = Curve(
    32,
    2**256 - 2**224 + 2**192 + 2**96 - 1,
    0x5AC635D8AA3A93E7B3EBBD55769886BC651D06B0CC53B0F63BCE3C3E27D2604B,
    0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551,
    (
        0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
        0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
    ),
)
P384 = Curve(
    48,
    2**384 - 2**128 - 2**96 + 2**32 - 1,
    int(
        "B3312FA7E23EE7E4988E056BE3F82D19181D9C6EFE8141120314088F5013875A"
        "C656398D8A2ED19D2A85C8EDD3EC2AEF",
        16,
    ),
    int(
        "FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFC7634D81F4372DDF"
        "581A0DB248B0A77AECEC196ACCC52973",
        16,
    ),
    (
        int(
            "AA87CA22BE8B05378EB1C71EF320AD746E1D3B628BA79B9859F741E082542A38"
            "5502F25DBF55296C3A545E3872760AB7",
            16,
        ),
        int(
            "3617DE4A96262C6F5D9E98BF9292DC29F8F41DBD289A147CE9DA3113B5F0B8C0"
            "0A60B1CE1D7E819D7A431D7C90EA0E5F",
            16,
        ),
    ),
)
CURVES = {"2a8648ce3d030107": P256, "2b81040022": P384}


# ------------------------------------------------------------- signature proofs


def check_signature(vector: Vector) -> None:
    spki, message = vector["key"], vector["message"]
    key, data = read_key(spki), vector["proof"]
    require(data.startswith(MAGIC), "malformed")
    take = Reader(data[len(MAGIC) :])
    scheme, hash_ = take(1)[0], HASHES.get(take.last(1)[0], "")
    require(scheme in (1, 2, 3) and hash_, "malformed")
    key_id = take(32)
    digest = take(hashlib.new(hash_).digest_size)
    salt = take.read_counted(478) if scheme == 2 else None
    claim = take.consumed_bytes()
    context = take.read_counted(1024)
    require(key_id == hashlib.sha256(spki).digest(), "other key")
    require(digest == hashlib.new(hash_, message).digest(), "other message")
    require(context == vector["context"], "other context")
    if key[0] == "rsa":
        require(scheme in (1, 2), "unsupported")
        check_rsa(key[1], hash_, digest, salt, claim, context, take.remaining_bytes())
    else:
        require(scheme == 3, "unsupported")
        check_ecdsa(key[1], key[2], digest, claim, context, take.remaining_bytes())


class Reader:
    """Takes bytes from the front."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def __call__(self, count: int) -> bytes:
        require(self.at + count <= len(self.data), "malformed")
        self.at += count
        return self.data[self.at - count : self.at]

    last = __call__

    def read_counted(self, most: int) -> bytes:
        count = int.from_bytes(self(2), "big")
        require(count <= most, "malformed")
        return self(count)

    def consumed_bytes(self) -> bytes:
        return self.data[: self.at]

    def remaining_bytes(self) -> bytes:
        return self.data[self.at :]


def check_rsa(
    modulus: int,
    hash_: str,
    digest: bytes,
    salt: bytes | None,
    claim: bytes,
    context: bytes,
    body: bytes,
) -> None:
    bits = modulus.bit_length()
    size = (bits + 7) // 8
    require(len(body) == 16 + 8 * size, "malformed")
    em = pkcs1(hash_, digest, size) if salt is None else pss(hash_, digest, salt, bits, size)
    root, commitments = int.from_bytes(em, "big"), b""
    for i in range(8):
        c = int.from_bytes(body[2 * i : 2 * i + 2], "big")
        z = int.from_bytes(body[16 + i * size : 16 + (i + 1) * size], "big")
        require(0 < z < modulus, "malformed")
        u = pow(z, 65537, modulus) * pow(root, c, modulus) % modulus
        commitments += u.to_bytes(size, "big")
    parts = (claim, modulus.to_bytes(size, "big"), (65537).to_bytes(4, "big"), em, context)
    require(body[:16] == challenge("confide/sigma/v1/rsa", *parts, commitments), "refused")


def pkcs1(hash_: str, digest: bytes, size: int) -> bytes:
    tail = b"\0" + DIGEST_INFO[hash_] + digest
    return b"\0\1" + b"\xff" * (size - 2 - len(tail)) + tail


def pss(hash_: str, digest: bytes, salt: bytes, bits: int, size: int) -> bytes:
    length = (bits - 1 + 7) // 8
    h = hashlib.new(hash_, bytes(8) + digest + salt).digest()
    block = length - len(h) - 1
    require(len(salt) <= block - 1, "malformed")
    plain = bytes(block - len(salt) - 1) + b"\1" + salt
    mask, counter = b"", 0
    while len(mask) < block:
        mask += hashlib.new(hash_, h + counter.to_bytes(4, "big")).digest()
        counter += 1
    masked = bytearray(a ^ b for a, b in zip(plain, mask))
    masked[0] &= 0xFF >> (8 * length - (bits - 1))
    return bytes(size - length) + bytes(masked) + h + b"\xbc"


def check_ecdsa(
    curve: Curve, key: Affine, digest: bytes, claim: bytes, context: bytes, body: bytes
) -> None:
    size = curve.size
    require(len(body) == 1 + size + 16 + size, "malformed")
    point = curve.decode(body[: 1 + size])
    c, z = body[1 + size : 17 + size], int.from_bytes(body[17 + size :], "big")
    require(z < curve.n, "malformed")
    h, r = int.from_bytes(digest[:size], "big") % curve.n, point[0] % curve.n
    target = curve.add(curve.times(h, curve.generator), curve.times(r, key))
    minus = curve.n - int.from_bytes(c, "big")
    nonce = curve.add(curve.times(z, point), curve.times(minus, target)) if target else None
    if not r or not nonce:
        raise Refusal("refused")
    parts = (claim, curve.encode(key, False), context, curve.encode(point), curve.encode(nonce))
    require(c == challenge("confide/sigma/v1/ecdsa", *parts), "refused")


# --------------------------------------------------------- ristretto255 (RFC 9496)

P = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
ROOT_MINUS_ONE = pow(2, (P - 1) // 4, P)


def root_ratio(u: int, v: int) -> tuple[bool, int]:
    """Whether u/v is a square, and the non-negative root of it or of i·u/v."""
    r = u * v**3 * pow(u * v**7, (P - 5) // 8, P) % P
    check = v * r * r % P
    square = check == u % P or check == -u % P
    if check in (-u % P, -u * ROOT_MINUS_ONE % P):
        r = r * ROOT_MINUS_ONE % P
    return square, absolute(r)


def absolute(x: int) -> int:
    return (P - x) % P if x & 1 else x


ROOT_A_MINUS_D = root_ratio(1, (-1 - D) % P)[1]


def encode(point: Point) -> bytes:
    x, y, z, t = point
    u1, u2 = (z + y) * (z - y) % P, x * y % P
    inverse = root_ratio(1, u1 * u2 * u2)[1]
    one, two = inverse * u1 % P, inverse * u2 % P
    z_inverse = one * two * t % P
    if t * z_inverse % P & 1:
        x, y = y * ROOT_MINUS_ONE % P, x * ROOT_MINUS_ONE % P
        two = one * ROOT_A_MINUS_D % P
    if x * z_inverse % P & 1:
        y = -y % P
    return absolute(two * (z - y) % P).to_bytes(32, "little")


def decode(data: bytes) -> Point:
    s = int.from_bytes(data, "little")
    require(len(data) == 32 and s < P and s & 1 == 0, "malformed")
    u1, u2 = (1 - s * s) % P, (1 + s * s) % P
    v = (-D * u1 * u1 - u2 * u2) % P
    square, inverse = root_ratio(1, v * u2 * u2)
    x = absolute(2 * s * inverse * u2 % P)
    y = u1 * inverse * inverse * u2 * v % P
    require(square and x * y % P & 1 == 0 and y, "malformed")
    return (x, y, 1, x * y % P)


def from_uniform(data: bytes) -> Point:
    return add(*(elligator(int.from_bytes(half, "little")) for half in (data[:32], data[32:])))


def elligator(number: int) -> Point:
    t = (number % 2**255) % P
    r = ROOT_MINUS_ONE * t * t % P
    u = (r + 1) * (1 - D * D) % P
    v = (-1 - r * D) * (r + D) % P
    square, s = root_ratio(u, v)
    if not square:
        s = -absolute(s * t % P) % P
    c = -1 if square else r
    n = (c * (r - 1) * (D - 1) ** 2 - v) % P
    w0, w1 = 2 * s * v % P, n * ROOT_AD_MINUS_ONE % P
    w2, w3 = (1 - s * s) % P, (1 + s * s) % P
    return (w0 * w3 % P, w2 * w1 % P, w1 * w3 % P, w0 * w2 % P)


ROOT_AD_MINUS_ONE = root_ratio((-D - 1) % P, 1)[1]
# RFC 9496, section 4.1: the root that is odd.
ROOT_AD_MINUS_ONE = P - ROOT_AD_MINUS_ONE


def add(one: Point, other: Point) -> Point:
    (x1, y1, z1, t1), (x2, y2, z2, t2) = one, other
    a, b = (y1 - x1) * (y2 - x2) % P, (y1 + x1) * (y2 + x2) % P
    c, d = 2 * D * t1 * t2 % P, 2 * z1 * z2 % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return (e * f % P, g * h % P, f * g % P, e * h % P)


NEUTRAL = (0, 1, 1, 0)


def times(scalar: int, point: Point) -> Point:
    sum_ = NEUTRAL
    for bit in bin(scalar % ORDER)[2:]:
        sum_ = add(sum_, sum_)
        if bit == "1":
            sum_ = add(sum_, point)
    return sum_


def combine(pairs: Sequence[tuple[int, Point]]) -> Point:
    """Σ scalar·point, with the doublings shared."""
    pairs, sum_ = [(scalar % ORDER, point) for scalar, point in pairs], NEUTRAL
    for bit in reversed(range(253)):
        sum_ = add(sum_, sum_)
        for scalar, point in pairs:
            if scalar >> bit & 1:
                sum_ = add(sum_, point)
    return sum_


def scalar(data: bytes) -> int:
    number = int.from_bytes(data, "little")
    require(len(data) == 32 and number < ORDER, "malformed")
    return number


BASE_ENCODED = bytes.fromhex("e2f2ae0a6abc4e71a884a961c500515f58e30b6aa582dd8db6a65945e08d2d76")
BASE = decode(BASE_ENCODED)
BLINDING_BASE = from_uniform(hashlib.sha3_512(BASE_ENCODED).digest())


# ------------------------------------------------------------ relations and ranges


def check_relation(vector: Vector) -> None:
    proof = vector["proof"]
    require(len(proof) == 48, "malformed")
    c, z = proof[:16], scalar(proof[16:])
    terms = [(term["weight"], bytes.fromhex(term["commitment"])) for term in vector["terms"]]
    constant = int(vector["constant"])
    encoded = len(terms).to_bytes(4, "big")
    for weight, commitment in terms:
        encoded += weight.to_bytes(8, "big", signed=True) + commitment
    encoded += constant.to_bytes(16, "big", signed=True)
    pairs = [(weight, decode(commitment)) for weight, commitment in terms]
    difference = combine([*pairs, (-constant, BASE)])
    nonce = combine([(z, BLINDING_BASE), (-int.from_bytes(c, "big"), difference)])
    expected = challenge("confide/sigma/v1/linear", encoded, vector["context"], encode(nonce))
    require(c == expected, "refused")


def check_range(vector: Vector) -> None:
    low, high, proof = int(vector["low"]), int(vector["high"]), vector["proof"]
    n = next(n for n in (8, 16, 32, 64) if high - low < 2**n)
    m = 1 if high - low == 2**n - 1 else 2
    rounds = (n * m).bit_length() - 1
    require(len(proof) == 32 * (9 + 2 * rounds), "malformed")
    words = [proof[i : i + 32] for i in range(0, len(proof), 32)]
    t, t_blinding, e_blinding, a, b = map(scalar, words[4:7] + words[-2:])
    commitment = decode(vector["commitment"])
    above = combine([(1, commitment), (-low, BASE)])
    below = combine([(-1, commitment), (high, BASE)])
    shifted = [above, below][:m]

    transcript = Transcript(b"confide/sigma/v1/range")
    transcript.append(b"context", vector["context"])
    transcript.append(b"low", low.to_bytes(8, "little"))
    transcript.append(b"high", high.to_bytes(8, "little"))
    transcript.append(b"commitment", vector["commitment"])
    transcript.append(b"dom-sep", b"rangeproof v1")
    transcript.append(b"n", n.to_bytes(8, "little"))
    transcript.append(b"m", m.to_bytes(8, "little"))
    for point in shifted:
        transcript.append(b"V", encode(point))

    def append_point(label: bytes, word: bytes) -> None:
        require(any(word), "refused")
        transcript.append(label, word)

    append_point(b"A", words[0])
    append_point(b"S", words[1])
    y, z = transcript.challenge(b"y"), transcript.challenge(b"z")
    append_point(b"T_1", words[2])
    append_point(b"T_2", words[3])
    x = transcript.challenge(b"x")
    transcript.append(b"t_x", words[4])
    transcript.append(b"t_x_blinding", words[5])
    transcript.append(b"e_blinding", words[6])
    w = transcript.challenge(b"w")
    transcript.append(b"dom-sep", b"ipp v1")
    transcript.append(b"n", (n * m).to_bytes(8, "little"))
    folds = []
    for j in range(rounds):
        append_point(b"L", words[7 + 2 * j])
        append_point(b"R", words[8 + 2 * j])
        folds.append(transcript.challenge(b"u"))

    points = [decode_part(word) for word in words[:4] + words[7:-2]]
    powers = sum(pow(y, i, ORDER) for i in range(n * m))
    delta = (z - z * z) * powers - sum(pow(z, 3 + p, ORDER) * (2**n - 1) for p in range(m))
    first = [(t - delta, BASE), (t_blinding, BLINDING_BASE), (-x, points[2]), (-x * x, points[3])]
    first += [(-pow(z, 2 + p, ORDER), point) for p, point in enumerate(shifted)]
    require(is_neutral(combine(first)), "refused")

    second = [(1, points[0]), (x, points[1]), (-e_blinding, BLINDING_BASE), (w * (t - a * b), BASE)]
    for j, u in enumerate(folds):
        second += [(u * u, points[4 + 2 * j]), (pow(u, -2, ORDER), points[5 + 2 * j])]
    inverse = pow(y, -1, ORDER)
    for i in range(n * m):
        s = 1
        for j, u in enumerate(folds):
            s = s * (u if i >> (rounds - 1 - j) & 1 else pow(u, -1, ORDER)) % ORDER
        p, k = divmod(i, n)
        binary = pow(z, 2 + p, ORDER) * 2**k
        g, h = bases(b"G", p)[k], bases(b"H", p)[k]
        second.append((-z - a * s, g))
        second.append((z + pow(inverse, i, ORDER) * (binary - b * pow(s, -1, ORDER)), h))
    require(is_neutral(combine(second)), "refused")


def decode_part(word: bytes) -> Point:
    """A point inside a range proof: one that is none makes the proof fail."""
    try:
        return decode(word)
    except Refusal:
        raise Refusal("refused") from None


def is_neutral(point: Point) -> bool:
    return encode(point) == bytes(32)


CHAINS: dict[tuple[bytes, int], list[Point]] = {}


def bases(letter: bytes, party: int) -> list[Point]:
    if (letter, party) not in CHAINS:
        seed = b"GeneratorsChain" + letter + party.to_bytes(4, "little")
        stream = hashlib.shake_256(seed).digest(64 * 64)
        CHAINS[letter, party] = [from_uniform(stream[64 * i : 64 * i + 64]) for i in range(64)]
    return CHAINS[letter, party]


# ------------------------------------------------- Merlin 3 over STROBE-128 and Keccak


class Transcript:
    RATE = 166

    def __init__(self, label: bytes) -> None:
        self.state = bytearray(200)
        self.state[:6] = bytes([1, self.RATE + 2, 1, 0, 1, 96])
        self.state[6:18] = b"STROBEv1.0.2"
        keccak(self.state)
        self.at = self.began = 0
        self.begin(0x12)
        self.absorb(b"Merlin v1.0")
        self.append(b"dom-sep", label)

    def append(self, label: bytes, message: bytes) -> None:
        self.begin(0x12)
        self.absorb(label + len(message).to_bytes(4, "little"))
        self.begin(0x02)
        self.absorb(message)

    def challenge(self, label: bytes) -> int:
        self.begin(0x12)
        self.absorb(label + (64).to_bytes(4, "little"))
        self.begin(0x07)
        out = bytearray()
        for _ in range(64):
            out.append(self.state[self.at])
            self.state[self.at] = 0
            self.step()
        return int.from_bytes(out, "little") % ORDER

    def begin(self, flags: int) -> None:
        before, self.began = self.began, self.at + 1
        self.absorb(bytes([before, flags]))
        if flags & 0x04 and self.at:
            self.run()

    def absorb(self, data: bytes) -> None:
        for byte in data:
            self.state[self.at] ^= byte
            self.step()

    def step(self) -> None:
        self.at += 1
        if self.at == self.RATE:
            self.run()

    def run(self) -> None:
        self.state[self.at] ^= self.began
        self.state[self.at + 1] ^= 0x04
        self.state[self.RATE + 1] ^= 0x80
        keccak(self.state)
        self.at = self.began = 0


def keccak(state: bytearray) -> None:
    """Keccak-f[1600] (FIPS 202, section 3.3)."""
    lanes = [
        [int.from_bytes(state[8 * (x + 5 * y) : 8 * (x + 5 * y) + 8], "little") for y in range(5)]
        for x in range(5)
    ]
    register = 1
    for _ in range(24):
        columns = [a[0] ^ a[1] ^ a[2] ^ a[3] ^ a[4] for a in lanes]
        mixed = [columns[(x + 4) % 5] ^ rotate_left(columns[(x + 1) % 5], 1) for x in range(5)]
        lanes = [[lane ^ mixed[x] for lane in lanes[x]] for x in range(5)]
        x, y, current = 1, 0, lanes[1][0]
        for t in range(24):
            x, y = y, (2 * x + 3 * y) % 5
            current, lanes[x][y] = lanes[x][y], rotate_left(current, (t + 1) * (t + 2) // 2)
        for y in range(5):
            row = [lanes[x][y] for x in range(5)]
            for x in range(5):
                lanes[x][y] = row[x] ^ (~row[(x + 1) % 5] & row[(x + 2) % 5])
        for j in range(7):
            if register & 1:
                lanes[0][0] ^= 1 << ((1 << j) - 1)
            register = register << 1 ^ (0x171 if register & 0x80 else 0)
    for x in range(5):
        for y in range(5):
            lane = lanes[x][y] & (2**64 - 1)
            state[8 * (x + 5 * y) : 8 * (x + 5 * y) + 8] = lane.to_bytes(8, "little")


def rotate_left(lane: int, count: int) -> int:
    lane, count = lane & (2**64 - 1), count % 64
    return (lane << count | lane >> (64 - count)) & (2**64 - 1)


# ------------------------------------------------------------------------- main

CHECKS = {"signature": check_signature, "relation": check_relation, "range": check_range}
BYTES = ("key", "message", "context", "proof", "commitment")


def judge(vector: Vector) -> str:
    vector = {k: bytes.fromhex(v) if k in BYTES else v for k, v in vector.items()}
    try:
        CHECKS[vector["kind"]](vector)
    except Refusal as refusal:
        return str(refusal)
    return "holds"


def mutations(vector: Vector) -> Iterator[tuple[str, Vector]]:
    """Vectors like this one with a byte of the proof, context or message changed."""
    proof = bytearray.fromhex(vector["proof"])
    step = 97 if vector["kind"] == "range" else 11
    for index in range(0, len(proof), step):
        proof[index] ^= 1 << index % 8
        yield f"byte {index}", {**vector, "proof": proof.hex()}
        proof[index] ^= 1 << index % 8
    for field in ("context", "message"):
        if field in vector:
            yield field, {**vector, field: vector[field] + "00"}


def main(folder: str) -> int:
    wrong, judged, changed = [], 0, 0
    for path in sorted(pathlib.Path(folder).glob("*.json")):
        vector = json.loads(path.read_text())
        got, judged = judge(vector), judged + 1
        if got != vector["outcome"]:
            wrong.append(f"{path.stem}: wanted {vector['outcome']}, got {got}")
        if vector["outcome"] == "holds":
            for what, mutated in mutations(vector):
                changed += 1
                if judge(mutated) == "holds":
                    wrong.append(f"{path.stem}: holds with another {what}")
    print(f"{judged} vectors judged, {changed} changed ones, {len(wrong)} wrong")
    print("\n".join(wrong))
    return 1 if wrong or judged < 20 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
