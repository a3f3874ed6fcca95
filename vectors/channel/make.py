"""Writes the vectors of docs/channel.md from that page alone, in another language than the code.

python3 vectors/channel/make.py
"""

import hashlib
import json
import os
from collections.abc import Sequence
from typing import Any

Case = dict[str, Any]
Pairs = list[tuple[str, bytes]]

HERE = os.path.dirname(os.path.abspath(__file__))
KEY = hashlib.sha256(b"a public key").digest()
CONFIG = hashlib.sha256(b"a configuration").digest()
GPU = hashlib.sha256(b"evidence of a GPU").digest()
WEIGHTS = [bytes([n] * 32) for n in range(1, 9)]
GUARANTEE = "operator is outside the TEE"
QUOTE = b"quote"
CONTEXT = bytes(range(32))
NULL = b"\xf6"


def main() -> None:
    write("claims.json", ABOUT_CLAIMS, claims_cases())
    write("tagged_evidence.json", ABOUT_TAGGED, tagged_cases())
    write("binder.json", ABOUT_BINDER, binder_cases())
    write("gpu_nonce.json", ABOUT_GPU_NONCE, gpu_nonce_cases())
    write("renewal.json", ABOUT_RENEWAL, renewal_cases())
    write("session_message.json", ABOUT_MESSAGES, message_cases())
    write("batch.json", ABOUT_BATCH, batch_cases())


# CBOR, deterministic (RFC 8949 section 4.2.1).


def head(major: int, n: int) -> bytes:
    for size, info in ((0, n), (1, 24), (2, 25), (4, 26), (8, 27)):
        if n < 24 if size == 0 else n < 1 << 8 * size:
            return bytes([major << 5 | info]) + (n.to_bytes(size, "big") if size else b"")
    raise ValueError(n)


def uint(n: int) -> bytes:
    return head(0, n)


def bstr(b: bytes) -> bytes:
    return head(2, len(b)) + b


def text(s: str) -> bytes:
    return head(3, len(s.encode())) + s.encode()


def array(*items: bytes) -> bytes:
    return head(4, len(items)) + b"".join(items)


def mapping(pairs: Pairs) -> bytes:
    return head(5, len(pairs)) + b"".join(text(key) + value for key, value in pairs)


def encode_tagged(*items: bytes, tag: int = 60000) -> bytes:
    return head(6, tag) + array(*items)


# Claims.

ABOUT_CLAIMS = (
    "Encodings of claims (docs/channel.md, Claims). `bytes` is hex. A case has `claims`, which the"
    " bytes hold and encode to again, or `error`, the reason for which they are rejected."
)


def pairs(
    nonce: bytes | None = None,
    guarantee: str = GUARANTEE,
    not_after: int = 1800003600,
    not_before: int = 1800000000,
    key: bytes = KEY,
    config: bytes = CONFIG,
    version: int = 1,
    algorithm: int = 1,
    gpu: bytes | None = None,
    weights: Sequence[bytes | None] | None = None,
) -> list[tuple[str, bytes]]:
    return (
        ([("nonce", bstr(nonce))] if nonce is not None else [])
        + ([("weights", measurements(weights))] if weights is not None else [])
        + [
            ("guarantee", text(guarantee)),
            ("not-after", uint(not_after)),
            ("not-before", uint(not_before)),
            ("pubkey-hash", array(uint(algorithm), bstr(key))),
            ("config-digest", bstr(config)),
            ("confide-version", uint(version)),
        ]
        + ([("gpu-evidence-hash", bstr(gpu))] if gpu is not None else [])
    )


def fields(
    nonce: bytes | None = None,
    guarantee: str = GUARANTEE,
    not_after: int = 1800003600,
    not_before: int = 1800000000,
    gpu: bytes | None = None,
    weights: Sequence[bytes | None] | None = None,
) -> Case:
    return {
        "config-digest": CONFIG.hex(),
        "gpu-evidence-hash": gpu.hex() if gpu is not None else None,
        "guarantee": guarantee,
        "nonce": nonce.hex() if nonce is not None else None,
        "not-after": not_after,
        "not-before": not_before,
        "pubkey-hash": KEY.hex(),
        "weights": None if weights is None else [one.hex() if one else None for one in weights],
    }


def measurements(weights: Sequence[bytes | None]) -> bytes:
    """The claim about weights; None stands for weights that were not measured."""
    return array(
        *(text("not measured") if one is None else array(uint(1), bstr(one)) for one in weights)
    )


