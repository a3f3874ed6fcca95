"""A second implementation of docs/channel-3.md, written from that page and docs/channel.md. Standard library only.

check_authenticator.py            checks the files of VECTOR_FILES in vectors/channel, and mutations of authenticators
check_authenticator.py --write    makes the vectors
"""

import base64
import hashlib
import json
import pathlib
import sys
from dataclasses import dataclass, field, replace
from typing import Any

from authenticator_format import (
    CMW_EXTENSION,
    MEMBERS,
    MEMBERS_MAX,
    P256,
    P384,
    REQUEST_BYTES_MAX,
    SCHEMES,
    TYPE_KEY,
    Case,
    Entries,
    Frame,
    Key,
    Refused,
    Session,
    batch_report_data,
    cbor,
    check_evidence,
    head,
    message,
    read_cmw,
    read_frame,
    sha256,
    with_length,
    write_certificate,
    write_claims,
    write_request,
)

VECTORS = pathlib.Path(__file__).parents[2] / "vectors/channel"


# ------------------------------------------------------------ vectors


@dataclass(frozen=True)
class Recipe:
    """What an authenticator is made from; a case changes one part."""

    session: Session
    key: Key
    context: bytes = bytes(range(32))
    collateral: bytes | None = None
    gpu: bytes | None = None
    members: dict[str, Any] = field(default_factory=dict)
    batched: bool = False
    cmw: bytes | None = None
    entries: Entries | None = None
    asks: bool = True
    schemes: tuple[int, ...] = SCHEMES

    def request(self) -> bytes:
        return write_request(self.session.request_kind, self.context, self.schemes, asks=self.asks)

    def wrapper(self) -> bytes:
        claims = write_claims(self.key.spki, self.gpu)
        if "claims" in self.members:
            claims = self.members["claims"][1]
        signed = self.session.report_data(claims)
        members: dict[str, Any] = {"claims": claims}
        if self.batched:
            path = b"\1\0\2\0\1" + sha256(b"salt") + sha256(b"another leaf")
            members |= {"batch-path": path}
            signed = batch_report_data(path, signed)
        members |= {"quote": b"quote" + signed}
        if self.collateral is not None:
            members["collateral"] = sha256(self.collateral)
        if self.gpu is not None:
            members["gpu"] = sha256(self.gpu)
        records: dict[str, Any] = {
            label: [MEMBERS[label][0], value, MEMBERS[label][1]] for label, value in members.items()
        }
        return cbor({label: record for label, record in (records | self.members).items() if record})

    def certificate(self) -> bytes:
        cmw = self.wrapper() if self.cmw is None else self.cmw
        extension = (CMW_EXTENSION, with_length(2, cmw))
        entries = [(self.key.certificate, [extension])] if self.entries is None else self.entries
        return write_certificate(self.context, entries)

    def authenticator(self) -> bytes:
        return self.session.write(self.request(), self.certificate(), self.key)


def make_session(hash_name: str, sender: str, key: Key, number: int = 0) -> Session:
    def export(label: str, length: int) -> bytes:
        return hashlib.shake_256(f"{label} of session {number}".encode()).digest(length)

    size = hashlib.new(hash_name).digest_size
    return Session(
        hash_name,
        sender,
        export(f"{sender} handshake context", size),
        export(f"{sender} finished key", size),
        export("exporter", 32),
        key.spki,
    )


KEY, OTHER_KEY = Key(P256, 0x1234567890ABCDEF), Key(P256, 0xFEDCBA0987654321)
KEY_384 = Key(P384, 0x1234567890ABCDEF)


def describe(
    name: str, recipe: Recipe, data: bytes | None = None, request: bytes | None = None
) -> Case:
    session = recipe.session
    case: Case = {
        "name": name,
        "hash": session.hash,
        "sender": session.sender,
        "handshake_context": session.context.hex(),
        "finished_key": session.finished.hex(),
        "exported": session.exported.hex(),
        "spki": session.spki.hex(),
        "request": (recipe.request() if request is None else request).hex(),
        "authenticator": (recipe.authenticator() if data is None else data).hex(),
        "collateral": None if recipe.collateral is None else recipe.collateral.hex(),
        "gpu": None if recipe.gpu is None else recipe.gpu.hex(),
    }
    try:
        return case | check_evidence(session, case)
    except Refused as refused:
        return case | {"error": str(refused)}


