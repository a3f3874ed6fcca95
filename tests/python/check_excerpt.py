"""A second maker and checker of excerpts, written from docs/receipts.md and docs/disclosure.md alone.

check_excerpt.py            every vector, and mutations of accepted excerpts
check_excerpt.py --write    writes the vectors
"""

import hashlib
import json
import pathlib
import sys
from typing import Any

import check_disclosure
import check_receipt
from check_receipt import Record, canonical_form, digest_text, find_event, member, require

FOLDER = pathlib.Path(__file__).parents[2] / "vectors/receipt"
MAGIC = b"confide excerpt v1\n"
RECEIPT_ID = "rcpt-0002"
SECRET = bytes([1]) * 32
# The seed of the key in the report `gateway` of the receipts' vectors.
KEY_SEED = bytes([2]) * 32
REQUEST = b'{"messages":[{"content":"What is the code?","role":"user"}],"model":"demo-model"}'
ANSWER = b"".join(b'data: {"n":%04d}\n\n' % number for number in range(100)) + b"data: [DONE]\n\n"
EVENTS = {"request": "request.received", "response": "response.returned"}
DIRECTIONS = {"request": 1, "response": 2}


# ------------------------------------------------------------------------ making


def sign(document: Record) -> Record:
    """Signs with Ed25519 (RFC 8032, 5.1.6)."""
    digest = hashlib.sha512(KEY_SEED).digest()
    scalar = int.from_bytes(digest[:32], "little") & ((1 << 254) - 8) | 1 << 254
    public = check_receipt.encode_point(check_receipt.multiply_point(scalar, check_receipt.BASE))
    message = canonical_form(document).encode()
    nonce = int.from_bytes(hashlib.sha512(digest[32:] + message).digest(), "little")
    first = check_receipt.encode_point(check_receipt.multiply_point(nonce, check_receipt.BASE))
    challenge = int.from_bytes(hashlib.sha512(first + public + message).digest(), "little")
    second = (nonce + challenge * scalar) % check_receipt.ORDER
    return {**document, "signature": (first + second.to_bytes(32, "little")).hex()}


def derive_seed(secret: bytes, receipt_id: str) -> bytes:
    return hashlib.sha256(b"confide receipt seed v1" + secret + receipt_id.encode()).digest()


SEED = derive_seed(SECRET, RECEIPT_ID)


def commit(direction: str, body: bytes) -> Record:
    depth, length, root = check_disclosure.commit(SEED, DIRECTIONS[direction], body)
    return {"depth": depth, "length": length.hex(), "root": root.hex()}


def make_receipt(keyset_digest: str, events: list[Record]) -> Record:
    return {
        "api_version": "aci/1",
        "receipt_id": RECEIPT_ID,
        "chat_id": None,
        "model": None,
        "workload_keyset_digest": keyset_digest,
        "endpoint": "/v1/chat/completions",
        "method": "POST",
        "served_at": 1780272000,
        "event_log": events,
        "key_id": "receipt-1",
    }


def body_events() -> list[Record]:
    return [
        {"type": "request.received", "commitment": commit("request", REQUEST)},
        {"type": "response.returned", "commitment": commit("response", ANSWER), "status": 200},
    ]