def claims(**values: Any) -> bytes:
    return mapping(pairs(**values))


def claims_without(key: str) -> bytes:
    return mapping([pair for pair in pairs() if pair[0] != key])


GOOD = claims()


def good_claims(name: str, **values: Any) -> Case:
    return {"name": name, "bytes": claims(**values).hex(), "claims": fields(**values)}


def weights_cases() -> list[Case]:
    return [
        good_claims("weights of one model", weights=[WEIGHTS[0]]),
        good_claims("weights of two models and others", weights=[*WEIGHTS[:2], None]),
        good_claims(
            "most weights beside a nonce", nonce=bytes(range(32)), weights=[*WEIGHTS, None]
        ),
        bad("no weights", claims(weights=[]), "weights_count"),
        bad("others only", claims(weights=[None]), "weights_count"),
        bad("weights of nine models", claims(weights=[*WEIGHTS, b"\xff" * 32]), "weights_count"),
        bad("weights in another order", claims(weights=WEIGHTS[1::-1]), "not_canonical"),
        bad("the same weights twice", claims(weights=[WEIGHTS[0]] * 2), "not_canonical"),
        bad("others in front", claims(weights=[None, WEIGHTS[0]]), "not_canonical"),
        bad("others twice", claims(weights=[WEIGHTS[0], None, None]), "malformed"),
        bad("weights of 31 bytes", claims(weights=[WEIGHTS[0][:31]]), "malformed"),
        bad(
            "an unknown source of weights",
            claims(weights=WEIGHTS[:1]).replace(
                array(uint(1), bstr(WEIGHTS[0])), array(uint(2), bstr(WEIGHTS[0]))
            ),
            "malformed",
        ),
    ]


def claims_cases() -> list[Case]:
    good = good_claims
    negative = text("not-before") + b"\x20"
    return [
        good("claims without a nonce"),
        good("claims with a nonce", nonce=bytes(range(32))),
        good("the other guarantee", guarantee="gateway only"),
        good("numbers of one and nine bytes", not_before=23, not_after=2**40),
        good("the same instant twice", not_before=24, not_after=24),
        good("longest guarantee", guarantee="g" * 256),
        good("shortest nonce", nonce=bytes(8)),
        good("longest nonce", nonce=bytes(64)),
        good("hash of GPU evidence", gpu=GPU),
        good("hash of GPU evidence beside a nonce", nonce=bytes(range(32)), gpu=GPU),
        *weights_cases(),
        bad("hash of GPU evidence of 31 bytes", claims(gpu=GPU[:31]), "digest_length"),
        bad(
            "hash of GPU evidence in front",
            mapping([("gpu-evidence-hash", bstr(GPU)), *pairs()]),
            "not_canonical",
        ),
        bad("empty input", b"", "malformed"),
        bad("cut by one byte", GOOD[:-1], "malformed"),
        bad("one byte after the end", GOOD + b"\0", "not_canonical"),
        bad("indefinite map", b"\xbf" + GOOD[1:] + b"\xff", "malformed"),
        bad("keys in another order", mapping(pairs()[::-1]), "not_canonical"),
        bad(
            "length of a text in a longer form",
            GOOD.replace(text("guarantee"), b"\x78\x09guarantee"),
            "not_canonical",
        ),
        bad("a key twice", mapping([*pairs(), ("guarantee", text("x"))]), "duplicate_key"),
        bad("an unknown key", mapping([*pairs(), ("zz", uint(1))]), "unknown_key"),
        bad("a number for a key", head(5, 1) + uint(1) + uint(1), "malformed"),
        bad("no config-digest", claims_without("config-digest"), "missing"),
        bad("no pubkey-hash", claims_without("pubkey-hash"), "missing"),
        bad("version 2", claims(version=2), "version"),
        bad("pubkey-hash by sha-384", claims(algorithm=7), "hash_algorithm"),
        bad("pubkey-hash of 31 bytes", claims(key=KEY[:31]), "digest_length"),
        bad("config-digest of 48 bytes", claims(config=CONFIG + CONFIG[:16]), "digest_length"),
        bad("empty guarantee", claims(guarantee=""), "guarantee_length"),
        bad("guarantee of 257 bytes", claims(guarantee="g" * 257), "guarantee_length"),
        bad(
            "guarantee with an escape sequence",
            claims(guarantee="a\x1b[2J"),
            "guarantee_control_character",
        ),
        bad("nonce of 7 bytes", claims(nonce=bytes(7)), "nonce_length"),
        bad("nonce of 65 bytes", claims(nonce=bytes(65)), "nonce_length"),
        bad(
            "validity that ends before it begins",
            claims(not_before=2, not_after=1),
            "validity_reversed",
        ),
        bad(
            "negative not-before",
            GOOD.replace(text("not-before") + uint(1800000000), negative),
            "malformed",
        ),
        bad("longer than 1024 bytes", GOOD + bytes(1024), "too_long"),
    ]