SERVER, CLIENT = make_session("sha256", "server", KEY), make_session("sha256", "client", KEY)
SERVER_384 = make_session("sha384", "server", KEY)
ANOTHER_SESSION = make_session("sha256", "server", KEY, 1)
RECIPE = Recipe(SERVER, KEY)
LEAF, CMW = KEY.certificate, (CMW_EXTENSION, with_length(2, RECIPE.wrapper()))


def recipe_with_entries(*listed: tuple[bytes, list[tuple[int, bytes]]]) -> Recipe:
    return replace(RECIPE, entries=list(listed))


def recipe_with_members(**changed: Any) -> Recipe:
    return replace(
        RECIPE, members={name.replace("_", "-"): value for name, value in changed.items()}
    )


def accepted_cases() -> list[Case]:
    json_record = {
        label: [record[0], base64.urlsafe_b64encode(record[1]).decode().rstrip("="), record[2]]
        for label, record in read_cmw(RECIPE.wrapper()).items()
    }
    spki_384 = make_session("sha384", "server", KEY_384)
    return [
        describe("server, SHA-256, P-256", RECIPE),
        describe("client, SHA-256, P-256", replace(RECIPE, session=CLIENT)),
        describe("server, SHA-384, P-256", replace(RECIPE, session=SERVER_384)),
        describe("server, SHA-384, P-384", Recipe(spki_384, KEY_384)),
        describe("batch path", replace(RECIPE, batched=True)),
        describe(
            "collateral and GPU evidence next to it", replace(RECIPE, collateral=b"{}", gpu=b"gpu")
        ),
        describe("CMW in JSON", replace(RECIPE, cmw=json.dumps(json_record).encode())),
        describe(
            "another certificate behind the leaf",
            recipe_with_entries((LEAF, [CMW]), (OTHER_KEY.certificate, [])),
        ),
    ]


def message_cases() -> list[Case]:
    good = RECIPE.authenticator()
    context_at = 5
    other_request, long_context = write_request(17, bytes(32)), write_request(17, bytes(33))
    return [
        describe("empty input", RECIPE, b""),
        describe("cut by one byte", RECIPE, good[:-1]),
        describe("one byte after the end", RECIPE, good + b"\0"),
        describe("request of the other end", RECIPE, request=b"\x0d" + RECIPE.request()[1:]),
        describe("request with a context of 33 bytes", RECIPE, request=long_context),
        describe(
            "request without signature schemes",
            RECIPE,
            request=message(17, b"\x20" + bytes(32) + b"\0\0"),
        ),
        describe("another context", RECIPE, request=other_request),
        describe(
            "another context in both, but the signed one differs",
            RECIPE,
            good[:context_at] + bytes(32) + good[context_at + 32 :],
            other_request,
        ),
        describe(
            "authenticator of another session",
            RECIPE,
            replace(RECIPE, session=ANOTHER_SESSION).authenticator(),
        ),
        describe(
            "reflected authenticator",
            replace(RECIPE, session=CLIENT),
            good,
            write_request(13, RECIPE.context),
        ),
        describe("MAC changed", RECIPE, good[:-1] + bytes([good[-1] ^ 1])),
        describe("MAC of another length", RECIPE, good[:-36] + message(20, good[-32:-1])),
        describe("evidence changed", RECIPE, good.replace(b"operator", b"operatos")),
    ]


def certificate_cases() -> list[Case]:
    empty = message(20, SERVER.mac(RECIPE.request(), write_certificate(RECIPE.context, [])))
    return [
        describe(
            "signature by another key",
            RECIPE,
            SERVER.write(RECIPE.request(), RECIPE.certificate(), OTHER_KEY),
        ),
        describe(
            "certificate of another key",
            RECIPE,
            SERVER.write(
                RECIPE.request(),
                recipe_with_entries((OTHER_KEY.certificate, [CMW])).certificate(),
                OTHER_KEY,
            ),
        ),
        describe("scheme that was not asked for", replace(RECIPE, schemes=(0x0503,))),
        describe(
            "scheme that does not suit the key",
            RECIPE,
            SERVER.write(RECIPE.request(), RECIPE.certificate(), KEY, 0x0503),
        ),
        describe("no certificate", recipe_with_entries()),
        describe("empty certificate", recipe_with_entries((b"", [CMW]))),
        describe("unreadable certificate", recipe_with_entries((b"\x30\x03abc", [CMW]))),
        describe("five certificates", recipe_with_entries(*[(LEAF, [CMW])] * 5)),
        describe("empty authenticator", RECIPE, empty),
        describe(
            "empty authenticator with a wrong MAC", RECIPE, empty[:-1] + bytes([empty[-1] ^ 1])
        ),
    ]


