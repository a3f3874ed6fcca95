"""A second checker of receipts, written from docs/receipts.md alone. Standard library only.

check_receipt.py [VECTORS]                     every vector, and mutations of accepted receipts
check_receipt.py --files REPORT RECEIPT HEX    a report and a receipt of it, in files, for a configuration: what
                                               the receipt says. The quote in the report is not judged here
"""

import hashlib
import json
import pathlib
import sys
import time
from typing import Any, NoReturn

VECTORS = pathlib.Path(__file__).parents[2] / "vectors/receipt"
RECEIPT_BYTES_MAX, REPORT_BYTES_MAX = 64 * 1024, 1024 * 1024
INTEGER_MAX = 2**53 - 1
DEPTH_MAX = 127
CLOCK_AHEAD_S = 60
# A document, a vector, or what is known of a report.
Record = dict[str, Any]
Point = tuple[int, int, int, int]


class Refused(Exception):
    """The name under which a report or a receipt is refused."""


def require(condition: object, name: str) -> None:
    if not condition:
        raise Refused(name)


# ------------------------------------------------------------ JSON with one form


class NoCanonicalForm(Exception):
    """A text that is not JSON, or JSON that could be read in more than one way."""


def refuse_number(_: str) -> NoReturn:
    raise NoCanonicalForm


def read_integer(digits: str) -> int:
    if digits == "-0" or len(digits) > 17 or abs(int(digits)) > INTEGER_MAX:
        raise NoCanonicalForm
    return int(digits)


def read_members(members: list[tuple[str, Any]]) -> Record:
    if len(dict(members)) < len(members):
        raise NoCanonicalForm
    return dict(members)


def depth_of(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth_of, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth_of, value), default=0)
    return 0


def parse(data: bytes, bytes_max: int) -> Any:
    """The document, if it has one canonical form."""
    if len(data) > bytes_max:
        raise NoCanonicalForm
    try:
        value = json.loads(
            data.decode(),
            object_pairs_hook=read_members,
            parse_int=read_integer,
            parse_float=refuse_number,
            parse_constant=refuse_number,
        )
        # A surrogate without its other half has no UTF-8.
        canonical_form(value).encode()
    except (ValueError, RecursionError):
        raise NoCanonicalForm from None
    if depth_of(value) > DEPTH_MAX:
        raise NoCanonicalForm
    return value


SHORT_ESCAPES = {
    '"': '\\"',
    "\\": "\\\\",
    "\b": "\\b",
    "\t": "\\t",
    "\n": "\\n",
    "\f": "\\f",
    "\r": "\\r",
}


def canonical_text(text: str) -> str:
    def escape(character: str) -> str:
        if character in SHORT_ESCAPES:
            return SHORT_ESCAPES[character]
        return f"\\u{ord(character):04x}" if character < " " else character

    return '"' + "".join(map(escape, text)) + '"'