# Certificate extensions.

ABOUT_TAGGED = (
    "Content of certificate extensions 2.23.133.5.4.9 (`quote` and `claims`) and 2.23.133.5.4.2"
    " (`collateral`), CBOR tag 60000 (docs/channel.md, Key binding). All values are hex."
)


def tagged_cases() -> list[Case]:
    def good(name: str, content: bytes, **values: Any) -> Case:
        values = {key: value.hex() for key, value in values.items()}
        return {"name": name, "bytes": content.hex(), **values}

    both = (bstr(QUOTE), bstr(GOOD))
    return [
        good("evidence", encode_tagged(*both), quote=QUOTE, claims=GOOD),
        good(
            "a long quote", encode_tagged(bstr(bytes(300)), both[1]), quote=bytes(300), claims=GOOD
        ),
        good("collateral", encode_tagged(bstr(b"{}")), collateral=b"{}"),
        bad("another tag", encode_tagged(*both, tag=60001), "tag"),
        bad("no tag", array(*both), "tag"),
        bad("empty input", b"", "tag"),
        bad("three members", encode_tagged(*both, both[0]), "array"),
        bad("an indefinite array", head(6, 60000) + b"\x9f" + b"".join(both) + b"\xff", "array"),
        bad("a text for a quote", encode_tagged(text("quote"), both[1]), "malformed"),
        bad("cut in the claims", encode_tagged(*both)[:-1], "malformed"),
        bad("an empty quote", encode_tagged(bstr(b""), both[1]), "empty"),
        bad("empty claims", encode_tagged(both[0], bstr(b"")), "empty"),
        bad("claims of 1025 bytes", encode_tagged(both[0], bstr(bytes(1025))), "too_long"),
        bad("a length in a longer form", encode_tagged(b"\x58\x05quote", both[1]), "not_canonical"),
        bad("one byte after the end", encode_tagged(*both) + b"\0", "not_canonical"),
    ]


# Binders.

ABOUT_BINDER = (
    "Report data of both bindings with all inputs (docs/channel.md, Binders). All values are hex."
)


def binder_cases() -> list[Case]:
    cases: list[Case] = []
    other = claims(guarantee="gateway only")
    for index, bound in enumerate((GOOD, claims(nonce=bytes(range(32))), other)):
        cases.append(
            {
                "name": f"key binding {index + 1}",
                "binding": "key",
                "claims": bound.hex(),
                "report_data": (hashlib.sha256(bound).digest() + bytes(32)).hex(),
            }
        )
    for role, byte in (("server", b"\x01"), ("client", b"\x02")):
        for spki, exporter, bound in (
            (KEY, bytes(range(32)), GOOD),
            (KEY, bytes(range(32, 64)), GOOD),
            (CONFIG, bytes(range(32)), GOOD),
            (KEY, bytes(range(32)), other),
        ):
            parts = b"confide attestation v1\0" + byte + spki + exporter
            report_data = hashlib.sha512(parts + hashlib.sha256(bound).digest())
            cases.append(
                {
                    "name": f"session binding {len(cases) - 2}",
                    "binding": "session",
                    "role": role,
                    "spki_hash": spki.hex(),
                    "exporter": exporter.hex(),
                    "claims": bound.hex(),
                    "report_data": report_data.hexdigest(),
                }
            )
    return cases


# Nonces of GPUs.

ABOUT_GPU_NONCE = (
    "Nonces that a GPU signs, with all inputs (docs/channel.md, Binders). All values are hex;"
    " without an exporter the binding is that of the key."
)


def gpu_nonce_cases() -> list[Case]:
    cases: list[Case] = []
    for role, byte in (("server", b"\x01"), ("client", b"\x02")):
        for spki in (KEY, CONFIG):
            for exporter in (None, bytes(range(32)), bytes(range(32, 64))):
                kind = b"\x01" if exporter is None else b"\x02"
                parts = b"confide gpu nonce v1\0" + kind + byte + spki + (exporter or b"")
                cases.append(
                    {
                        "name": f"nonce {len(cases) + 1}",
                        "role": role,
                        "spki_hash": spki.hex(),
                        "exporter": exporter.hex() if exporter is not None else None,
                        "nonce": hashlib.sha256(parts).hexdigest(),
                    }
                )
    return cases


