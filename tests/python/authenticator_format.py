"""Authenticators and CMWs, written from docs/channel-3.md and docs/channel.md alone. Standard library only."""

import base64
import hashlib
import hmac
import json
from dataclasses import dataclass
from typing import Any

CMW_BYTES_MAX, DEPTH_MAX, MEMBERS_MAX, TEXT_MAX = 65533, 4, 32, 255
CMW_EXTENSION, SIGNATURE_ALGORITHMS = 0xFFCA, 13
SCHEMES = (0x0403, 0x0503, 0x0807)
TYPE_KEY = "__cmwc_t"
Case = dict[str, Any]
Entries = list[tuple[bytes, list[tuple[int, bytes]]]]


class Refused(Exception):
    """The name under which bytes are refused."""


def require(condition: object, name: str) -> None:
    if not condition:
        raise Refused(name)


# ------------------------------------------------------------ curves


@dataclass(frozen=True)
class Curve:
    scheme: int
    hash: str
    oid: bytes
    p: int
    n: int
    b: int
    g: tuple[int, int]

    @property
    def size(self) -> int:
        return (self.p.bit_length() + 7) // 8

    def add(self, a: tuple[int, int] | None, b: tuple[int, int] | None) -> tuple[int, int] | None:
        if a is None or b is None:
            return b if a is None else a
        if a[0] == b[0]:
            if (a[1] + b[1]) % self.p == 0:
                return None
            slope = (3 * a[0] * a[0] - 3) * pow(2 * a[1], -1, self.p)
        else:
            slope = (b[1] - a[1]) * pow(b[0] - a[0], -1, self.p)
        x = (slope * slope - a[0] - b[0]) % self.p
        return x, (slope * (a[0] - x) - a[1]) % self.p

    def multiply(self, k: int, point: tuple[int, int]) -> tuple[int, int] | None:
        total, doubled = None, point
        while k:
            total = self.add(total, doubled) if k & 1 else total
            doubled, k = self.add(doubled, doubled) or (0, 0), k >> 1
        return total

    def number(self, message: bytes) -> int:
        return int.from_bytes(hashlib.new(self.hash, message).digest()[: self.size], "big")

    def sign(self, secret: int, message: bytes) -> bytes:
        """A DER signature whose k comes from key and message: reproducible, and for vectors alone."""
        k = int.from_bytes(hashlib.sha512(b"k%d" % secret + message).digest(), "big") % self.n
        point = self.multiply(k, self.g)
        assert point
        r = point[0] % self.n
        s = pow(k, -1, self.n) * (self.number(message) + r * secret) % self.n
        return sequence(der_integer(r), der_integer(s))

    def verify(self, point: tuple[int, int], message: bytes, signature: bytes) -> bool:
        try:
            (_, first, _), (_, second, _) = der_items(der_items(signature)[0][1])
        except (ValueError, IndexError):
            return False
        r, s = int.from_bytes(first, "big"), int.from_bytes(second, "big")
        if not (0 < r < self.n and 0 < s < self.n):
            return False
        w = pow(s, -1, self.n)
        left = self.multiply(self.number(message) * w % self.n, self.g)
        sum_ = self.add(left, self.multiply(r * w % self.n, point))
        return sum_ is not None and sum_[0] % self.n == r


P256 = Curve(
    0x0403,
    "sha256",
    bytes.fromhex("06082a8648ce3d030107"),
    2**256 - 2**224 + 2**192 + 2**96 - 1,
    0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551,
    0x5AC635D8AA3A93E7B3EBBD55769886BC651D06B0CC53B0F63BCE3C3E27D2604B,
    (
        0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
        0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
    ),
)
P384 = Curve(
    0x0503,
    "sha384",
    bytes.fromhex("06052b81040022"),
    2**384 - 2**128 - 2**96 + 2**32 - 1,
    0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFC7634D81F4372DDF581A0DB248B0A77AECEC196ACCC52973,
    0xB3312FA7E23EE7E4988E056BE3F82D19181D9C6EFE8141120314088F5013875AC656398D8A2ED19D2A85C8EDD3EC2AEF,
    (
        0xAA87CA22BE8B05378EB1C71EF320AD746E1D3B628BA79B9859F741E082542A385502F25DBF55296C3A545E3872760AB7,
        0x3617DE4A96262C6F5D9E98BF9292DC29F8F41DBD289A147CE9DA3113B5F0B8C00A60B1CE1D7E819D7A431D7C90EA0E5F,
    ),
)
EC_KEY = bytes.fromhex("06072a8648ce3d0201")


