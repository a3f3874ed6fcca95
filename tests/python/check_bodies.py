"""Numbers, dates and bodies as docs/disclosure.md reads them: which fields a message has, and the integers
that stand for them. Used by check_disclosure.py. Standard library only.
"""

import json
import re
import struct
from typing import Any, Never

# A document of JSON with numbers as their tokens; and a field: its path, kind and canonical value.
Document = Any
Field = tuple[str, int, bytes]
NULL, BOOL, NUMBER, STRING, ARRAY, OBJECT, OCTETS = range(1, 8)


def u32(value: int) -> bytes:
    return struct.pack(">I", value)


# Numbers and dates


def canonical_number(token: str) -> tuple[str, int | None] | None:
    """The canonical form and the millionths, or None for what is not a number that is read."""
    found = re.fullmatch(r"(-?)(0|[1-9][0-9]*)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?", token)
    if not found or len(token) > 128:
        return None
    sign, whole, fraction, power = found.groups(default="")
    exponent = int(power or 0)
    if abs(exponent) > 9999:
        return None
    digits = (whole + fraction).lstrip("0")
    exponent -= len(fraction)
    stripped = digits.rstrip("0")
    exponent += len(digits) - len(stripped)
    digits = stripped
    if not digits:
        return "0", 0
    if abs(exponent) > 9999:
        return None
    size = len(digits) + exponent if exponent >= 0 else max(len(digits), -exponent)
    if size > 32:
        text = f"{digits}e{exponent}"
    elif exponent >= 0:
        text = digits + "0" * exponent
    elif len(digits) > -exponent:
        text = digits[:exponent] + "." + digits[exponent:]
    else:
        text = "0." + digits.rjust(-exponent, "0")
    if len(sign + text) > 128:
        return None
    micros = None
    if -6 <= exponent < 40:
        micros = int(digits) * 10 ** (exponent + 6)
        micros = (-micros if sign else micros) if micros < 2**62 else None
    return sign + text, micros


def canonical_token(token: str) -> str:
    """The canonical form of a token that `count` has found to be a number."""
    found = canonical_number(token)
    assert found is not None, token
    return found[0]


def days_before(year: int, month: int, day: int) -> int | None:
    lengths = [31, 29 if is_leap(year) else 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
    if not 1 <= month <= 12 or not 1 <= day <= lengths[month - 1]:
        return None
    past = year - 1
    leaps = past // 4 - past // 100 + past // 400
    return past * 365 + leaps + sum(lengths[: month - 1]) + day - 1 - 719162


def is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def rfc3339_micros(text: str) -> int | None:
    pattern = r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d+))?(?:Z|([+-])(\d\d):(\d\d))"
    found = re.fullmatch(pattern, text, re.ASCII)
    if not found:
        return None
    year, month, day, hour, minute, second = (int(part) for part in found.groups()[:6])
    fraction, sign, off_hour, off_minute = found.groups()[6:]
    days = days_before(year, month, day)
    fraction = fraction or ""
    if days is None or hour > 23 or minute > 59 or second > 59 or fraction[6:].strip("0"):
        return None
    offset = 0
    if sign:
        if int(off_hour) > 23 or int(off_minute) > 59:
            return None
        offset = (int(off_hour) * 3600 + int(off_minute) * 60) * (-1 if sign == "-" else 1)
    seconds = days * 86400 + hour * 3600 + minute * 60 + second - offset
    return seconds * 10**6 + int(fraction[:6].ljust(6, "0"))


# Bodies


class Number(str):
    """The token of a number."""


class Unread(Exception):
    """The view of a body that has no fields."""


def strict_json(data: bytes) -> Document:
    def members(pairs: list[tuple[str, Document]]) -> dict[str, Document]:
        names = [name for name, _ in pairs]
        if len(set(names)) != len(names):
            raise Unread(17)
        return dict(pairs)

    def refuse(_: str) -> Never:
        raise Unread(16)

    try:
        text = data.decode("utf-8")
        document = json.loads(
            text,
            object_pairs_hook=members,
            parse_int=Number,
            parse_float=Number,
            parse_constant=refuse,
        )
    except (UnicodeDecodeError, json.JSONDecodeError):
        raise Unread(16) from None
    except RecursionError:
        raise Unread(18) from None
    if count(document, 0) > 16384:
        raise Unread(18)
    return document


def count(value: Document, depth: int) -> int:
    if isinstance(value, Number):
        if canonical_number(value) is None:
            raise Unread(18)
        return 1
    if isinstance(value, str) and any(0xD800 <= ord(c) < 0xE000 for c in value):
        raise Unread(16)
    if not isinstance(value, (dict, list)):
        return 1
    if depth == 64:
        raise Unread(18)
    inside = list(value.values()) + list(value) if isinstance(value, dict) else value
    values = sum(count(it, depth + 1) for it in inside)
    return 1 + values - (len(value) if isinstance(value, dict) else 0)