# Fresh evidence in an open session.

ABOUT_RENEWAL = (
    "What takes the exporter's place in binders and nonces of fresh evidence, with all inputs"
    " (docs/channel.md, Fresh evidence in an open session). All values are hex."
)


def renewal_cases() -> list[Case]:
    cases: list[Case] = []
    for secret in (bytes(range(32)), bytes(range(32, 64))):
        for context in (bytes(32), CONTEXT, bytes(range(64, 96))):
            whole = b"confide renewal v1\0" + secret + context
            cases.append(
                {
                    "name": f"renewal {len(cases) + 1}",
                    "secret": secret.hex(),
                    "context": context.hex(),
                    "exporter": hashlib.sha256(whole).hexdigest(),
                }
            )
    return cases


# Messages of the exchange.

ABOUT_MESSAGES = (
    "Messages of the session exchange, without the frame's length (docs/channel.md, Session"
    " binding). Values are hex."
)


def message_cases() -> list[Case]:
    return good_messages() + bad_messages()


def good_messages() -> list[Case]:
    def good(name: str, content: bytes, kind: str, **values: Any) -> Case:
        return {"name": name, "bytes": content.hex(), "kind": kind, **values}

    with_collateral = array(bstr(QUOTE), bstr(GOOD), bstr(b"{}"))
    bare = array(bstr(QUOTE), bstr(GOOD), NULL)
    evidence = {"quote": QUOTE.hex(), "claims": GOOD.hex(), "collateral": b"{}".hex()}
    context = bstr(CONTEXT)
    path = batch_path(batch_leaves(3), 2)
    shared = array(bstr(QUOTE), bstr(GOOD), NULL, bstr(path), NULL)
    with_gpu = array(bstr(QUOTE), bstr(GOOD), bstr(b"{}"), NULL, bstr(b"gpu"))
    return [
        good("request", array(uint(1), context), "request", context=CONTEXT.hex()),
        good("request for no evidence", array(uint(1), NULL), "request", context=None),
        good(
            "reply",
            array(uint(2), NULL, with_collateral),
            "reply",
            context=None,
            evidence=evidence,
        ),
        good(
            "reply that demands",
            array(uint(2), context, bare),
            "reply",
            context=CONTEXT.hex(),
            evidence={**evidence, "collateral": None},
        ),
        good(
            "reply without evidence",
            array(uint(2), context, NULL),
            "reply",
            context=CONTEXT.hex(),
            evidence=None,
        ),
        good("evidence", array(uint(3), with_collateral), "evidence", evidence=evidence),
        good(
            "evidence of a batch",
            array(uint(3), shared),
            "evidence",
            evidence={**evidence, "collateral": None, "batch": path.hex()},
        ),
        good(
            "reply with evidence of a GPU",
            array(uint(2), NULL, with_gpu),
            "reply",
            context=None,
            evidence={**evidence, "gpu": b"gpu".hex()},
        ),
        good("accepted", array(uint(4)), "accepted"),
    ] + [
        good(f"refused {code}", array(uint(0), uint(code)), "refused", code=code)
        for code in range(1, 6)
    ]


def bad_messages() -> list[Case]:
    def request(length: int) -> bytes:
        return array(uint(1), bstr(bytes(length)))

    long_claims = array(bstr(QUOTE), bstr(bytes(1025)), NULL)
    path = batch_path(batch_leaves(3), 2)
    neither = array(bstr(QUOTE), bstr(GOOD), NULL, NULL, NULL)
    four = array(bstr(QUOTE), bstr(GOOD), NULL, bstr(path))
    long_path = array(bstr(QUOTE), bstr(GOOD), NULL, bstr(bytes(358)), NULL)
    return [
        bad("empty input", b"", "malformed"),
        bad("a map", mapping([]), "malformed"),
        bad("kind 5", array(uint(5)), "kind"),
        bad("accepted with a member", array(uint(4), NULL), "members"),
        bad("context of 16 bytes", request(16), "context_length"),
        bad("context of 33 bytes", request(33), "context_length"),
        bad("empty context", request(0), "context_length"),
        bad("refusal 0", array(uint(0), uint(0)), "refusal_code"),
        bad("refusal 6", array(uint(0), uint(6)), "refusal_code"),
        bad("empty quote", array(uint(3), array(bstr(b""), bstr(GOOD), NULL)), "empty"),
        bad("evidence of two", array(uint(3), array(bstr(QUOTE), bstr(GOOD))), "malformed"),
        bad("claims of 1025 bytes", array(uint(3), long_claims), "too_long"),
        bad("evidence of four", array(uint(3), four), "malformed"),
        bad("evidence of five with neither", array(uint(3), neither), "not_canonical"),
        bad("batch path of 358 bytes", array(uint(3), long_path), "too_long"),
        bad("one byte after the end", array(uint(4)) + b"\0", "not_canonical"),
        bad("a kind in a longer form", b"\x81\x18\x04", "not_canonical"),
    ]


