"""A second checker of disclosures, written from docs/disclosure.md alone. Standard library only.

check_disclosure.py [VECTORS]            every vector, and mutations of its files
check_disclosure.py --file DISCLOSURE    one file: what it shows and proves. Whether the key that
                                         signed is a notary's, its evidence says, which is not
                                         judged here; nor are proofs about texts, which need
                                         circuits: a file with some is refused as `no_circuits`
"""

from __future__ import annotations

import hashlib
import itertools
import json
import pathlib
import re
import struct
import sys
from typing import Any

import check_sigma
from check_bodies import (
    NULL,
    OBJECT,
    OCTETS,
    STRING,
    amount_of,
    body,
    canonical_number,
    rfc3339_micros,
    u32,
)

Affine = tuple[int, int]
Case = dict[str, Any]
Fact = tuple[str, Any]
Leaf = tuple[int, bytes, bytes]


VECTORS = pathlib.Path(__file__).parents[2] / "vectors/disclosure/disclosure.json"
REQUEST, RESPONSE = 1, 2


class Refused(Exception):
    """The name under which a disclosure is refused."""


def sha256(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(parts)).digest()


def u8(value: int) -> bytes:
    return struct.pack(">B", value)


def u16(value: int) -> bytes:
    return struct.pack(">H", value)


def u64(value: int) -> bytes:
    return struct.pack(">Q", value)


# Commitments


def derive(seed: bytes, purpose: int, index: int) -> bytes:
    return sha256(seed, b"confide salt v1", u8(purpose), u32(index))


def salt(seed: bytes, purpose: int, index: int) -> bytes:
    half = 16 * (index % 2)
    return derive(seed, purpose, index // 2)[half : half + 16]


def node(left: bytes, right: bytes) -> bytes:
    return sha256(b"\x01", left, right)


def tree_root(leaves: list[bytes]) -> bytes:
    while len(leaves) > 1:
        leaves = [node(*leaves[place : place + 2]) for place in range(0, len(leaves), 2)]
    return leaves[0]


def opened_root(depth: int, opened: list[tuple[int, bytes]], siblings: list[bytes]) -> bytes:
    """The root to which leaves lead; refuses what does not fit exactly."""
    indices = [index for index, _ in opened]
    if not opened or indices != sorted(set(indices)) or indices[-1] >= 1 << depth:
        raise Refused("opening")
    known, siblings = dict(opened), list(siblings)
    for _ in range(depth):
        above = {}
        for index in sorted(known):
            if index >> 1 in above:
                continue
            other = known.get(index ^ 1)
            if other is None:
                if not siblings:
                    raise Refused("opening")
                other = siblings.pop(0)
            pair = (known[index], other) if index % 2 == 0 else (other, known[index])
            above[index >> 1] = node(*pair)
        known = above
    if siblings:
        raise Refused("opening")
    return known[0]


def chunk_leaf(direction: int, index: int, leaf_salt: bytes, chunk: bytes) -> bytes:
    return sha256(b"\x00", u8(direction), u32(index), leaf_salt, chunk)


def length_commitment(direction: int, depth: int, length_salt: bytes, length: int) -> bytes:
    return sha256(b"\x04", u8(direction), u8(depth), length_salt, u64(length))


def commit(seed: bytes, direction: int, data: bytes) -> tuple[int, bytes, bytes]:
    chunks = [data[place : place + 64] for place in range(0, len(data), 64)]
    depth = 4
    while 1 << depth < len(chunks):
        depth += 1
    chunks += [b""] * ((1 << depth) - len(chunks))
    leaves = [
        chunk_leaf(direction, index, salt(seed, direction, index), chunk)
        for index, chunk in enumerate(chunks)
    ]
    length = length_commitment(direction, depth, salt(seed, 2 + direction, 0), len(data))
    return depth, length, tree_root(leaves)


def field_leaf(path: str, kind: int, digest: bytes, commitment: bytes | None) -> bytes:
    name = path.encode()
    after = b"\x00" if commitment is None else b"\x01" + commitment
    return sha256(b"\x02", u8(kind), u16(len(name)), name, digest, after)


def value_digest(value_salt: bytes, value: bytes) -> bytes:
    return sha256(b"\x03", value_salt, value)


# P-256

P = 2**256 - 2**224 + 2**192 + 2**96 - 1
N = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
B = 0x5AC635D8AA3A93E7B3EBBD55769886BC651D06B0CC53B0F63BCE3C3E27D2604B
G = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)