def extension_cases() -> list[Case]:
    return [
        describe("extension in the second entry", recipe_with_entries((LEAF, []), (LEAF, [CMW]))),
        describe("extension in both entries", recipe_with_entries((LEAF, [CMW]), (LEAF, [CMW]))),
        describe("extension that was not asked for", replace(RECIPE, asks=False)),
        describe("another extension", recipe_with_entries((LEAF, [CMW, (0, b"")]))),
        describe("extension twice", recipe_with_entries((LEAF, [CMW, CMW]))),
        describe("no extension", recipe_with_entries((LEAF, []))),
        describe("empty CMW", replace(RECIPE, cmw=b"")),
        describe(
            "bytes after the CMW",
            recipe_with_entries(
                (LEAF, [(CMW_EXTENSION, with_length(2, RECIPE.wrapper()) + b"\0")])
            ),
        ),
    ]


def evidence_cases() -> list[Case]:
    deep: Any = ["a/b", b""]
    for _ in range(4):
        deep = {"a": deep}
    of_another_session = replace(RECIPE, session=ANOTHER_SESSION).wrapper()
    foreign_claims = ["application/vnd.confide.claims", write_claims(OTHER_KEY.spki), 4]
    return [
        describe("CMW nested too deep", replace(RECIPE, cmw=cbor(deep))),
        describe("CMW that is a record", replace(RECIPE, cmw=cbor(["a/b", b"quote"]))),
        describe("unknown member", recipe_with_members(other=["a/b", b"v", 4])),
        describe("quote missing", recipe_with_members(quote=None)),
        describe(
            "claims of another media type",
            recipe_with_members(claims=["a/b", write_claims(KEY.spki), 4]),
        ),
        describe(
            "quote without an indicator",
            recipe_with_members(quote=["application/vnd.confide.quote", b"quote"]),
        ),
        describe(
            "empty quote", recipe_with_members(quote=["application/vnd.confide.quote", b"", 4])
        ),
        describe(
            "hash of 31 bytes",
            recipe_with_members(gpu=["application/vnd.confide.sha-256", bytes(31), 4]),
        ),
        describe(
            "collateral that is named and not there",
            recipe_with_members(collateral=["application/vnd.confide.sha-256", sha256(b"{}"), 2]),
        ),
        describe(
            "collateral that is there and not named",
            replace(RECIPE, collateral=b"{}", members={"collateral": None}),
        ),
        describe(
            "another GPU's evidence",
            replace(
                RECIPE,
                gpu=b"gpu",
                members={"gpu": ["application/vnd.confide.sha-256", sha256(b"other"), 4]},
            ),
        ),
        describe(
            "GPU evidence that the claims do not name",
            replace(
                RECIPE,
                gpu=b"gpu",
                members={"claims": ["application/vnd.confide.claims", write_claims(KEY.spki), 4]},
            ),
        ),
        describe("claims of another key", recipe_with_members(claims=foreign_claims)),
        describe("binder of another session", replace(RECIPE, cmw=of_another_session)),
    ]


def authenticator_cases() -> list[Case]:
    return [
        *accepted_cases(),
        *message_cases(),
        *certificate_cases(),
        *extension_cases(),
        *evidence_cases(),
    ]