# Batches.

ABOUT_BATCH = (
    "Merkle trees over session binders (docs/channel.md, Batches). A case with `leaves` gives the"
    " report data of the root and some paths with their index; one with `bytes` is a path that is"
    " refused for `error`. Salts and binders are SHA-256 and SHA-512 of `salt N` and `binder N`."
)


def batch_leaves(size: int) -> list[tuple[bytes, bytes]]:
    return [
        (hashlib.sha256(b"salt %d" % n).digest(), hashlib.sha512(b"binder %d" % n).digest())
        for n in range(size)
    ]


def batch_hash(leaves: list[tuple[bytes, bytes]]) -> bytes:
    """The root, by the recursive definition of RFC 9162 section 2.1.1."""
    if len(leaves) == 1:
        return hashlib.sha256(b"\0" + leaves[0][0] + leaves[0][1]).digest()
    half = batch_split(len(leaves))
    both = batch_hash(leaves[:half]) + batch_hash(leaves[half:])
    return hashlib.sha256(b"\1" + both).digest()


def batch_split(size: int) -> int:
    """The largest power of two below the size."""
    return 1 << (size - 1).bit_length() - 1


def batch_siblings(leaves: list[tuple[bytes, bytes]], index: int) -> list[bytes]:
    if len(leaves) == 1:
        return []
    half = batch_split(len(leaves))
    left, right = leaves[:half], leaves[half:]
    if index < half:
        return [*batch_siblings(left, index), batch_hash(right)]
    return [*batch_siblings(right, index - half), batch_hash(left)]


def batch_path(leaves: list[tuple[bytes, bytes]], index: int) -> bytes:
    head = b"\1" + len(leaves).to_bytes(2, "big") + index.to_bytes(2, "big")
    return head + leaves[index][0] + b"".join(batch_siblings(leaves, index))


def batch_report_data(leaves: list[tuple[bytes, bytes]]) -> bytes:
    size = len(leaves).to_bytes(2, "big")
    return hashlib.sha512(b"confide batch v1\0" + size + batch_hash(leaves)).digest()


def batch_cases() -> list[Case]:
    def good(size: int) -> Case:
        leaves = batch_leaves(size)
        shown = sorted({0, 1, size // 2, size - 2, size - 1})
        return {
            "name": f"batch of {size}",
            "leaves": size,
            "report_data": batch_report_data(leaves).hex(),
            "paths": [{"index": n, "bytes": batch_path(leaves, n).hex()} for n in shown],
        }

    path = batch_path(batch_leaves(7), 3)
    return [good(size) for size in (2, 3, 4, 5, 6, 7, 8, 100, 128, 1023, 1024)] + [
        bad("empty input", b"", "length"),
        bad("cut in the head", path[:36], "length"),
        bad("cut by one byte", path[:-1], "length"),
        bad("one sibling too few", path[:-32], "length"),
        bad("one sibling too many", path + bytes(32), "length"),
        bad("version 2", b"\2" + path[1:], "version"),
        bad("batch of none", path[:1] + b"\0\0" + path[3:], "size"),
        bad("batch of one", path[:1] + b"\0\1\0\0" + path[5:37], "size"),
        bad("batch of 1025", path[:1] + b"\4\1" + path[3:], "size"),
        bad("position after the last", path[:3] + b"\0\7" + path[5:], "index"),
        bad("last of seven with three siblings", path[:3] + b"\0\6" + path[5:], "length"),
    ]


def bad(name: str, content: bytes, error: str) -> Case:
    return {"name": name, "bytes": content.hex(), "error": error}


def write(name: str, about: str, cases: list[Case]) -> None:
    with open(os.path.join(HERE, name), "w") as file:
        json.dump({"about": about, "cases": cases}, file, indent=2)
        file.write("\n")


if __name__ == "__main__":
    main()
