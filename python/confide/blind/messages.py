"""What frames hold, byte for byte as docs/blind-protocol.md has it. A budget of None means no budget."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

from .errors import REFUSALS, FieldError, Refusal
from .frames import MAGIC, VERSION

VECTORS_MAX = 64
INPUTS_MAX = 1024
CREDENTIAL_MAX = 64
NO_BUDGET = (1 << 64) - 1
SCHEMES = ("masked", "direct")
PROTECTS = ("a", "ba")


class Fields:
    """Reads one message's fields in order; a wrong one is named."""

    def __init__(self, message: str, payload: bytes) -> None:
        self.message, self._rest = message, memoryview(payload)

    def field_error(self, field: str, wanted: str) -> FieldError:
        """Makes the error for a field of this message."""
        return FieldError(self.message, field, wanted)

    def read_bytes(self, field: str, count: int) -> bytes:
        """Reads `count` bytes."""
        if count > len(self._rest):
            raise self.field_error(field, "all of its bytes")
        taken, self._rest = self._rest[:count], self._rest[count:]
        return bytes(taken)

    def read_integer(self, field: str, form: str) -> int:
        """Reads a little-endian integer of a struct form: B, H, I or Q."""
        return struct.unpack("<" + form, self.read_bytes(field, struct.calcsize("<" + form)))[0]

    def read_magnitude(self, field: str) -> float:
        """Reads a finite number that is not below zero."""
        value = struct.unpack("<d", self.read_bytes(field, 8))[0]
        if not math.isfinite(value) or value < 0:
            raise self.field_error(field, "a finite number of at least 0")
        return value

    def read_short_bytes(self, field: str) -> bytes:
        """Reads a length of one byte, then as many bytes."""
        return self.read_bytes(field, self.read_integer(field, "B"))

    def read_name(self, field: str) -> str:
        """Reads a name of 1 to 128 visible ASCII characters."""
        raw = self.read_short_bytes(field)
        if not is_name(raw):
            raise self.field_error(field, "1 to 128 visible ASCII characters")
        return raw.decode("ascii")

    def read_word(self, field: str, words: tuple[str, ...], first: int) -> str:
        """Reads a code and gives the word that it stands for."""
        at = self.read_integer(field, "B") - first
        if not 0 <= at < len(words):
            raise self.field_error(field, "a known code")
        return words[at]

    def read_remainder(self) -> bytes:
        """Reads all that is left."""
        taken, self._rest = self._rest, self._rest[:0]
        return bytes(taken)

    def expect_end(self) -> None:
        """Raises `FieldError` where bytes follow the last field."""
        if len(self._rest):
            raise self.field_error("end", "nothing after the last field")


def is_name(raw: bytes) -> bool:
    """Whether bytes can be sent as a name."""
    return 1 <= len(raw) <= 128 and all(0x21 <= byte <= 0x7E for byte in raw)


def _encode_short_bytes(raw: bytes) -> bytes:
    return bytes([len(raw)]) + raw


def _encode_budget(value: int | None) -> int:
    return NO_BUDGET if value is None else value


def _check_opening(fields: Fields) -> None:
    if fields.read_bytes("magic", 8) != MAGIC:
        raise fields.field_error("magic", "CFDBLIND")
    if fields.read_integer("version", "H") != VERSION:
        raise Refusal("version", VERSION)


@dataclass(frozen=True)
class Hello:
    """The message that opens a session."""

    adapter: str
    scheme: str
    parameters: str
    protect: str | None
    client: bytes
    credential: bytes
    public_key: bytes

    def encode(self) -> bytes:
        """Encodes the message."""
        protect = 0 if self.protect is None else PROTECTS.index(self.protect) + 1
        return b"".join(
            (
                MAGIC,
                struct.pack("<H", VERSION),
                _encode_short_bytes(self.adapter.encode("ascii")),
                bytes([SCHEMES.index(self.scheme) + 1]),
                _encode_short_bytes(self.parameters.encode("ascii")),
                bytes([protect]),
                self.client,
                _encode_short_bytes(self.credential),
                self.public_key,
            )
        )

    @staticmethod
    def decode(payload: bytes) -> Hello:
        """Reads a hello; a foreign version is a refusal that names this end's."""
        fields = Fields("hello", payload)
        _check_opening(fields)
        adapter, scheme = fields.read_name("adapter"), fields.read_word("scheme", SCHEMES, 1)
        parameters, protect = fields.read_name("parameters"), fields.read_integer("protect", "B")
        if protect > 2:
            raise fields.field_error("protect", "0, 1 or 2")
        client, credential = fields.read_bytes("client", 32), fields.read_short_bytes("credential")
        if len(credential) > CREDENTIAL_MAX:
            raise fields.field_error("credential", "at most 64 bytes")
        protect_name = None if protect == 0 else PROTECTS[protect - 1]
        return Hello(
            adapter, scheme, parameters, protect_name, client, credential, fields.read_remainder()
        )


@dataclass(frozen=True, repr=False)
class Attach:
    """The message that joins a session. The token lets its bearer use up the session's masks, so repr omits it."""

    client: bytes
    epoch: bytes
    token: bytes

    def encode(self) -> bytes:
        """Encodes the message."""
        return MAGIC + struct.pack("<H", VERSION) + self.client + self.epoch + self.token

    @staticmethod
    def decode(payload: bytes) -> Attach:
        """Reads the message. Raises `FieldError`."""
        fields = Fields("attach", payload)
        _check_opening(fields)
        attach = Attach(
            fields.read_bytes("client", 32),
            fields.read_bytes("epoch", 16),
            fields.read_bytes("token", 32),
        )
        fields.expect_end()
        return attach


