"""A second reader of encrypted bodies, written from docs/encrypted-bodies.md alone. Standard library only.

check_encrypted_body.py [VECTORS]    every vector of X25519. The hybrid key is left out: its vectors are counted

X25519 (RFC 7748) and AES-256-GCM (FIPS 197, SP 800-38D) are written here for vectors, not for secrets.
"""

import hashlib
import hmac
import json
import pathlib
import sys
from typing import Any

VECTORS = pathlib.Path(__file__).parents[2] / "vectors/encrypted-body"
X25519, X_WING = "ehbp-x25519-hkdf-sha256-aes-256-gcm", "ehbp-x-wing-hkdf-sha256-aes-256-gcm"
KEMS = {0x0020: (X25519, 32), 0x647A: (X_WING, 1216)}
SUITE = bytes([0, 1, 0, 2])
CONFIGURATIONS_MAX = 16
TAG_BYTES = 16
FRAME_BYTES_MAX = 1024
FINAL = "final-frame"
Record = dict[str, Any]


class Refused(Exception):
    """The name under which a body is refused."""


# ------------------------------------------------------------------ X25519, AES-GCM

PRIME = 2**255 - 19
BASE_POINT = bytes([9]) + bytes(31)


def multiply_point(scalar: bytes, point: bytes) -> bytes:
    """X25519 (RFC 7748 section 5)."""
    bits = int.from_bytes(scalar, "little") & ~7 & (2**254 - 1) | 2**254
    x1 = int.from_bytes(point, "little") & (2**255 - 1)
    x2, z2, x3, z3, swap = 1, 0, x1, 1, 0
    for index in range(254, -1, -1):
        bit = bits >> index & 1
        if swap ^ bit:
            x2, x3, z2, z3 = x3, x2, z3, z2
        swap = bit
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        da, cb, aa, bb = d * a, c * b, a * a % PRIME, b * b % PRIME
        x3, z3 = (da + cb) ** 2 % PRIME, x1 * (da - cb) ** 2 % PRIME
        x2, z2 = aa * bb % PRIME, (aa - bb) * (aa + 121665 * (aa - bb)) % PRIME
    if swap:
        x2, z2 = x3, z3
    return (x2 * pow(z2, PRIME - 2, PRIME) % PRIME).to_bytes(32, "little")


def double(byte: int) -> int:
    return byte << 1 ^ (0x11B if byte & 0x80 else 0)


def make_sbox() -> list[int]:
    box, p, q = [0x63] * 256, 1, 1
    for _ in range(255):
        p ^= double(p)
        q ^= q << 1
        q ^= q << 2
        q ^= q << 4
        q &= 0xFF
        q ^= 0x09 if q & 0x80 else 0
        mixed = q
        for shift in range(1, 5):
            mixed ^= (q << shift | q >> 8 - shift) & 0xFF
        box[p] = mixed ^ 0x63
    return box


SBOX = make_sbox()


class Aes:
    """One block of AES with a key of 16 or 32 bytes (FIPS 197)."""

    def __init__(self, key: bytes) -> None:
        length, factor = len(key) // 4, 1
        self.rounds = length + 6
        words = [list(key[index : index + 4]) for index in range(0, len(key), 4)]
        for index in range(length, 4 * self.rounds + 4):
            word = words[-1]
            if index % length == 0:
                word = [SBOX[byte] for byte in word[1:] + word[:1]]
                word[0] ^= factor
                factor = double(factor)
            elif length == 8 and index % 8 == 4:
                word = [SBOX[byte] for byte in word]
            words.append([a ^ b for a, b in zip(word, words[-length], strict=True)])
        self.keys = [
            [byte for word in words[at : at + 4] for byte in word] for at in range(0, len(words), 4)
        ]

    def encrypt(self, block: bytes) -> bytes:
        state = [a ^ b for a, b in zip(block, self.keys[0], strict=True)]
        for number in range(1, self.rounds + 1):
            state = [SBOX[state[(index + index % 4 * 4) % 16]] for index in range(16)]
            if number < self.rounds:
                columns = [state[index : index + 4] for index in range(0, 16, 4)]
                state = []
                for column in columns:
                    total = column[0] ^ column[1] ^ column[2] ^ column[3]
                    turned = column[1:] + column[:1]
                    state += [
                        a ^ total ^ double(a ^ b) for a, b in zip(column, turned, strict=True)
                    ]
            state = [a ^ b for a, b in zip(state, self.keys[number], strict=True)]
        return bytes(state)