def open_chunks(direction: str, body: bytes, places: list[int]) -> bytes:
    """Opens chunks, with the nodes that lead from them to the root."""
    number = DIRECTIONS[direction]
    depth = commit(direction, body)["depth"]
    chunks = [body[64 * place : 64 * place + 64] for place in range(1 << depth)]
    salts = [check_disclosure.salt(SEED, number, place) for place in range(1 << depth)]
    level = [
        check_disclosure.chunk_leaf(number, place, salts[place], chunk)
        for place, chunk in enumerate(chunks)
    ]
    siblings, known = [], sorted(places)
    while len(level) > 1:
        siblings += [level[place ^ 1] for place in known if place ^ 1 not in known]
        level = [check_disclosure.node(*level[at : at + 2]) for at in range(0, len(level), 2)]
        known = sorted({place // 2 for place in known})
    leaves = [
        place.to_bytes(4) + salts[place] + bytes([len(chunks[place])]) + chunks[place]
        for place in sorted(places)
    ]
    return b"".join([b"\1", len(leaves).to_bytes(4), *leaves, len(siblings).to_bytes(4), *siblings])


def open_length(direction: str, body: bytes) -> bytes:
    salt = check_disclosure.salt(SEED, 2 + DIRECTIONS[direction], 0)
    return b"\1" + len(body).to_bytes(8) + salt


def make_file(
    document: Record,
    request: tuple[bytes, bytes] = (b"\0", b"\0"),
    response: tuple[bytes, bytes] = (b"\0", b"\0"),
) -> bytes:
    receipt = canonical_form(document).encode()
    return b"".join([MAGIC, len(receipt).to_bytes(4), receipt, *request, *response])


def make_signed(keyset_digest: str, events: list[Record]) -> Record:
    return sign(make_receipt(keyset_digest, events))


def make_accepted(keyset_digest: str) -> list[tuple[str, bytes, str | None]]:
    request, response = body_events()
    whole = make_signed(keyset_digest, [request, response])
    chunks = open_chunks("response", ANSWER, [2, 3, 28])
    length = open_length("response", ANSWER)
    return [
        ("parts of an answer and its length", make_file(whole, response=(chunks, length)), None),
        (
            "parts of both bodies",
            make_file(
                whole,
                (open_chunks("request", REQUEST, [0]), open_length("request", REQUEST)),
                (open_chunks("response", ANSWER, [0]), b"\0"),
            ),
            None,
        ),
        ("nothing but a length", make_file(whole, response=(b"\0", length)), None),
        ("nothing at all", make_file(whole), None),
        (
            "every chunk, also those after the end",
            make_file(whole, (open_chunks("request", REQUEST, list(range(16))), b"\0")),
            None,
        ),
        (
            "an answer that was cut",
            make_file(
                make_signed(keyset_digest, [request, {**response, "complete": False}]),
                response=(chunks, length),
            ),
            None,
        ),
    ]


def make_refused(keyset_digest: str) -> list[tuple[str, bytes, str | None]]:
    request, response = body_events()
    whole = make_signed(keyset_digest, [request, response])
    chunks = open_chunks("response", ANSWER, [2, 3, 28])
    length = open_length("response", ANSWER)
    good = make_file(whole, response=(chunks, length))
    return [
        ("a shown byte that is another", good.replace(b'{"n":0008}', b'{"n":0018}'), "response"),
        (
            "a length that is another",
            make_file(whole, response=(chunks, length[:8] + bytes([length[8] ^ 1]) + length[9:])),
            "response",
        ),
        (
            "the openings of the request as those of the answer",
            make_file(whole, response=(open_chunks("request", REQUEST, [0]), b"\0")),
            "response",
        ),
        (
            "a node too few",
            make_file(whole, response=(drop_node(chunks), b"\0")),
            "response",
        ),
        ("a node too many", make_file(whole, response=(add_node(chunks), b"\0")), "response"),
        (
            "a receipt with digests",
            make_file(
                make_signed(
                    keyset_digest,
                    [{"type": "request.received", "body_hash": digest_text(REQUEST)}, response],
                ),
                (open_chunks("request", REQUEST, [0]), b"\0"),
            ),
            "request",
        ),
        (
            "a receipt with two commitments to the answer",
            make_file(
                make_signed(keyset_digest, [request, response, response]), response=(chunks, length)
            ),
            "response",
        ),
        (
            "a commitment in upper case",
            make_file(
                make_signed(
                    keyset_digest,
                    [request, change(response, root=response["commitment"]["root"].upper())],
                ),
                response=(chunks, length),
            ),
            "response",
        ),
        (
            "a tree that is too deep",
            make_file(
                make_signed(keyset_digest, [request, change(response, depth=19)]),
                response=(chunks, length),
            ),
            "response",
        ),
        (
            "a receipt with one byte changed",
            make_file({**whole, "endpoint": "/v1/completions"}, response=(chunks, length)),
            "signature",
        ),
    ]


def make_unreadable(good: bytes) -> list[tuple[str, bytes, str | None]]:
    return [
        ("a byte after the end", good + b"\0", "format"),
        ("a flag that is neither 0 nor 1", good[:-25] + b"\2" + good[-24:], "format"),
        ("a file without its last byte", good[:-1], "format"),
        ("another magic", b"confide excerpt v2\n" + good[19:], "format"),
    ]


def make_vectors(keyset_digest: str) -> list[Record]:
    accepted = make_accepted(keyset_digest)
    cases = [*accepted, *make_refused(keyset_digest), *make_unreadable(accepted[0][1])]
    return [
        {"name": name, "excerpt": data.hex(), "refused": refused, "shown": shown_in(data, refused)}
        for name, data, refused in cases
    ]


def change(event: Record, **members: object) -> Record:
    return {**event, "commitment": {**event["commitment"], **members}}


def count_place(chunks: bytes) -> int:
    """The place of the number of nodes after three whole chunks and the last one."""
    place = 5
    for _ in range(int.from_bytes(chunks[1:5])):
        place += 4 + 16 + 1 + chunks[place + 20]
    return place


def drop_node(chunks: bytes) -> bytes:
    place = count_place(chunks)
    count = int.from_bytes(chunks[place : place + 4])
    return chunks[:place] + (count - 1).to_bytes(4) + chunks[place + 4 : -32]


def add_node(chunks: bytes) -> bytes:
    place = count_place(chunks)
    count = int.from_bytes(chunks[place : place + 4])
    return chunks[:place] + (count + 1).to_bytes(4) + chunks[place + 4 :] + bytes(32)


# ---------------------------------------------------------------------- checking


def read_opened(reader: check_disclosure.Reader) -> Record:
    chunks = check_disclosure.read_bytes(reader) if reader.flag() else None
    length = (reader.number(8), reader.raw(16)) if reader.flag() else None
    return {"chunks": chunks, "length": length}


def read_file(data: bytes) -> tuple[bytes, Record]:
    try:
        reader = check_disclosure.Reader(data, MAGIC)
        receipt = reader.read_sized(4, check_receipt.RECEIPT_BYTES_MAX)
        opened = {name: read_opened(reader) for name in ("request", "response")}
        reader.end()
    except check_disclosure.Refused:
        raise check_receipt.Refused("format") from None
    return receipt, opened


def read_commitment(document: Record, name: str) -> Record:
    commitment = member(find_event(document, EVENTS[name]), "commitment")
    depth = member(commitment, "depth")
    require(type(depth) is int and 4 <= depth <= 18, name)
    digests = {}
    for part in ("length", "root"):
        text = member(commitment, part)
        digests[part] = check_receipt.read_hex(text, 32, name)
        require(text == digests[part].hex(), name)
    return {"depth": depth, **digests}


def check_opened(document: Record, name: str, opened: Record) -> list[list[Any]]:
    """The shown pieces, each with its place; refuses what is not of the committed body."""
    if opened == {"chunks": None, "length": None}:
        return []
    signed, number = read_commitment(document, name), DIRECTIONS[name]
    shown: list[list[Any]] = []
    if opened["chunks"] is not None:
        leaves, siblings = opened["chunks"]
        try:
            check_disclosure.check_bytes(number, name, leaves, siblings, signed)
        except check_disclosure.Refused:
            raise check_receipt.Refused(name) from None
        for index, _, chunk in leaves:
            if shown and shown[-1][1] + len(shown[-1][2]) // 2 == 64 * index:
                shown[-1][2] += chunk.hex()
            else:
                shown.append([name, 64 * index, chunk.hex()])
    if opened["length"] is not None:
        length, salt = opened["length"]
        commitment = check_disclosure.length_commitment(number, signed["depth"], salt, length)
        require(commitment == signed["length"], name)
        shown.append([name, "length", length])
    return shown


def judge(data: bytes, report: Record) -> list[list[Any]]:
    receipt, opened = read_file(data)
    document = check_receipt.verify_receipt(receipt, report)
    return [
        piece
        for name in ("request", "response")
        for piece in check_opened(document, name, opened[name])
    ]


def shown_in(data: bytes, refused: str | None) -> list[list[Any]] | None:
    return judge(data, read_gateway_report()) if refused is None else None


def read_gateway_report() -> Record:
    receipts = json.loads((FOLDER / "receipts.json").read_text())
    return check_receipt.read_report(receipts["reports"]["gateway"].encode(), None)


def count_wrong_mutations(data: bytes, report: Record) -> int:
    """Copies with one bit changed that are accepted."""
    wrong = 0
    start = len(MAGIC) + 4 + int.from_bytes(data[len(MAGIC) : len(MAGIC) + 4])
    for place in range(start, len(data)):
        changed = bytearray(data)
        changed[place] ^= 1 << place % 8
        try:
            judge(bytes(changed), report)
        except check_receipt.Refused:
            continue
        print(f"accepted with byte {place} changed")
        wrong += 1
    return wrong


def main(arguments: list[str]) -> int:
    report = read_gateway_report()
    made = {"cases": make_vectors(report["keyset_digest"])}
    path = FOLDER / "excerpts.json"
    text = json.dumps(made, indent=1) + "\n"
    if arguments == ["--write"]:
        path.write_text(text)
    assert path.read_text() == text, "--write writes the vectors"
    for case in made["cases"]:
        try:
            judge(bytes.fromhex(case["excerpt"]), report)
            refused = None
        except check_receipt.Refused as error:
            refused = str(error)
        assert refused == case["refused"], (case["name"], refused)
    wrong = count_wrong_mutations(bytes.fromhex(made["cases"][0]["excerpt"]), report)
    print(f"excerpts: {len(made['cases'])} made and judged; mutations refused")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