def canonical_form(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return canonical_text(value)
    if isinstance(value, list):
        return "[" + ",".join(map(canonical_form, value)) + "]"
    assert isinstance(value, dict)
    names = sorted(value, key=lambda name: name.encode("utf-16-be", "surrogatepass"))
    return (
        "{"
        + ",".join(f"{canonical_text(name)}:{canonical_form(value[name])}" for name in names)
        + "}"
    )


# ------------------------------------------------------- Ed25519 (RFC 8032, 5.1)

P = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
ROOT = pow(2, (P - 1) // 4, P)


def add_points(one: Point, other: Point) -> Point:
    a = (one[1] - one[0]) * (other[1] - other[0]) % P
    b = (one[1] + one[0]) * (other[1] + other[0]) % P
    c = 2 * one[3] * other[3] * D % P
    d = 2 * one[2] * other[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % P, g * h % P, f * g % P, e * h % P


def multiply_point(scalar: int, point: Point) -> Point:
    result = (0, 1, 1, 0)
    while scalar:
        if scalar & 1:
            result = add_points(result, point)
        point, scalar = add_points(point, point), scalar >> 1
    return result


def decode_point(data: bytes) -> Point | None:
    y = int.from_bytes(data, "little")
    sign, y = y >> 255, y & (2**255 - 1)
    if y >= P:
        return None
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * ROOT % P
    if (x * x - square) % P or (x == 0 and sign):
        return None
    x = P - x if x & 1 != sign else x
    return x, y, 1, x * y % P


def encode_point(point: Point) -> bytes:
    inverse = pow(point[2], -1, P)
    x, y = point[0] * inverse % P, point[1] * inverse % P
    return (y | (x & 1) << 255).to_bytes(32, "little")


def base_point() -> Point:
    point = decode_point((4 * pow(5, -1, P) % P).to_bytes(32, "little"))
    assert point is not None
    return point


BASE = base_point()


def is_signed(public_key: bytes, message: bytes, signature: bytes) -> bool:
    point = decode_point(public_key)
    scalar = int.from_bytes(signature[32:], "little")
    if point is None or scalar >= ORDER:
        return False
    digest = hashlib.sha512(signature[:32] + public_key + message).digest()
    challenge = int.from_bytes(digest, "little") % ORDER
    negated = (P - point[0], point[1], point[2], P - point[3])
    result = add_points(multiply_point(scalar, BASE), multiply_point(challenge, negated))
    return encode_point(result) == signature[:32]


# --------------------------------------------------------------- the documents


def digest_text(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def member(document: object, name: str) -> Any:
    return document.get(name) if isinstance(document, dict) else None


def read_hex(text: object, length: int | None, name: str) -> bytes:
    require(
        isinstance(text, str) and all(digit in "0123456789abcdefABCDEF" for digit in text), name
    )
    assert isinstance(text, str)
    require(len(text) % 2 == 0 and length in (None, len(text) // 2), name)
    return bytes.fromhex(text)


def read_time(document: object, member_name: str, name: str) -> int:
    value = member(document, member_name)
    require(isinstance(value, int) and not isinstance(value, bool) and value >= 0, name)
    return int(value)


def read_report(data: bytes, nonce: str | None) -> Record:
    """The keyset of a report, its digest and the report data that its quote must have."""
    try:
        document = parse(data, REPORT_BYTES_MAX)
    except NoCanonicalForm:
        raise Refused("report") from None
    require(member(document, "api_version") == "aci/1", "report")
    attestation = member(document, "attestation")
    keyset = member(attestation, "workload_keyset")
    require(isinstance(keyset, dict), "report")
    digest = digest_text(canonical_form(keyset).encode())
    require(member(document, "workload_keyset_digest") == digest, "report_digest")
    quoted = "null" if nonce is None else f'"{nonce}"'
    statement = f'{{"keyset_digest":"{digest}","nonce":{quoted},"purpose":"aci.report_data.v1"}}'
    report_data = hashlib.sha256(statement.encode()).digest()
    require(member(attestation, "report_data") == report_data.hex(), "nonce")
    evidence = member(attestation, "evidence")
    read_hex(member(evidence, "quote"), None, "report")
    collateral = member(evidence, "collateral")
    require(collateral is None or isinstance(collateral, str), "report")
    return {
        "keyset": keyset,
        "keyset_digest": digest,
        "report_data": (report_data + bytes(32)).hex(),
    }


def find_key(keyset: Record, key_id: object) -> bytes:
    keys = member(keyset, "receipt_signing_keys")
    keys = keys if isinstance(keys, list) else []
    named = [
        key for key in keys if member(key, "key_id") == key_id and member(key, "algo") == "ed25519"
    ]
    require(len(named) == 1, "unknown_key")
    return read_hex(named[0].get("public_key"), 32, "unknown_key")


def verify_receipt(data: bytes, report: Record) -> Record:
    """The document of a receipt that a key of the keyset signed before it expired."""
    try:
        document = parse(data, RECEIPT_BYTES_MAX)
    except NoCanonicalForm:
        raise Refused("receipt") from None
    require(member(document, "api_version") == "aci/1", "receipt")
    signature = read_hex(document.pop("signature", None), 64, "receipt")
    require(document.get("workload_keyset_digest") == report["keyset_digest"], "other_keyset")
    public_key = find_key(report["keyset"], document.get("key_id"))
    require(is_signed(public_key, canonical_form(document).encode(), signature), "signature")
    served_at = read_time(document, "served_at", "receipt")
    require(served_at <= read_time(report["keyset"], "not_after", "report"), "keyset_expired")
    events = document.get("event_log")
    require(isinstance(events, list) and events, "receipt")
    require(member(events[0], "type") == "request.received", "receipt")
    return dict(document)


def find_event(document: Record, kind: str) -> Any:
    """The event of a type; none if there are several."""
    found = [event for event in document["event_log"] if member(event, "type") == kind]
    return found[0] if len(found) == 1 else None


def check_body(document: Record, kind: str, body: bytes | None, name: str) -> None:
    if body is not None:
        require(member(find_event(document, kind), "body_hash") == digest_text(body), name)


def judge_receipt(case: Record, report: Record) -> Record:
    """What the receipt of a vector says, by all steps but the judgement of the quote."""
    not_after = read_time(report["keyset"], "not_after", "report")
    require(case["at"] <= not_after, "keyset_expired")
    document = verify_receipt(case["receipt"].encode(), report)
    require(document["served_at"] <= case["at"] + CLOCK_AHEAD_S, "served_at")
    require(not_after - document["served_at"] <= case["key_validity_s_max"], "keyset_life")
    if case["configurations"] is not None:
        stated = member(find_event(document, "confide.configuration"), "config_digest")
        require(
            stated in [f"sha256:{digest}" for digest in case["configurations"]], "configuration"
        )
    if case["weights"] is not None:
        model = find_event(document, "confide.model")
        require(member(model, "weights") == "hashed at start", "weights")
        require(member(model, "weights_sha256") in case["weights"], "weights")
    for kind, name in (("request.received", "request"), ("response.returned", "response")):
        body = case[name]
        check_body(document, kind, None if body is None else body.encode(), name)
    return document


# ------------------------------------------------------------------------- main


def check_canonical_forms(cases: list[Record]) -> None:
    for case in cases:
        try:
            got = canonical_form(parse(case["text"].encode(), 4096))
        except NoCanonicalForm:
            got = None
        assert got == case["canonical"], (case, got)


def check_reports(cases: list[Record]) -> None:
    for case in cases:
        try:
            report, refused = read_report(case["report"].encode(), case["nonce"]), None
        except Refused as error:
            report, refused = {}, str(error)
        assert refused == case["refused"], (case["name"], refused)
        for name in ("keyset_digest", "report_data"):
            assert report.get(name) == case[name], (case["name"], name)


def verdict(case: Record, report: Record) -> str | None:
    try:
        document = judge_receipt(case, report)
    except Refused as error:
        return str(error)
    is_cut = member(find_event(document, "response.returned"), "complete") is False
    assert is_cut == case["answer_cut"], case["name"]
    return None


def mutations(case: Record, report: Record) -> int:
    """Copies of a receipt with one bit changed that are accepted although they say something else."""
    text, wrong = case["receipt"], 0
    for place in range(0, len(text), 7):
        changed = text[:place] + chr(ord(text[place]) ^ 1 << place % 5) + text[place + 1 :]
        if (
            verdict({**case, "receipt": changed}, report) is None
            and changed.lower() != text.lower()
        ):
            print(f"{case['name']}: accepted with character {place} changed")
            wrong += 1
    return wrong


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--files"]:
        report = read_report(pathlib.Path(arguments[1]).read_bytes(), None)
        case: Record = {"receipt": pathlib.Path(arguments[2]).read_text()}
        case |= {
            "configurations": [arguments[3]],
            "weights": None,
            "request": None,
            "response": None,
        }
        case |= {"at": int(time.time()), "key_validity_s_max": 86_400}
        print(json.dumps(judge_receipt(case, report), indent=2))
        return 0
    folder = pathlib.Path(arguments[0]) if arguments else VECTORS
    canonical, reports, receipts = (
        json.loads((folder / f"{name}.json").read_text())
        for name in ("canonical", "reports", "receipts")
    )
    check_canonical_forms(canonical["cases"])
    check_reports(reports["cases"])
    named = {name: read_report(text.encode(), None) for name, text in receipts["reports"].items()}
    for case in receipts["cases"]:
        got = verdict(case, named[case["report"]])
        assert got == case["refused"], (case["name"], got)
    accepted = [case for case in receipts["cases"] if case["refused"] is None]
    wrong = sum(mutations(case, named[case["report"]]) for case in accepted[:2])
    counts = [len(vectors["cases"]) for vectors in (canonical, reports, receipts)]
    print("receipts: {} texts, {} reports and {} receipts agree; mutations refused".format(*counts))
    return 1 if wrong or len(accepted) < 10 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