def add(one: Affine | None, two: Affine | None) -> Affine | None:
    if one is None or two is None:
        return one or two
    if one[0] == two[0]:
        if (one[1] + two[1]) % P == 0:
            return None
        slope = (3 * one[0] ** 2 - 3) * pow(2 * one[1], -1, P) % P
    else:
        slope = (two[1] - one[1]) * pow(two[0] - one[0], -1, P) % P
    x = (slope**2 - one[0] - two[0]) % P
    return x, (slope * (one[0] - x) - one[1]) % P


def times(scalar: int, point: Affine | None) -> Affine | None:
    total = None
    while scalar:
        if scalar & 1:
            total = add(total, point)
        point, scalar = add(point, point), scalar >> 1
    return total


def verify_signature(key: bytes, message: bytes, signature: bytes) -> None:
    x, y = int.from_bytes(key[1:33]), int.from_bytes(key[33:])
    r, s = int.from_bytes(signature[:32]), int.from_bytes(signature[32:])
    on_curve = key[0] == 4 and x < P and y < P and (y * y - x**3 + 3 * x - B) % P == 0
    if not on_curve or not 0 < r < N or not 0 < s <= N // 2:
        raise Refused("signature")
    e, w = int.from_bytes(sha256(message)), pow(s, -1, N)
    point = add(times(e * w % N, G), times(r * w % N, (x, y)))
    if point is None or point[0] % N != r:
        raise Refused("signature")


# Files


class Reader:
    def __init__(self, data: bytes, magic: bytes) -> None:
        if not data.startswith(magic):
            raise Refused("format")
        self.data, self.place = data, len(magic)

    def raw(self, length: int) -> bytes:
        taken = self.data[self.place : self.place + length]
        if len(taken) != length:
            raise Refused("format")
        self.place += length
        return taken

    def number(self, size: int) -> int:
        return int.from_bytes(self.raw(size))

    def read_sized(self, size: int, limit: int) -> bytes:
        length = self.number(size)
        if length > limit:
            raise Refused("format")
        return self.raw(length)

    def text(self, limit: int) -> str:
        try:
            return self.read_sized(2, limit).decode()
        except UnicodeDecodeError:
            raise Refused("format") from None

    def flag(self) -> bool:
        value = self.number(1)
        if value > 1:
            raise Refused("format")
        return value == 1

    def count(self, limit: int) -> int:
        value = self.number(4)
        if value > limit:
            raise Refused("format")
        return value

    def siblings(self) -> list[bytes]:
        return [self.raw(32) for _ in range(self.count(1 << 18))]

    def end(self) -> None:
        if self.place != len(self.data):
            raise Refused("format")


TLS_GROUPS = {0x303: (0x17, 0x18, 0x1D), 0x304: (0x17, 0x18, 0x1D, 0x11EB, 0x11EC)}
TLS_SUITES = {
    0x303: (0xC02B, 0xC02C, 0xC02F, 0xC030, 0xCCA8, 0xCCA9),
    0x304: (0x1301, 0x1302, 0x1303),
}


def read_statement(data: bytes) -> Case:
    reader = Reader(data, b"confide/notary-statement/v2\x00")
    statement: Case = {"host": reader.text(253), "port": reader.number(2), "chain": reader.raw(32)}
    statement |= {"tls": reader.number(2), "group": reader.number(2), "suite": reader.number(2)}
    statement |= {"time": reader.number(8), "http": reader.number(1)}
    statement |= {"request_view": reader.number(1), "response_view": reader.number(1)}
    for name in ("request", "response"):
        statement[name] = {
            "depth": reader.number(1),
            "length": reader.raw(32),
            "root": reader.raw(32),
        }
    statement["fields"] = {"depth": reader.number(1), "root": reader.raw(32)}
    statement["key"] = reader.raw(65)
    reader.end()
    views = (0, 1, 2, 3, 16, 17, 18, 19)
    good = (
        re.fullmatch(r"[a-z0-9._:-]{1,253}", statement["host"])
        and statement["group"] in TLS_GROUPS.get(statement["tls"], ())
        and statement["suite"] in TLS_SUITES[statement["tls"]]
        and statement["http"] in (1, 2)
        and statement["request_view"] in views
        and statement["response_view"] in views
        and all(4 <= statement[name]["depth"] <= 18 for name in ("request", "response"))
        and 6 <= statement["fields"]["depth"] <= 18
    )
    if not good:
        raise Refused("format")
    return statement


def read_bytes(reader: Reader) -> tuple[list[Leaf], list[bytes]]:
    leaves = []
    for _ in range(reader.count(1 << 18)):
        leaves.append((reader.number(4), reader.raw(16), reader.read_sized(1, 64)))
    if any(one[0] >= two[0] for one, two in itertools.pairwise(leaves)):
        raise Refused("format")
    return leaves, reader.siblings()