def cmw_cases() -> list[Case]:
    def case(name: str, data: bytes) -> Case:
        try:
            return {"name": name, "bytes": data.hex(), "encoded": cbor(read_cmw(data)).hex()}
        except Refused as refused:
            return {"name": name, "bytes": data.hex(), "error": str(refused)}

    record = ["a/b", b"v", 4]
    deep: Any = record
    for _ in range(3):
        deep = {"a": deep}
    return [
        case("record of a media type", cbor(record)),
        case("record of a content format", cbor([30, b"v"])),
        case("record of indefinite length", b"\x9f\x18\x1e\x41v\x04\xff"),
        case("tag of a content format", bytes.fromhex("da6374ffe6442347da55")),
        case("JSON record", b'["application/vnd.example.rats-conceptual-msg","I0faVQ"]'),
        case("JSON record with an indicator", b' ["a/b","dg",4]'[1:]),
        case("collection with labels of both kinds", cbor({"long": record, -3: record, 7: record})),
        case("collection of indefinite length", b"\xbf" + cbor("a") + cbor(record) + b"\xff"),
        case("collection with a type", cbor({TYPE_KEY: "tag:example.org,2026:x", "a": record})),
        case("tagged collection", head(6, 1668547091) + cbor({"a": record})),
        case("JSON collection", b'{"__cmwc_t":"1.2.3","b":["a/b",""],"a":{"c":["a/b","dg",31]}}'),
        case("nested to the limit", cbor(deep)),
        case("as many members as allowed", cbor({str(n): record for n in range(MEMBERS_MAX)})),
        case("empty input", b""),
        case("nested too deep", cbor({"a": deep})),
        case("JSON nested too deep", b'{"a":' * 4 + b'["a/b",""]' + b"}" * 4),
        case("too many members", cbor({str(n): record for n in range(MEMBERS_MAX + 1)})),
        case("empty collection", cbor({})),
        case("collection of a type alone", cbor({TYPE_KEY: "1.2"})),
        case("label twice", b"\xa2" + 2 * (cbor("a") + cbor(record))),
        case("JSON label twice", b'{"a":["a/b",""],"a":["a/b",""]}'),
        case("empty label", cbor({"": record})),
        case("type that is neither URI nor identifier", cbor({TYPE_KEY: "words", "a": record})),
        case("record of one", cbor(["a/b"])),
        case("record of four", cbor(["a/b", b"v", 4, 4])),
        case("text as a value", cbor(["a/b", "v"])),
        case("no media type", cbor(["ab", b"v"])),
        case("content format beyond u16", cbor([65536, b"v"])),
        case("tag of no content format", b"\xc1\x41v"),
        case("tag between content formats", head(6, 0x63740101 + 255) + cbor(b"v")),
        case("indicator 0", cbor(["a/b", b"v", 0])),
        case("indicator 32", cbor(["a/b", b"v", 32])),
        case("padded base64 in JSON", b'["a/b","dg=="]'),
        case("null", b"\xf6"),
        case("byte after the end", cbor(record) + b"\0"),
    ]