def multiply_blocks(x: int, y: int) -> int:
    product = 0
    for index in range(127, -1, -1):
        if x >> index & 1:
            product ^= y
        y = y >> 1 ^ (0xE1 << 120 if y & 1 else 0)
    return product


def decrypt_gcm(key: bytes, nonce: bytes, sealed: bytes, data: bytes) -> bytes | None:
    """The plaintext (SP 800-38D), or nothing if the tag is another."""
    aes = Aes(key)
    hash_key, digest = int.from_bytes(aes.encrypt(bytes(16)), "big"), 0
    ciphertext, tag = sealed[:-TAG_BYTES], sealed[-TAG_BYTES:]
    lengths = (len(data) * 8).to_bytes(8, "big") + (len(ciphertext) * 8).to_bytes(8, "big")
    for part in (data, ciphertext, lengths):
        for index in range(0, len(part), 16):
            block = int.from_bytes(part[index : index + 16].ljust(16, b"\0"), "big")
            digest = multiply_blocks(digest ^ block, hash_key)
    blocks = len(ciphertext) // 16 + 2
    stream = b"".join(
        aes.encrypt(nonce + number.to_bytes(4, "big")) for number in range(1, blocks + 1)
    )
    if int.from_bytes(tag, "big") != digest ^ int.from_bytes(stream[:16], "big"):
        return None
    return bytes(a ^ b for a, b in zip(ciphertext, stream[16:], strict=False))


# ------------------------------------------------------------------- HKDF and HPKE


def extract(salt: bytes, secret: bytes) -> bytes:
    return hmac.digest(salt or bytes(32), secret, hashlib.sha256)