def read_field(reader: Reader) -> Case:
    field: Case = {"place": reader.number(4), "kind": reader.number(1)}
    if not NULL <= field["kind"] <= OCTETS:
        raise Refused("format")
    field["path"] = reader.text(1024)
    field["commitment"] = reader.raw(32) if reader.flag() else None
    if reader.flag():
        field["salt"], field["value"] = reader.raw(16), reader.read_sized(4, 16 << 20)
        if field["kind"] not in (OBJECT, OCTETS):
            try:
                field["value"].decode()
            except UnicodeDecodeError:
                raise Refused("format") from None
        field["digest"] = value_digest(field["salt"], field["value"])
    else:
        field["digest"] = reader.raw(32)
    return field


COMPARE, BYTES_CONTAIN, FIELD_CONTAINS, FIELD_SHA256, OTHER, EQUAL = range(1, 7)
TEXTS = (BYTES_CONTAIN, FIELD_CONTAINS, FIELD_SHA256)


def read_claim(reader: Reader, nested: bool) -> Case:
    kind = reader.number(1)
    if kind == OTHER and not nested:
        return {"kind": kind, "other": read_disclosure(reader.read_sized(4, 1 << 20), nested=True)}
    claim: Case = {"kind": kind}
    if kind == COMPARE:
        claim |= {"field": reader.number(4), "operator": reader.number(1)}
        claim |= {"low": reader.number(8), "high": reader.number(8)}
        low, high = claim["low"], claim["high"]
        good = {1: low == 0, 2: high == 2**64 - 1, 3: low == high, 4: low <= high}
        if not good.get(claim["operator"]):
            raise Refused("format")
    elif kind == BYTES_CONTAIN:
        claim |= {"direction": reader.number(1), "text": reader.text(64)}
        if claim["direction"] not in (REQUEST, RESPONSE):
            raise Refused("format")
    elif kind == FIELD_CONTAINS:
        claim |= {"field": reader.number(4), "text": reader.text(64)}
    elif kind == FIELD_SHA256:
        claim |= {"field": reader.number(4), "sha256": reader.raw(32)}
    elif kind == EQUAL:
        claim |= {"field": reader.number(4), "elsewhere": reader.flag()}
        claim["second"] = reader.number(4)
    else:
        raise Refused("format")
    if claim.get("text") == "":
        raise Refused("format")
    return claim | {"proof": reader.read_sized(4, 1 << 20)}


def read_disclosure(data: bytes, nested: bool = False) -> Case:
    reader = Reader(data, b"confide disclosure v1\n")
    encoded = reader.read_sized(4, 1024)
    file: Case = {
        "encoded": encoded,
        "statement": read_statement(encoded),
        "signature": reader.raw(64),
    }
    limits = (32 << 10, 1024, 94 << 10)
    file["evidence"] = [reader.read_sized(4, limit) for limit in limits]
    for direction in ("request", "response"):
        opened = read_bytes(reader) if reader.flag() else None
        length = (reader.number(8), reader.raw(16)) if reader.flag() else None
        file[direction] = (opened, length)
    file |= {"fields": None, "siblings": None}
    if reader.flag():
        file["fields"] = [read_field(reader) for _ in range(reader.count(1 << 16))]
        file["siblings"] = reader.siblings()
        places = [field["place"] for field in file["fields"]]
        if places != sorted(set(places)):
            raise Refused("format")
    file["claims"] = [read_claim(reader, nested) for _ in range(reader.count(64))]
    reader.end()
    kinds = [claim["kind"] for claim in file["claims"]]
    if sum(kind in TEXTS for kind in kinds) > 8 or kinds.count(OTHER) > 1:
        raise Refused("format")
    return file


def check(data: bytes, with_proofs: bool = True) -> list[Fact]:
    """What a disclosure shows and proves: a list of (name, value). Evidence is judged elsewhere."""
    file = read_disclosure(data)
    known = check_file(file, with_proofs)
    if not known:
        raise Refused("empty")
    other = other_of(file)
    return known + [("other " + name, value) for name, value in other["known"]] if other else known


