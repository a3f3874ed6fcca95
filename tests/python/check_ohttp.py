"""A second reader of encapsulated requests and answers, and of binary HTTP messages, written from
docs/encrypted-bodies.md ("OHTTP") and RFC 9292 alone. Standard library only.

check_ohttp.py [VECTORS]    the published vectors and this project's. Those of the hybrid key are counted
"""

import json
import pathlib
import sys
from collections.abc import Iterator
from typing import Any

from check_encrypted_body import (
    BASE_POINT,
    TAG_BYTES,
    VECTORS,
    X25519,
    Cipher,
    HpkeContext,
    Refused,
    expand,
    extract,
    multiply_point,
)

WHOLE, CHUNKED = "message/ohttp-req", "message/ohttp-chunked-req"
LABELS = {
    WHOLE: (b"message/bhttp request", b"message/bhttp response"),
    CHUNKED: (b"message/bhttp chunked request", b"message/bhttp chunked response"),
}
KEY_BYTES = {1: 16, 2: 32}
HEAD_BYTES = 7 + 32
Record = dict[str, Any]


def read_integer(data: bytes) -> tuple[int, bytes]:
    """A variable-length integer (RFC 9000 section 16), and what follows it."""
    if not data or len(data) < 1 << (data[0] >> 6):
        raise Refused("cut_frame")
    length = 1 << (data[0] >> 6)
    value = int.from_bytes(data[:length], "big") & (1 << 8 * length - 2) - 1
    return value, data[length:]


def read_chunks(data: bytes, form: str, longest: int) -> Iterator[tuple[bytes, bool]]:
    """The ciphertexts, and whether each is the final one."""
    while form == CHUNKED:
        if not data:
            raise Refused("final_frame_missing")
        length, data = read_integer(data)
        if length == 0:
            break
        if length < TAG_BYTES:
            raise Refused("frame_too_short")
        if length > longest:
            raise Refused("frame_too_long")
        if len(data) < length:
            raise Refused("cut_frame")
        yield data[:length], False
        data = data[length:]
    if len(data) > longest:
        raise Refused("frame_too_long")
    if len(data) < TAG_BYTES:
        raise Refused("cut_frame")
    yield data, True


def open_chunks(data: bytes, form: str, cipher: Cipher, longest: int) -> bytes:
    text = b""
    for chunk, is_final in read_chunks(data, form, longest):
        opened = cipher.open(chunk, is_final and form == CHUNKED)
        if not opened and not is_final:
            raise Refused("decryption")
        text += opened
    return text


def begin_request(private_key: bytes, request: bytes, form: str) -> HpkeContext:
    head, encapsulated = request[:7], request[7:HEAD_BYTES]
    assert head[1:5] == bytes([0, 0x20, 0, 1]), head
    info = LABELS[form][0] + b"\0" + head
    return HpkeContext(private_key, encapsulated, info, int.from_bytes(head[5:], "big"))


def begin_answer(context: HpkeContext, request: bytes, nonce: bytes, form: str) -> Cipher:
    length = KEY_BYTES[int.from_bytes(request[5:7], "big")]
    assert len(nonce) == length, nonce
    secret = context.export(LABELS[form][1], length)
    prk = extract(request[7:HEAD_BYTES] + nonce, secret)
    return Cipher(expand(prk, b"key", length), expand(prk, b"nonce", 12))


# ------------------------------------------------------------------ binary messages


def take_bytes(data: bytes) -> tuple[bytes, bytes]:
    length, data = read_integer(data)
    assert len(data) >= length, "a cut message"
    return data[:length], data[length:]


def read_fields(data: bytes, is_known: bool) -> tuple[list[Record], bytes]:
    fields, rest = [], b""
    if not data:
        return [], b""
    if is_known:
        data, rest = take_bytes(data)
    while not is_known or data:
        name, data = take_bytes(data)
        if not name and not is_known:
            rest = data
            break
        value, data = take_bytes(data)
        fields.append({"name": name.decode(), "value": value.decode()})
    return fields, rest


def read_content(data: bytes, is_known: bool) -> tuple[bytes, bytes]:
    if not data:
        return b"", b""
    content, data = take_bytes(data)
    while not is_known and content:
        piece, data = take_bytes(data)
        if not piece:
            break
        content += piece
    return content, data


def read_message(data: bytes) -> Record:
    framing, data = read_integer(data)
    is_known = framing < 2
    message: Record = {}
    if framing % 2 == 0:
        for name in ("method", "scheme", "authority", "path"):
            part, data = take_bytes(data)
            message[name] = part.decode()
    else:
        status, data = read_integer(data)
        while status < 200:
            _, data = read_fields(data, is_known)
            status, data = read_integer(data)
        message["status"] = status
    message["fields"], data = read_fields(data, is_known)
    content, data = read_content(data, is_known)
    _, data = read_fields(data, is_known)
    assert not any(data), "padding"
    return message | {"content": content.hex()}


# ------------------------------------------------------------------------- vectors


def read_file(folder: pathlib.Path, name: str) -> Record:
    vectors: Record = json.loads((folder / name).read_text())
    return vectors


def check_published(case: Record) -> None:
    private_key, request = (bytes.fromhex(case[name]) for name in ("private_key", "request"))
    form = case["form"]
    assert case["configuration"][6:70] == multiply_point(private_key, BASE_POINT).hex()
    context = begin_request(private_key, request, form)
    text = open_chunks(request[HEAD_BYTES:], form, context.cipher, 1 << 20)
    assert text.hex() == case["message"], case["name"]
    nonce, answer = bytes.fromhex(case["answer_nonce"]), bytes.fromhex(case["answer"])
    assert answer.startswith(nonce)
    cipher = begin_answer(context, request, nonce, form)
    text = open_chunks(answer[len(nonce) :], form, cipher, 1 << 20)
    assert text.hex() == "".join(case["answer_chunks"]), case["name"]


def check_own(case: Record, longest: int) -> int:
    private_key, form = bytes.fromhex(case["private_key"]), case["form"]
    for request in case["requests"]:
        data = bytes.fromhex(request["bytes"])
        context = begin_request(private_key, data, form)
        try:
            text = open_chunks(data[HEAD_BYTES:], form, context.cipher, longest)
            outcome = {"text": text.hex()}
        except Refused as refused:
            outcome = {"refused": str(refused)}
        wanted = {name: request[name] for name in ("text", "refused") if name in request}
        assert outcome == wanted, (request["name"], outcome, wanted)
    whole = bytes.fromhex(case["requests"][0]["bytes"])
    length = KEY_BYTES[int.from_bytes(whole[5:7], "big")]
    answer = bytes.fromhex(case["answer"])
    context = begin_request(private_key, whole, form)
    cipher = begin_answer(context, whole, answer[:length], form)
    text = open_chunks(answer[length:], form, cipher, longest)
    assert text.hex() == case["answer_text"]
    return len(case["requests"]) + 1


def main() -> None:
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else VECTORS
    messages = read_file(folder, "binary-messages.json")["cases"]
    for case in messages:
        message = read_message(bytes.fromhex(case["bytes"]))
        assert message == case["message"], case["name"]
    published = read_file(folder, "ohttp-published.json")["cases"]
    for case in published:
        check_published(case)
    own, left_out = read_file(folder, "ohttp.json"), 0
    checked = len(messages) + len(published)
    for case in own["cases"]:
        if case["algo"] == X25519:
            checked += check_own(case, own["chunk_bytes_max"])
        else:
            left_out += len(case["requests"]) + 1
    print(f"ohttp: {checked} vectors agree, {left_out} of the hybrid key left out")


if __name__ == "__main__":
    main()