def der(tag: int, content: bytes) -> bytes:
    n = len(content)
    length = (
        bytes([n])
        if n < 128
        else (lambda b: bytes([128 | len(b)]) + b)(n.to_bytes((n.bit_length() + 7) // 8, "big"))
    )
    return bytes([tag]) + length + content


def sequence(*items: bytes) -> bytes:
    return der(0x30, b"".join(items))


def der_integer(n: int) -> bytes:
    return der(2, n.to_bytes(n.bit_length() // 8 + 1, "big"))


def der_items(data: bytes) -> list[tuple[int, bytes, bytes]]:
    """Tag, content and whole encoding of each item."""
    items = []
    while data:
        at, length = 2, data[1]
        if length >= 128:
            at += length & 127
            length = int.from_bytes(data[2:at], "big")
        if len(data) < at + length:
            raise ValueError
        items.append((data[0], data[at : at + length], data[: at + length]))
        data = data[at + length :]
    return items


@dataclass(frozen=True)
class Key:
    curve: Curve
    secret: int

    @property
    def spki(self) -> bytes:
        point = self.curve.multiply(self.secret, self.curve.g)
        assert point
        bits = b"\0\4" + b"".join(n.to_bytes(self.curve.size, "big") for n in point)
        return sequence(sequence(EC_KEY, self.curve.oid), der(3, bits))

    @property
    def certificate(self) -> bytes:
        """A certificate of this key, signed by it."""
        algorithm = sequence(
            bytes.fromhex("06082a8648ce3d040302" if self.curve is P256 else "06082a8648ce3d040303")
        )
        name = sequence(der(0x31, sequence(bytes.fromhex("0603550403"), der(0x0C, b"confide"))))
        validity = sequence(der(0x17, b"270101000000Z"), der(0x17, b"280101000000Z"))
        version = der(0xA0, der_integer(2))
        body = sequence(version, der_integer(7), algorithm, name, validity, name, self.spki)
        return sequence(body, algorithm, der(3, b"\0" + self.curve.sign(self.secret, body)))


def read_spki(certificate: bytes) -> bytes:
    body = der_items(der_items(der_items(certificate)[0][1])[0][1])
    return body[6][2]


def read_key(spki: bytes) -> tuple[Curve, tuple[int, int]]:
    (_, algorithm, _), (_, bits, _) = der_items(der_items(spki)[0][1])
    curve = {P256.oid: P256, P384.oid: P384}[der_items(algorithm)[1][2]]
    return curve, (
        int.from_bytes(bits[2 : 2 + curve.size], "big"),
        int.from_bytes(bits[2 + curve.size :], "big"),
    )


# ------------------------------------------------------------ CBOR and CMW


def head(major: int, n: int) -> bytes:
    for size, info in ((0, n), (1, 24), (2, 25), (4, 26), (8, 27)):
        if n < 24 if size == 0 else n < 1 << 8 * size:
            return bytes([major << 5 | info]) + (n.to_bytes(size, "big") if size else b"")
    raise ValueError(n)


def cbor(value: Any) -> bytes:
    """The deterministic encoding of RFC 8949 section 4.2.1."""
    match value:
        case None:
            return b"\xf6"
        case int():
            return head(0, value) if value >= 0 else head(1, -1 - value)
        case bytes():
            return head(2, len(value)) + value
        case str():
            return head(3, len(value.encode())) + value.encode()
        case list():
            return head(4, len(value)) + b"".join(map(cbor, value))
        case dict():
            pairs = sorted((cbor(key), cbor(member)) for key, member in value.items())
            return head(5, len(pairs)) + b"".join(key + member for key, member in pairs)
    raise TypeError(value)


class CborReader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, n: int) -> bytes:
        require(self.at + n <= len(self.data), "malformed")
        self.at += n
        return self.data[self.at - n : self.at]

    def head(self) -> tuple[int, int | None]:
        first = self.take(1)[0]
        major, info = first >> 5, first & 31
        if info < 24:
            return major, info
        if info < 28:
            return major, int.from_bytes(self.take(1 << info - 24), "big")
        require(info == 31 and major in (4, 5), "malformed")
        return major, None

    def at_break(self) -> bool:
        if self.data[self.at : self.at + 1] == b"\xff":
            self.at += 1
            return True
        return False

    def string(self, major: int) -> bytes:
        got, n = self.head()
        require(got == major and n is not None, "malformed")
        return self.take(n or 0)

    def cmw(self, depth: int) -> Any:
        require(depth, "too_deep")
        major, n = self.head()
        if major == 4:
            return self.record(n)
        if major == 5:
            return self.collection(n, depth)
        require(major == 6 and n is not None, "malformed")
        if n == 1668547091:
            major, n = self.head()
            require(major == 5, "malformed")
            return self.collection(n, depth)
        high, low = divmod((n or 0) - 0x63740101, 256)
        require(high >= 0 and low < 255 and high * 255 + low < 65536, "content_format")
        return [high * 255 + low, self.string(2)]

    def record(self, n: int | None) -> list[Any]:
        require(n in (2, 3, None), "malformed")
        if self.data[self.at : self.at + 1] and self.data[self.at] >> 5 == 3:
            kind: Any = check_media_type(self.string(3).decode())
        else:
            major, kind = self.head()
            require(major == 0, "malformed")
            require(kind < 65536, "content_format")
        record: list[Any] = [kind, self.string(2)]
        if n == 3 or (n is None and not self.at_break()):
            major, indicator = self.head()
            require(major == 0, "malformed")
            record.append(check_indicator(indicator))
            require(n == 3 or self.at_break(), "malformed")
        return record

    def collection(self, n: int | None, depth: int) -> dict[Any, Any]:
        require(n is None or n <= MEMBERS_MAX + 1, "too_many_members")
        members: dict[Any, Any] = {}
        read = 0
        while read != n and not (n is None and self.at_break()):
            read += 1
            if self.data[self.at : self.at + 1] and self.data[self.at] >> 5 == 3:
                label: Any = self.string(3).decode()
            else:
                major, label = self.head()
                require(major in (0, 1), "malformed")
                label = label if major == 0 else -1 - label
            if label == TYPE_KEY:
                member: Any = check_type(self.string(3).decode())
            else:
                require(isinstance(label, int) or 0 < len(label.encode()) <= TEXT_MAX, "label")
                member = self.cmw(depth - 1)
            add_member(members, label, member)
        return check_members(members)


def check_media_type(name: str) -> str:
    kind, _, rest = name.partition("/")
    good = kind and rest and name.isascii() and name.isprintable() and len(name) <= TEXT_MAX
    require(good, "media_type")
    return name


def check_indicator(indicator: Any) -> Any:
    require(isinstance(indicator, int) and 1 <= indicator <= 31, "indicator")
    return indicator


def check_type(kind: str) -> str:
    scheme, _, rest = kind.partition(":")
    dotted = "." in kind and kind.replace(".", "").isdigit()
    require(dotted or (scheme[:1].isalpha() and rest), "collection_type")
    return kind


def add_member(members: dict[Any, Any], label: Any, member: Any) -> None:
    require(label not in members, "duplicate")
    members[label] = member
    require(len(members) - (TYPE_KEY in members) <= MEMBERS_MAX, "too_many_members")


def check_members(members: dict[Any, Any]) -> dict[Any, Any]:
    require(len(members) > (TYPE_KEY in members), "no_members")
    return members


def read_json_cmw(value: Any, depth: int) -> Any:
    require(depth, "too_deep")
    if isinstance(value, list):
        require(
            2 <= len(value) <= 3 and all(isinstance(text, str) for text in value[:2]), "malformed"
        )
        require("=" not in value[1], "malformed")
        content = base64.b64decode(value[1] + "=" * (-len(value[1]) % 4), b"-_", validate=True)
        return [check_media_type(value[0]), content, *map(check_indicator, value[2:])]
    require(isinstance(value, tuple), "malformed")
    members: dict[Any, Any] = {}
    for label, member in value:
        if label == TYPE_KEY:
            require(isinstance(member, str), "malformed")
            add_member(members, label, check_type(member))
        else:
            require(0 < len(label.encode()) <= TEXT_MAX, "label")
            add_member(members, label, read_json_cmw(member, depth - 1))
    return check_members(members)


def read_cmw(data: bytes) -> Any:
    require(data, "empty")
    require(len(data) <= CMW_BYTES_MAX, "too_long")
    if data[:1] in (b"[", b"{"):
        try:
            return read_json_cmw(json.loads(data, object_pairs_hook=tuple), DEPTH_MAX)
        except ValueError:
            raise Refused("malformed") from None
    reader = CborReader(data)
    value = reader.cmw(DEPTH_MAX)
    require(reader.at == len(data), "trailing_bytes")
    return value


# ------------------------------------------------------------ frames

KINDS = {"refused": 0, "request": 1, "reply": 2, "evidence": 3, "accepted": 4}
KIND_MEMBERS = {0: 2, 1: 2, 2: 3, 3: 2, 4: 1}
REQUEST_BYTES_MAX = 512
PARTS = {"authenticator": 65536, "collateral": 96256, "gpu": 81920}
REFUSALS = range(1, 6)


@dataclass(frozen=True)
class Frame:
    """The content of a frame. `evidence` is a list of the three parts."""

    kind: str
    request: bytes | None = None
    evidence: list[bytes | None] | None = None
    code: int | None = None

    def write(self) -> bytes:
        members: dict[str, list[Any]] = {
            "refused": [self.code],
            "request": [self.request],
            "reply": [self.request, self.evidence],
            "evidence": [self.evidence],
            "accepted": [],
        }
        return cbor([KINDS[self.kind], *members[self.kind]])


def read_part(reader: CborReader, limit: int) -> bytes:
    part = reader.string(2)
    require(part, "empty")
    require(len(part) <= limit, "too_long")
    return part


def skip_null(reader: CborReader) -> bool:
    if reader.data[reader.at : reader.at + 1] == cbor(None):
        reader.at += 1
        return True
    return False


def read_frame_evidence(reader: CborReader) -> list[bytes | None]:
    require(reader.head() == (4, 3), "malformed")
    parts: list[bytes | None] = [read_part(reader, PARTS["authenticator"])]
    for label in ("collateral", "gpu"):
        parts.append(None if skip_null(reader) else read_part(reader, PARTS[label]))
    return parts


def read_frame(data: bytes) -> Frame:
    reader = CborReader(data)
    major, members = reader.head()
    require(major == 4 and members is not None, "malformed")
    major, number = reader.head()
    require(major == 0 and number is not None, "malformed")
    require(number in KIND_MEMBERS, "kind")
    require(members == KIND_MEMBERS[number or 0], "members")
    kind = next(name for name, code in KINDS.items() if code == number)
    request, evidence, code = None, None, None
    if kind in ("request", "reply") and not skip_null(reader):
        request = read_part(reader, REQUEST_BYTES_MAX)
    if kind == "evidence" or (kind == "reply" and not skip_null(reader)):
        evidence = read_frame_evidence(reader)
    if kind == "refused":
        major, code = reader.head()
        require(major == 0, "malformed")
        require(code in REFUSALS, "refusal_code")
    frame = Frame(kind, request, evidence, code)
    require(frame.write() == data, "not_canonical")
    return frame


# ------------------------------------------------------------ RFC 9261


def with_length(n: int, data: bytes) -> bytes:
    return len(data).to_bytes(n, "big") + data


def message(kind: int, body: bytes) -> bytes:
    return bytes([kind]) + with_length(3, body)


class Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, n: int) -> bytes:
        require(self.at + n <= len(self.data), "truncated")
        self.at += n
        return self.data[self.at - n : self.at]

    def number(self, n: int) -> int:
        return int.from_bytes(self.take(n), "big")

    def vector(self, n: int) -> bytes:
        return self.take(self.number(n))

    def message(self, kind: int) -> tuple[bytes, bytes]:
        start = self.at
        require(self.number(1) == kind, "message_type")
        body = self.vector(3)
        return body, self.data[start : self.at]

    def finish(self) -> None:
        require(self.at == len(self.data), "trailing_bytes")

    def extensions(self) -> dict[int, bytes]:
        reader, found = Reader(self.vector(2)), dict[int, bytes]()
        while reader.at < len(reader.data):
            kind, data = reader.number(2), reader.vector(2)
            require(kind not in found, "duplicate_extension")
            require(len(found) < 16, "too_many")
            found[kind] = data
        return found


def write_request(
    kind: int, context: bytes, schemes: tuple[int, ...] = SCHEMES, *, asks: bool = True
) -> bytes:
    listed = with_length(2, b"".join(scheme.to_bytes(2, "big") for scheme in schemes))
    extensions = SIGNATURE_ALGORITHMS.to_bytes(2, "big") + with_length(2, listed)
    if asks:
        extensions += CMW_EXTENSION.to_bytes(2, "big") + with_length(2, b"")
    return message(kind, with_length(1, context) + with_length(2, extensions))


def read_request(data: bytes, kind: int) -> tuple[bytes, list[int], bool]:
    require(len(data) <= 512, "length")
    reader = Reader(data)
    body, _ = reader.message(kind)
    reader.finish()
    reader = Reader(body)
    context = reader.vector(1)
    require(len(context) == 32, "context_length")
    extensions = reader.extensions()
    reader.finish()
    require(SIGNATURE_ALGORITHMS in extensions, "no_schemes")
    reader = Reader(extensions[SIGNATURE_ALGORITHMS])
    listed = reader.vector(2)
    reader.finish()
    require(listed and len(listed) % 2 == 0 and len(listed) <= 64, "no_schemes")
    require(not extensions.get(CMW_EXTENSION), "length")
    schemes = [int.from_bytes(listed[n : n + 2], "big") for n in range(0, len(listed), 2)]
    return context, schemes, CMW_EXTENSION in extensions


def write_certificate(context: bytes, entries: Entries) -> bytes:
    listed = b""
    for certificate, extensions in entries:
        inner = b"".join(
            kind.to_bytes(2, "big") + with_length(2, data) for kind, data in extensions
        )
        listed += with_length(3, certificate) + with_length(2, inner)
    return message(11, with_length(1, context) + with_length(3, listed))


@dataclass(frozen=True)
class Session:
    """What one end of a session exports for the authenticators of `sender`, and the key of its handshake."""

    hash: str
    sender: str
    context: bytes
    finished: bytes
    exported: bytes
    spki: bytes

    @property
    def request_kind(self) -> int:
        return 17 if self.sender == "server" else 13

    def digest(self, *parts: bytes) -> bytes:
        return hashlib.new(self.hash, self.context + b"".join(parts)).digest()

    def content(self, *parts: bytes) -> bytes:
        return b" " * 64 + b"Exported Authenticator\0" + self.digest(*parts)

    def mac(self, *parts: bytes) -> bytes:
        return hmac.digest(self.finished, self.digest(*parts), self.hash)

    def write(
        self, request: bytes, certificate: bytes, key: Key, scheme: int | None = None
    ) -> bytes:
        signature = key.curve.sign(key.secret, self.content(request, certificate))
        scheme = key.curve.scheme if scheme is None else scheme
        verify = message(15, scheme.to_bytes(2, "big") + with_length(2, signature))
        return certificate + verify + message(20, self.mac(request, certificate, verify))

    def binder(self) -> bytes:
        return hashlib.new(self.hash, self.spki + self.exported).digest()

    def report_data(self, claims: bytes) -> bytes:
        role = b"\1" if self.sender == "server" else b"\2"
        hashes = sha256(self.spki) + sha256(claims)
        return self.binder()[:32] + sha256(b"confide attestation v3\0" + role + hashes)


def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def check_authenticator(session: Session, request: bytes, data: bytes) -> bytes:
    """The CMW of an authenticator that is good."""
    context, schemes, asks = read_request(request, session.request_kind)
    require(len(data) <= 65536, "length")
    reader = Reader(data)
    if data[:1] == b"\x14":
        mac, _ = reader.message(20)
        reader.finish()
        empty = write_certificate(context, [])
        require(hmac.compare_digest(mac, session.mac(request, empty)), "mac")
        raise Refused("declined")
    body, certificate = reader.message(11)
    listed = Reader(body)
    got, rest = listed.vector(1), Reader(listed.vector(3))
    listed.finish()
    entries: list[tuple[bytes, dict[int, bytes]]] = []
    while rest.at < len(rest.data):
        require(len(entries) < 4, "too_many")
        leaf = rest.vector(3)
        require(leaf, "no_certificate")
        entries.append((leaf, rest.extensions()))
    require(entries, "no_certificate")
    body, verify = reader.message(15)
    signed = Reader(body)
    scheme, signature = signed.number(2), signed.vector(2)
    signed.finish()
    mac, _ = reader.message(20)
    reader.finish()
    require(got == context, "context")
    require(hmac.compare_digest(mac, session.mac(request, certificate, verify)), "mac")
    try:
        spki = read_spki(entries[0][0])
        curve, point = read_key(spki)
    except (ValueError, IndexError, KeyError):
        raise Refused("certificate") from None
    require(scheme in schemes and scheme == curve.scheme, "scheme")
    require(curve.verify(point, session.content(request, certificate), signature), "signature")
    require(spki == session.spki, "key")
    found = None
    for position, (_, extensions) in enumerate(entries):
        for kind, content in extensions.items():
            require(kind == CMW_EXTENSION and asks, "unsolicited")
            require(position == 0, "misplaced")
            found = content
    require(found is not None, "no_cmw")
    reader = Reader(found or b"")
    cmw = reader.vector(2)
    reader.finish()
    require(1 <= len(cmw) <= CMW_BYTES_MAX, "length")
    return cmw


# ------------------------------------------------------------ evidence

MEMBERS = {
    "quote": ("application/vnd.confide.quote", 4, 32768),
    "claims": ("application/vnd.confide.claims", 4, 1024),
    "batch-path": ("application/vnd.confide.batch-path", 4, 357),
    "collateral": ("application/vnd.confide.sha-256", 2, 32),
    "gpu": ("application/vnd.confide.sha-256", 4, 32),
}


def write_claims(spki: bytes, gpu: bytes | None = None) -> bytes:
    claims = {
        "guarantee": "operator is outside the TEE",
        "not-after": 1800003600,
        "not-before": 1800000000,
        "pubkey-hash": [1, sha256(spki)],
        "config-digest": sha256(b"a configuration"),
        "confide-version": 1,
    }
    return cbor(claims if gpu is None else claims | {"gpu-evidence-hash": sha256(gpu)})


def read_claims_key(claims: bytes) -> bytes:
    """The key's hash. Claims are specified and checked elsewhere (claims.json)."""
    return claims.partition(cbor("pubkey-hash") + b"\x82\x01\x58\x20")[2][:32]


def read_claims_gpu(claims: bytes) -> bytes | None:
    _, found, hash_ = claims.partition(cbor("gpu-evidence-hash") + b"\x58\x20")
    return hash_ if found else None


def batch_report_data(path: bytes, binder: bytes) -> bytes:
    """The root's report data, for a batch of two alone."""
    require(len(path) == 69 and path[:3] == b"\1\0\2", "batch_path")
    leaf, sibling = sha256(b"\0" + path[5:37] + binder), path[37:]
    pair = leaf + sibling if path[3:5] == b"\0\0" else sibling + leaf
    return hashlib.sha512(b"confide batch v1\0\0\2" + sha256(b"\1" + pair)).digest()


def check_evidence(session: Session, case: Case) -> dict[str, Any]:
    """Everything up to the quote, which is the word `quote` and its report data."""
    request, data = bytes.fromhex(case["request"]), bytes.fromhex(case["authenticator"])
    cmw = check_authenticator(session, request, data)
    collection = read_cmw(cmw)
    require(isinstance(collection, dict) and TYPE_KEY not in collection, "form")
    for label, record in collection.items():
        require(isinstance(label, str), "form")
        require(label in MEMBERS, "unknown")
        media, indicator, limit = MEMBERS[label]
        require(
            isinstance(record, list) and record[0] == media and record[2:] == [indicator], "type"
        )
        wanted = range(1, limit + 1) if limit != 32 else range(32, 33)
        require(len(record[1]) in wanted, "member_length")
    require("quote" in collection and "claims" in collection, "missing")
    for label in ("collateral", "gpu"):
        bulk = case[label]
        named = collection[label][1] if label in collection else None
        require(named == (None if bulk is None else sha256(bytes.fromhex(bulk))), "bulk")
    quote, claims = collection["quote"][1], collection["claims"][1]
    report_data = session.report_data(claims)
    expected = report_data
    if "batch-path" in collection:
        expected = batch_report_data(collection["batch-path"][1], report_data)
    require(read_claims_key(claims) == sha256(session.spki), "key_mismatch")
    gpu = collection["gpu"][1] if "gpu" in collection else None
    require(read_claims_gpu(claims) == gpu, "gpu_evidence")
    require(quote == b"quote" + expected, "rejected")
    return {"cmw": cmw.hex(), "binder": session.binder().hex(), "report_data": report_data.hex()}