def check_file(file: Case, with_proofs: bool) -> list[Fact]:
    statement = file["statement"]
    verify_signature(statement["key"], file["encoded"], file["signature"])
    shown = []
    for direction, name in ((REQUEST, "request"), (RESPONSE, "response")):
        opened, length = file[name]
        signed = statement[name]
        if opened is not None:
            shown += check_bytes(direction, name, opened[0], opened[1], signed)
        if length is not None:
            value, length_salt = length
            if (
                length_commitment(direction, signed["depth"], length_salt, value)
                != signed["length"]
            ):
                raise Refused("opening")
            shown.append((f"{name}.length", value))
    if file["fields"] is not None:
        leaves = [(field["place"], leaf_of(field)) for field in file["fields"]]
        if (
            opened_root(statement["fields"]["depth"], leaves, file["siblings"])
            != statement["fields"]["root"]
        ):
            raise Refused("opening")
        shown += [(field["path"], field["value"]) for field in file["fields"] if "value" in field]
    other = other_of(file)
    if other:
        if sha256(other["encoded"]) == sha256(file["encoded"]):
            raise Refused("same_session")
        if not any(claim["kind"] == EQUAL and claim["elsewhere"] for claim in file["claims"]):
            raise Refused("other_unused")
        other["known"] = check_file(other, with_proofs)
    proven = [check_claim(file, claim, with_proofs) for claim in file["claims"]]
    return shown + [fact for fact in proven if fact]


def other_of(file: Case) -> Any:
    return next((claim["other"] for claim in file["claims"] if claim["kind"] == OTHER), None)


def opened_field(file: Case, place: int) -> Any:
    fields = (file and file["fields"]) or []
    if place >= len(fields):
        raise Refused("proof")
    return fields[place]


def check_claim(file: Case, claim: Case, with_proofs: bool) -> Fact | None:
    """What is proven, as (name, what)."""
    kind = claim["kind"]
    if kind == OTHER:
        return None
    field: Any = opened_field(file, claim["field"]) if "field" in claim else None
    if kind in (FIELD_CONTAINS, FIELD_SHA256) and field["kind"] != STRING:
        raise Refused("proof")
    if kind in TEXTS:
        raise Refused("no_circuits")
    if kind == COMPARE:
        if field["commitment"] is None:
            raise Refused("proof")
        if with_proofs:
            range_proof(file, claim, field)
        return field["path"], (claim["low"], claim["high"])
    side = other_of(file) if claim["elsewhere"] else file
    second = opened_field(side, claim["second"])
    if second is field:
        raise Refused("same_field")
    if None in (field["commitment"], second["commitment"]) or field["kind"] != second["kind"]:
        raise Refused("proof")
    if with_proofs:
        equality_proof(claim, (file, field), (side, second))
    return field["path"], "== " + "other." * claim["elsewhere"] + second["path"]


def leaf_of(field: Case) -> bytes:
    return field_leaf(field["path"], field["kind"], field["digest"], field["commitment"])


def range_proof(file: Case, claim: Case, field: Case) -> None:
    """Whether the proof holds, for this statement and field."""
    context = b"confide/disclosure/v1/field\x00" + sha256(file["encoded"]) + leaf_of(field)
    vector = {"low": claim["low"], "high": claim["high"], "proof": claim["proof"]}
    try:
        check_sigma.check_range(vector | {"commitment": field["commitment"], "context": context})
    except check_sigma.Refusal:
        raise Refused("proof") from None


def equality_proof(claim: Case, one: tuple[Case, Case], two: tuple[Case, Case]) -> None:
    """Whether the proof holds, for these two fields of these statements."""
    context = b"confide/disclosure/v1/equal\x00"
    terms = []
    for weight, (file, field) in ((1, one), (-1, two)):
        context += sha256(file["encoded"]) + leaf_of(field)
        terms.append({"weight": weight, "commitment": field["commitment"].hex()})
    vector = {"terms": terms, "constant": "0", "proof": claim["proof"], "context": context}
    try:
        check_sigma.check_relation(vector)
    except check_sigma.Refusal:
        raise Refused("proof") from None


def check_bytes(
    direction: int, name: str, leaves: list[Leaf], siblings: list[bytes], signed: Case
) -> list[Fact]:
    opened = [
        (index, chunk_leaf(direction, index, leaf_salt, chunk))
        for index, leaf_salt, chunk in leaves
    ]
    if opened_root(signed["depth"], opened, siblings) != signed["root"]:
        raise Refused("opening")
    for (_, _, chunk), (_, _, after) in itertools.pairwise(leaves):
        if len(chunk) < 64 and after:
            raise Refused("opening")
    return [(f"{name}.bytes:{64 * index}", chunk) for index, _, chunk in leaves]


# The vectors


def verdict(data: bytes, with_proofs: bool = True) -> str | None:
    try:
        check(data, with_proofs)
    except Refused as refused:
        return refused.args[0]
    return None