def expand(key: bytes, info: bytes, length: int) -> bytes:
    output, block = b"", b""
    while len(output) < length:
        block = hmac.digest(key, block + info + bytes([len(output) // 32 + 1]), hashlib.sha256)
        output += block
    return output[:length]


def labelled_extract(suite: bytes, salt: bytes, label: bytes, secret: bytes) -> bytes:
    return extract(salt, b"HPKE-v1" + suite + label + secret)


def labelled_expand(suite: bytes, key: bytes, label: bytes, info: bytes, length: int) -> bytes:
    return expand(key, length.to_bytes(2, "big") + b"HPKE-v1" + suite + label + info, length)


class Cipher:
    """AES-GCM under one key, whose nonces count."""

    def __init__(self, key: bytes, base: bytes) -> None:
        self.key, self.base, self.number = key, base, 0

    def open(self, ciphertext: bytes, is_final: bool) -> bytes:
        nonce = (int.from_bytes(self.base, "big") ^ self.number).to_bytes(12, "big")
        self.number += 1
        text = decrypt_gcm(self.key, nonce, ciphertext, b"final" if is_final else b"")
        if text is None:
            raise Refused("decryption")
        return text


class HpkeContext:
    """The recipient's context of HPKE in base mode: X25519, HKDF-SHA256, AES-GCM (RFC 9180)."""

    def __init__(self, private_key: bytes, encapsulated: bytes, info: bytes, aead: int) -> None:
        key_bytes = {1: 16, 2: 32}[aead]
        shared = agree(private_key, encapsulated)
        self.suite = b"HPKE" + bytes([0, 0x20, 0, 1, 0, aead])
        psk_id = labelled_extract(self.suite, b"", b"psk_id_hash", b"")
        context = b"\0" + psk_id + labelled_extract(self.suite, b"", b"info_hash", info)
        secret = labelled_extract(self.suite, shared, b"secret", b"")
        key = labelled_expand(self.suite, secret, b"key", context, key_bytes)
        self.cipher = Cipher(key, labelled_expand(self.suite, secret, b"base_nonce", context, 12))
        self.exporter = labelled_expand(self.suite, secret, b"exp", context, 32)

    def export(self, label: bytes, length: int) -> bytes:
        return labelled_expand(self.suite, self.exporter, b"sec", label, length)


def agree(private_key: bytes, encapsulated: bytes) -> bytes:
    """The shared secret of DHKEM(X25519, HKDF-SHA256)."""
    shared = multiply_point(private_key, encapsulated)
    suite = b"KEM" + (0x0020).to_bytes(2, "big")
    context = encapsulated + multiply_point(private_key, BASE_POINT)
    prk = labelled_extract(suite, b"", b"eae_prk", shared)
    return labelled_expand(suite, prk, b"shared_secret", context, 32)


def open_request(private_key: bytes, encapsulated: bytes, has_end: bool) -> Cipher:
    info = b"ehbp request" + (b"\0confide final-frame" if has_end else b"")
    return HpkeContext(private_key, encapsulated, info, 2).cipher


def open_answer(secret: bytes, encapsulated: bytes, nonce: bytes) -> Cipher:
    prk = extract(encapsulated + nonce, secret)
    return Cipher(expand(prk, b"key", 32), expand(prk, b"nonce", 12))


# -------------------------------------------------------------------------- frames


def open_body(body: bytes, has_end: bool, cipher: Cipher) -> bytes:
    text, frames, is_final = b"", 0, False
    while body:
        if is_final and frames < 0:
            raise Refused("after_final_frame")
        if len(body) < 4:
            raise Refused("cut_frame")
        length, body = int.from_bytes(body[:4], "big"), body[4:]
        if length == 0 and not has_end:
            continue
        if length == 0 and not is_final:
            is_final = True
            continue
        if length < TAG_BYTES:
            raise Refused("frame_too_short")
        if length > FRAME_BYTES_MAX:
            raise Refused("frame_too_long")
        if len(body) < length:
            raise Refused("cut_frame")
        text += cipher.open(body[:length], is_final)
        body = body[length:]
        # Less than no frames says that the final one was read.
        frames = -1 if is_final else frames + 1
    if has_end and frames >= 0:
        raise Refused("final_frame_missing")
    if frames == 0:
        raise Refused("no_frame")
    return text


# -------------------------------------------------------------- key configurations


class Malformed(Exception):
    """Bytes that are no key configuration."""


def take(data: bytes, length: int) -> tuple[bytes, bytes]:
    if len(data) < length:
        raise Malformed
    return data[:length], data[length:]


def read_configuration(data: bytes) -> Record | None:
    head, data = take(data, 3)
    kem = KEMS.get(int.from_bytes(head[1:], "big"))
    if kem is None:
        return None
    name, length = kem
    key, data = take(data, length)
    count, data = take(data, 2)
    suites, data = take(data, int.from_bytes(count, "big"))
    if data or len(suites) % 4:
        raise Malformed
    if SUITE not in [suites[index : index + 4] for index in range(0, len(suites), 4)]:
        return None
    return {"algo": name, "public_key": key.hex()}


def read_list(data: bytes) -> list[Record]:
    keys: list[Record] = []
    for _ in range(CONFIGURATIONS_MAX):
        if not data:
            break
        length, data = take(data, 2)
        config, data = take(data, int.from_bytes(length, "big"))
        key = read_configuration(config)
        keys += [key] if key else []
    if data:
        raise Malformed
    return keys


def read_configurations(data: bytes) -> list[Record] | None:
    try:
        key = read_configuration(data)
    except Malformed:
        key = None
    try:
        return ([key] if key else read_list(data)) or None
    except Malformed:
        return None


# ------------------------------------------------------------------------- vectors


def read_cases(folder: pathlib.Path, name: str, member: str = "cases") -> list[Record]:
    cases: list[Record] = json.loads((folder / name).read_text())[member]
    return cases


def check_case(case: Record, cipher: Cipher) -> None:
    try:
        outcome = {
            "text": open_body(bytes.fromhex(case["body"]), case["body_end"] == FINAL, cipher).hex()
        }
    except Refused as refused:
        outcome = {"refused": str(refused)}
    wanted = {name: case[name] for name in ("text", "refused") if name in case}
    assert outcome == wanted, (case["name"], outcome, wanted)


def main() -> None:
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else VECTORS
    keys = {key["algo"]: key for key in read_cases(folder, "keys.json", "keys")}
    private_key = bytes.fromhex(keys[X25519]["private_key"])
    assert multiply_point(private_key, BASE_POINT).hex() == keys[X25519]["public_key"]
    configurations = read_cases(folder, "keys.json", "configurations")
    for case in configurations:
        assert read_configurations(bytes.fromhex(case["bytes"])) == case["keys"], case["name"]
    requests = read_cases(folder, "requests.json")
    left_out = [case for case in requests if case["algo"] != X25519]
    for case in requests:
        if case["algo"] == X25519:
            encapsulated = bytes.fromhex(case["encapsulated_key"])
            has_end = case["body_end"] == FINAL
            check_case(case, open_request(private_key, encapsulated, has_end))
    answers = read_cases(folder, "answers.json")
    for case in answers:
        parts = [bytes.fromhex(case[name]) for name in ("secret", "encapsulated_key", "nonce")]
        check_case(case, open_answer(*parts))
    checked = len(configurations) + len(requests) - len(left_out) + len(answers)
    print(f"encrypted bodies: {checked} vectors agree, {len(left_out)} of the hybrid key left out")


if __name__ == "__main__":
    main()