def frame_cases() -> list[Case]:
    def as_hex(part: bytes | None) -> str | None:
        return None if part is None else part.hex()

    def case(name: str, data: bytes) -> Case:
        made: Case = {"name": name, "bytes": data.hex()}
        try:
            frame = read_frame(data)
        except Refused as refused:
            return made | {"error": str(refused)}
        parts = None
        if frame.evidence is not None:
            labels = ("authenticator", "collateral", "gpu")
            parts = dict(zip(labels, map(as_hex, frame.evidence), strict=True))
        return made | {
            "kind": frame.kind,
            "request": as_hex(frame.request),
            "evidence": parts,
            "code": frame.code,
        }

    request, answer = RECIPE.request(), RECIPE.authenticator()
    asks_client = replace(RECIPE, session=CLIENT).request()
    bare: list[bytes | None] = [answer, None, None]
    full: list[bytes | None] = [answer, b"{}", b"gpu"]
    short = [b"authenticator", None, None]
    long_request = bytes(REQUEST_BYTES_MAX + 1)
    return [
        case("request", Frame("request", request).write()),
        case("request without an authenticator", Frame("request").write()),
        case("longest request", Frame("request", long_request[1:]).write()),
        case("reply", Frame("reply", evidence=bare).write()),
        case("reply that asks the client", Frame("reply", asks_client, full).write()),
        case("reply without evidence", Frame("reply", asks_client).write()),
        case("empty reply", Frame("reply").write()),
        case("evidence", Frame("evidence", evidence=bare).write()),
        case("evidence with collateral", Frame("evidence", evidence=[answer, b"{}", None]).write()),
        case("evidence of a GPU", Frame("evidence", evidence=[answer, None, b"gpu"]).write()),
        case("accepted", Frame("accepted").write()),
        *(
            case(f"refused with code {code}", Frame("refused", code=code).write())
            for code in range(7)
        ),
        case("empty input", b""),
        case("no array", cbor(1)),
        case("array of indefinite length", b"\x9f\x04\xff"),
        case("kind that is a text", cbor(["accepted"])),
        case("unknown kind", cbor([5])),
        case("accepted with a member too many", cbor([4, None])),
        case("reply of version 2 without evidence", cbor([2, bytes(32)])),
        case("request that is a text", cbor([1, "request"])),
        case("empty request", Frame("request", b"").write()),
        case("request beyond its limit", Frame("request", long_request).write()),
        case("evidence that is null", cbor([3, None])),
        case("evidence of two parts", cbor([3, short[:2]])),
        case("evidence of five parts, as in version 2", cbor([3, [*short, None, None]])),
        case("authenticator that is null", cbor([3, [None, None, None]])),
        case("empty authenticator", cbor([3, [b"", None, None]])),
        case("empty collateral", cbor([3, [b"authenticator", b"", None]])),
        case("empty GPU evidence", cbor([3, [b"authenticator", None, b""]])),
        case("kind in two bytes", b"\x81\x18\x04"),
        case("length in two bytes", b"\x82\x01\x58\x01r"),
        case("cut by one byte", Frame("request", request).write()[:-1]),
        case("byte after the end", Frame("accepted").write() + b"\0"),
    ]


ABOUT_AUTHENTICATOR = (
    "Authenticators of docs/channel-3.md over fixed exporter values. `spki` is the key of the TLS handshake. A case has"
    " `cmw`, `binder` and `report_data`, or `error`, the name under which it is refused. The quote is the word `quote`"
    " and the report data that it has to hold (of the batch's root with a path)."
)
ABOUT_CMW = "CMWs (docs/channel-3.md, The CMW). A case has `encoded` (the same in deterministic CBOR) or `error`."

ABOUT_FRAMES = (
    "Contents of frames (docs/channel-3.md, Frames), without their length. A case has `kind`, `request`, `evidence` and"
    " `code`, or `error`, the name under which it is refused."
)

VECTOR_FILES = {
    "authenticator.json": (ABOUT_AUTHENTICATOR, authenticator_cases),
    "cmw.json": (ABOUT_CMW, cmw_cases),
    "session_message_3.json": (ABOUT_FRAMES, frame_cases),
}


def document(about: str, cases: list[Case]) -> str:
    return json.dumps({"about": about, "cases": cases}, indent=2) + "\n"


def session_of(case: Case) -> Session:
    return Session(
        case["hash"],
        case["sender"],
        *(
            bytes.fromhex(case[name])
            for name in ("handshake_context", "finished_key", "exported", "spki")
        ),
    )


def check_mutations(case: Case) -> int:
    """No bit of an accepted authenticator can be changed."""
    session, data = session_of(case), bytes.fromhex(case["authenticator"])
    for position in range(8 * len(data)):
        changed = bytearray(data)
        changed[position // 8] ^= 1 << position % 8
        try:
            check_evidence(session, case | {"authenticator": changed.hex()})
        except Refused:
            continue
        sys.exit(f"{case['name']}: bit {position} can be changed")
    return 8 * len(data)


def main() -> None:
    cases = {name: make_cases() for name, (_, make_cases) in VECTOR_FILES.items()}
    for name, (about, _) in VECTOR_FILES.items():
        path, text = VECTORS / name, document(about, cases[name])
        if "--write" in sys.argv[1:]:
            path.write_text(text)
        elif path.read_text() != text:
            sys.exit(f"{path} differs from what this program makes")
    checked = 0
    for case in cases["authenticator.json"]:
        if "error" not in case:
            checked += check_mutations(case)
    print(f"authenticators: {sum(map(len, cases.values()))} cases, {checked} mutations refused")


if __name__ == "__main__":
    main()