def check_parts(vectors: Case) -> None:
    for case in vectors["numbers"]:
        canonical_form, micros = canonical_number(case["token"]) or (None, None)
        amount = None if micros is None else str(2**63 + micros)
        assert (canonical_form, amount) == (case["canonical"], case["amount"]), case
    for case in vectors["dates"]:
        assert rfc3339_micros(case["text"]) == case["micros"], case
    for media, cases in (("application/json", "json"), ("text/event-stream", "events")):
        for case in vectors[cases]:
            view, fields = body(media, bytes.fromhex(case["body"]))
            wanted = [(f["path"], f["kind"], bytes.fromhex(f["value"])) for f in case["fields"]]
            assert view == case["view"], (case, view)
            assert sorted(fields) == sorted(wanted), (case, fields)
            for field in case["fields"]:
                number = amount_of(field["kind"], bytes.fromhex(field["value"]))
                assert (None if number is None else str(number)) == field["amount"], field


def check_commitments(vectors: Case) -> None:
    for case in vectors["transcripts"]:
        seed, data = bytes.fromhex(case["seed"]), bytes.fromhex(case["bytes"])
        depth, length, root = commit(seed, case["direction"], data)
        wanted = (case["depth"], bytes.fromhex(case["length"]), bytes.fromhex(case["root"]))
        assert (depth, length, root) == wanted, case["depth"]
    case = vectors["fields"]
    seed = bytes.fromhex(case["seed"])
    leaves = []
    for index, field in enumerate(case["fields"]):
        digest = value_digest(salt(seed, 5, index), bytes.fromhex(field["value"]))
        leaves.append(field_leaf(field["path"], field["kind"], digest, None))
    tree = leaves + [derive(seed, 6, index) for index in range(len(leaves), 1 << case["depth"])]
    tree.sort()
    assert tree_root(tree).hex() == case["root"]
    assert [tree.index(leaf) for leaf in leaves] == case["places"]


def check_statement(case: Case) -> None:
    encoded = bytes.fromhex(case["encoded"])
    statement = read_statement(encoded)
    assert sha256(encoded).hex() == case["digest"]
    prefix = bytes.fromhex("3059301306072a8648ce3d020106082a8648ce3d030107034200")
    assert sha256(prefix, statement["key"]).hex() == case["spki_hash"]
    verify_signature(statement["key"], encoded, bytes.fromhex(case["signature"]))


def mutations(data: bytes) -> int:
    """Copies with one bit changed that are not refused although they say something else."""
    file = read_disclosure(data)
    before = len(b"confide disclosure v1\n") + 4 + len(file["encoded"]) + 64
    # Evidence is opaque here; the claims come last, and a changed proof takes long to refuse.
    skipped = before + 12 + sum(len(part) for part in file["evidence"])
    proofs = sum(len(claim.get("proof", b"")) + 26 for claim in file["claims"]) + 4
    wrong = 0
    for place in range(len(data) - proofs):
        is_signed = place < before
        if before <= place < skipped or (is_signed and place % 23):
            continue
        changed = bytearray(data)
        changed[place] ^= 1 << place % 8
        if verdict(bytes(changed), with_proofs=False) is None:
            print(f"accepted with byte {place} changed")
            wrong += 1
    return wrong


def mutated_equalities(good: list[Case]) -> int:
    """Claims of equality with one bit changed that are not refused although they say something else."""
    named = [bytes.fromhex(case["file"]) for case in good if "equal" in case["name"]]
    assert named, "no vector has equal numbers"
    wrong = 0
    for data in named:
        # The last claim: kind, field, session, field, length, proof.
        for place in range(len(data) - 62, len(data), 5):
            changed = bytearray(data)
            changed[place] ^= 1 << place % 8
            if verdict(bytes(changed)) is None:
                print(f"accepted with byte {place} changed")
                wrong += 1
    return wrong


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--file"]:
        for name, value in check(pathlib.Path(arguments[1]).read_bytes()):
            print(name, value)
        return 0
    vectors = json.loads(pathlib.Path(arguments[0] if arguments else VECTORS).read_text())
    check_parts(vectors)
    check_commitments(vectors)
    check_statement(vectors["statement"])
    for case in vectors["files"]:
        got = verdict(bytes.fromhex(case["file"]))
        assert got == case["refused"], (case["name"], got)
    good = [case for case in vectors["files"] if case["refused"] is None]
    wrong = sum(mutations(bytes.fromhex(case["file"])) for case in good[:2])
    wrong += mutated_equalities(good)
    files = len(vectors["files"])
    print(f"disclosure: {files} files and the parts of {VECTORS.name} agree; mutations refused")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