def fields_of(path: str, value: Document) -> list[Field]:
    """The fields of a value and everything below it: path, kind and canonical value."""
    if len(path.encode()) > 1024:
        raise Unread(18)
    if value is None:
        return [(path, NULL, b"")]
    if isinstance(value, bool):
        return [(path, BOOL, b"true" if value else b"false")]
    if isinstance(value, Number):
        return [(path, NUMBER, canonical_token(value).encode())]
    if isinstance(value, str):
        return [(path, STRING, value.encode())]
    if isinstance(value, list):
        fields = [(path, ARRAY, str(len(value)).encode())]
        below = [(str(index), it) for index, it in enumerate(value)]
    else:
        names = sorted(name.encode() for name in value)
        fields = [(path, OBJECT, b"".join(u32(len(name)) + name for name in names))]
        below = [(name.replace("~", "~0").replace("/", "~1"), it) for name, it in value.items()]
    for name, it in below:
        fields += fields_of(f"{path}/{name}", it)
    return fields


def amount_of(kind: int, value: bytes) -> int | None:
    if kind == NUMBER:
        micros = (canonical_number(value.decode()) or ("", None))[1]
    elif kind == STRING:
        micros = rfc3339_micros(value.decode())
    else:
        return None
    return None if micros is None else 2**63 + micros


def assemble(stream: bytes) -> tuple[Document, bool]:
    """The document of a stream of events, and whether it was finished."""
    try:
        text = stream.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError:
        raise Unread(16) from None
    *lines, _unended = re.split("\r\n|\n|\r", text)
    chunks, data, finished = [], [], False
    for line in lines:
        if line:
            name, _, value = line.partition(":")
            if name == "data":
                data.append(value.removeprefix(" "))
        elif data:
            event, data = "\n".join(data), []
            if finished:
                raise Unread(19)
            if event == "[DONE]":
                finished = True
            else:
                chunks.append(strict_json(event.encode()))
    return merge_chunks(chunks), finished


def merge_chunks(chunks: list[Document]) -> Document:
    constant: dict[str, Document] = {}
    choices: dict[int, dict[str, Any]] = {}
    differing, usage, seen = set(), None, False
    for chunk in chunks:
        if not isinstance(chunk, dict):
            raise Unread(19)
        for name, value in chunk.items():
            if name == "choices":
                seen = True
                if not isinstance(value, list):
                    raise Unread(19)
                for choice in value:
                    add_choice(choices.setdefault(index_of(choice), {}), choice)
            elif name == "usage":
                usage = value if value is not None else usage
            elif name in constant and canonical(constant[name]) != canonical(value):
                differing.add(name)
            else:
                constant.setdefault(name, value)
    if not seen or sorted(choices) != list(range(len(choices))):
        raise Unread(19)
    document = {name: value for name, value in constant.items() if name not in differing}
    document["choices"] = [finish_choice(index, choices[index]) for index in sorted(choices)]
    if usage is not None:
        document["usage"] = usage
    return document


def canonical(value: Document) -> list[Field]:
    return fields_of("", value)


def index_of(it: Document) -> int:
    index = it.get("index") if isinstance(it, dict) else None
    if not isinstance(index, Number) or not canonical_token(index).isdecimal():
        raise Unread(19)
    place = int(canonical_token(index))
    if place >= 128:
        raise Unread(19)
    return place


def text_of(it: Document, name: str) -> str | None:
    value = it.get(name) if isinstance(it, dict) else None
    if value is not None and (isinstance(value, Number) or not isinstance(value, str)):
        raise Unread(19)
    return value


def join(into: dict[str, Any], it: Document, names: list[str]) -> None:
    for name in names:
        text = text_of(it, name)
        if text is not None:
            into[name] = into.get(name, "") + text


def first(into: dict[str, Any], it: Document, names: list[str]) -> None:
    for name in names:
        text = text_of(it, name)
        if text is not None and into.setdefault(name, text) != text and text != "":
            raise Unread(19)


def add_choice(known: dict[str, Any], choice: Document) -> None:
    join(known, choice, ["text"])
    if choice.get("finish_reason") is not None:
        known["finish_reason"] = choice["finish_reason"]
    delta = choice.get("delta", {})
    message = known.setdefault("message", {})
    join(message, delta, ["content", "reasoning", "reasoning_content", "refusal"])
    first(message, delta, ["role"])
    calls = delta.get("tool_calls") if isinstance(delta, dict) else None
    calls = [] if calls is None else calls
    if not isinstance(calls, list):
        raise Unread(19)
    for call in calls:
        held = message.setdefault("tool_calls", {}).setdefault(index_of(call), {"function": {}})
        first(held, call, ["id", "type"])
        first(held["function"], call.get("function", {}), ["name"])
        join(held["function"], call.get("function", {}), ["arguments"])


def finish_choice(index: int, known: dict[str, Any]) -> dict[str, Any]:
    choice = {"index": Number(index), "finish_reason": known.get("finish_reason")}
    if "text" in known:
        choice["text"] = known["text"]
    message = dict(known.get("message", {}))
    if "tool_calls" in message:
        message["tool_calls"] = [call for _, call in sorted(message["tool_calls"].items())]
    if message:
        choice["message"] = message
    return choice


def body(media: str, data: bytes) -> tuple[int, list[Field]]:
    """View and fields of a response's body."""
    try:
        if media == "text/event-stream":
            document, finished = assemble(data)
            view = 2 if finished else 3
        else:
            document, view = strict_json(data), 1
        return view, fields_of("response.", document)
    except Unread as unread:
        return unread.args[0], []