@dataclass(frozen=True, repr=False)
class Welcome:
    """The host's answer to a hello: what the session is."""

    epoch: bytes
    token: bytes
    simulated: bool
    trusted: bool
    can_be_learned: bool
    protect: str
    inputs: int

    def encode(self) -> bytes:
        """Encodes the message."""
        flags = self.simulated | self.trusted << 1 | self.can_be_learned << 2
        return (
            struct.pack("<H", VERSION)
            + self.epoch
            + self.token
            + struct.pack("<BBH", flags, PROTECTS.index(self.protect) + 1, self.inputs)
        )

    @staticmethod
    def decode(payload: bytes) -> Welcome:
        """Reads the message. Raises `FieldError`."""
        fields = Fields("welcome", payload)
        if fields.read_integer("version", "H") != VERSION:
            raise fields.field_error("version", "the requested one")
        epoch, token = fields.read_bytes("epoch", 16), fields.read_bytes("token", 32)
        flags = fields.read_integer("flags", "B")
        if flags > 7:
            raise fields.field_error("flags", "three bits")
        protect, inputs = (
            fields.read_word("protect", PROTECTS, 1),
            fields.read_integer("inputs", "H"),
        )
        if not 1 <= inputs <= INPUTS_MAX:
            raise fields.field_error("inputs", "1 to 1024")
        fields.expect_end()
        return Welcome(
            epoch, token, bool(flags & 1), bool(flags & 2), bool(flags & 4), protect, inputs
        )


def encode_input_terms(budget: int | None, left: int | None, terms: bytes) -> bytes:
    """Encodes a terms frame: budget, budget left, then what terms.py writes."""
    return struct.pack("<QQ", _encode_budget(budget), _encode_budget(left)) + terms


def decode_input_terms(payload: bytes) -> tuple[int | None, int | None, bytes]:
    """Gives the budget, the budget left and the bytes of the terms."""
    fields = Fields("terms", payload)
    budget, left = (
        None if n == NO_BUDGET else n
        for n in (fields.read_integer("budget", "Q"), fields.read_integer("left", "Q"))
    )
    if (budget is None) != (left is None) or (
        budget is not None and left is not None and left > budget
    ):
        raise fields.field_error("budget left", "no more than the budget")
    return budget, left, fields.read_remainder()


def encode_part(first: int, count: int, ciphertexts: bytes) -> bytes:
    """Encodes a block or a part of a prepared batch."""
    return struct.pack("<IH", first, count) + ciphertexts


def decode_part(message: str, payload: bytes) -> tuple[int, int, bytes]:
    """Gives the first row or column, the count, and as many ciphertexts of one length."""
    fields = Fields(message, payload)
    first, count = fields.read_integer("first", "I"), fields.read_integer("count", "H")
    ciphertexts = fields.read_remainder()
    if count == 0 or not ciphertexts or len(ciphertexts) % count:
        raise fields.field_error("ciphertexts", "at least one, all of one length")
    return first, count, ciphertexts


def encode_place(layer: int, source: int) -> bytes:
    """Encodes the head of prepare and apply: the layer and the number of the input."""
    return struct.pack("<IB", layer, source)


def _decode_place(fields: Fields) -> tuple[int, int]:
    layer, source = fields.read_integer("layer", "I"), fields.read_integer("input", "B")
    if source > 4:
        raise fields.field_error("input", "a known code")
    return layer, source


def decode_prepare(payload: bytes) -> tuple[int, int]:
    """Gives the layer and the number of the input."""
    fields = Fields("prepare", payload)
    place = _decode_place(fields)
    fields.expect_end()
    return place


def decode_credit(payload: bytes) -> tuple[int, int]:
    """Gives how many blocks may be sent, and the batch's number."""
    fields = Fields("credit", payload)
    credit = fields.read_integer("blocks", "H"), fields.read_integer("batch", "Q")
    fields.expect_end()
    return credit


def encode_apply(layer: int, source: int, counter: int, vectors: int, packed: bytes) -> bytes:
    """Encodes masked vectors, each packed by itself."""
    return struct.pack("<IBQH", layer, source, counter, vectors) + packed


def decode_apply(payload: bytes) -> tuple[int, int, int, int, bytes]:
    """Gives the layer, the input, the first counter, the number of vectors and the packed vectors."""
    fields = Fields("apply", payload)
    layer, source = _decode_place(fields)
    counter, vectors = fields.read_integer("counter", "Q"), fields.read_integer("vectors", "H")
    if not 1 <= vectors <= VECTORS_MAX:
        raise fields.field_error("vectors", "1 to 64")
    if counter + vectors >= 1 << 64:
        raise fields.field_error("counter", "a counter whose successors fit 64 bits")
    return layer, source, counter, vectors, fields.read_remainder()


def encode_products(left: int | None, vectors: int, packed: bytes) -> bytes:
    """Encodes the answers left and the packed products."""
    return struct.pack("<QH", _encode_budget(left), vectors) + packed


def decode_products(payload: bytes) -> tuple[int | None, int, bytes]:
    """Gives the answers left, the number of vectors and the packed products."""
    fields = Fields("products", payload)
    left, vectors = fields.read_integer("budget left", "Q"), fields.read_integer("vectors", "H")
    return (None if left == NO_BUDGET else left), vectors, fields.read_remainder()


def encode_error(refusal: Refusal) -> bytes:
    """Encodes a refusal's code and detail."""
    return struct.pack("<BQ", refusal.code, refusal.detail)


def decode_error(payload: bytes) -> Refusal:
    """Gives the refusal that an error frame holds."""
    fields = Fields("error", payload)
    code, detail = fields.read_integer("code", "B"), fields.read_integer("detail", "Q")
    if code not in REFUSALS:
        raise fields.field_error("code", "a known one")
    fields.expect_end()
    return Refusal(REFUSALS[code], detail)
