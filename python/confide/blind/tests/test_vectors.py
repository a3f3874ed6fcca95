"""This package against crates/lora: vectors/lora, which `cargo test -p confide-lora` writes and checks."""

from __future__ import annotations

import inspect
import json
import struct
import unittest
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy

from confide._extension import native
from confide.blind import masks, pack, terms
from confide.blind.errors import ActivationRefused, FieldError, ProtocolError, Refusal
from confide.blind.tests import reference
from confide.cuda import parameters
from confide.peft import LoraPair

VECTORS = Path(__file__).resolve().parents[4] / "vectors" / "lora"


def read(name: str) -> Any:
    return json.loads((VECTORS / f"{name}.json").read_text())


def fields_of(message: Any) -> dict[str, Any]:
    """What a message says, by the names of its fields."""
    if isinstance(message, Refusal):
        return {"name": message.name, "detail": message.detail}
    kind = type(message)
    names = [name for name, member in vars(kind).items() if inspect.isgetsetdescriptor(member)]
    return {"kind": kind.__name__} | {name: getattr(message, name) for name in names}


def floats(bits: list[int]) -> numpy.ndarray:
    return numpy.array(bits, numpy.uint32).view(numpy.float32)


class QuantiseTest(unittest.TestCase):
    def test_every_vector_is_rounded_and_refused_as_in_rust(self) -> None:
        for number, case in enumerate(read("quantise")["cases"]):
            real, limit = floats(case["real_bits"]), case["norm_limit"]
            with self.subTest(case=number):
                if "refused" in case:
                    with (
                        self.assertRaises(ActivationRefused) as caught,
                        numpy.errstate(invalid="ignore"),
                    ):
                        reference.quantise_vector(real, limit)
                    wanted = case["refused"]
                    text = (
                        "too coarse"
                        if wanted == "too_coarse"
                        else f"entry {wanted['not_finite_at']} is not finite"
                    )
                    self.assertIn(text, str(caught.exception))
                else:
                    values, scale = reference.quantise_vector(real, limit)
                    self.assertEqual(values.tolist(), case["values"])
                    self.assertEqual(
                        struct.unpack("<Q", struct.pack("<d", scale))[0], case["scale_bits"]
                    )


class WeightsTest(unittest.TestCase):
    def test_weights_terms_and_products_are_those_of_rust(self) -> None:
        vectors = read("weights")
        pairs = []
        for name, projection in (("query", "q"), ("value", "v")):
            given = vectors[name]
            a = floats(given["a_bits"]).reshape(given["rank"], given["columns"])
            b = floats(given["b_bits"]).reshape(given["outputs"], given["rank"])
            pairs.append((projection, LoraPair(a, b, given["scale"])))
        for form in vectors["forms"]:
            with self.subTest(protect=form["protect"]):
                made = terms.quantise_pairs(
                    3, pairs, form["protect"], parameters.find_set(parameters.DEFAULT)
                )
                self.assertEqual(made.matrix.ravel().tolist(), form["entries"])
                raw = made.terms_bytes
                self.assertEqual(raw.hex(), form["terms"])
                self.assert_same_terms(terms.InputTerms.decode(raw), made.terms)
                for end in range(len(raw)):
                    with self.assertRaises(FieldError):
                        terms.InputTerms.decode(raw[:end])
                x = numpy.array(form["vectors"], numpy.uint64).reshape(2, -1)
                wide = made.matrix.astype(numpy.int64).astype(numpy.uint64)
                low = numpy.uint64((1 << made.terms.bits) - 1)
                products = [(wide * vector).sum(axis=1) & low for vector in x]
                self.assertEqual(numpy.concatenate(products).tolist(), form["products"])

    def assert_same_terms(self, left: terms.InputTerms, right: terms.InputTerms) -> None:
        for one, other in zip(left.parts, right.parts, strict=True):
            self.assertEqual(
                (one.projection, one.rows, one.outputs, one.scale),
                (other.projection, other.rows, other.outputs, other.scale),
            )
            numpy.testing.assert_array_equal(one.factor, other.factor)
        self.assertEqual(replace(left, parts=()), replace(right, parts=()))


class DigestTest(unittest.TestCase):
    def test_what_answers_are_counted_for_is_named_as_in_rust(self) -> None:
        def digest(projection: str) -> str:
            chosen = parameters.find_set(parameters.DEFAULT)
            return terms.quantise_pairs(0, [(projection, pair)], "a", chosen).weights_digest.hex()

        pair = LoraPair(
            numpy.array([[1.0, -0.5]], numpy.float32), numpy.zeros((3, 1), numpy.float32), 2.0
        )
        wanted = "1777ad61f4eb3f43567ff1386db840fe8f64eb7a23ed30ec823d254e51a82013"
        self.assertEqual(digest("q"), wanted)
        self.assertNotEqual(digest("k"), wanted)


class MaskTest(unittest.TestCase):
    def test_masks_and_answer_masks_are_those_of_rust(self) -> None:
        vectors = read("masks")
        for case in vectors["cases"]:
            made = reference.mask_rows(
                bytes.fromhex(vectors["key"]),
                case["first"],
                case["tokens"],
                case["columns"],
                case["bits"],
            )
            self.assertEqual([str(word) for word in made.ravel().tolist()], case["rows"])
        given = vectors["answers"]
        key = masks.answer_key(
            bytes.fromhex(given["process_key"]),
            bytes.fromhex(given["epoch"]),
            bytes.fromhex(given["client"]),
            bytes.fromhex(given["adapter"]),
            given["layer"],
            given["source"],
            bytes.fromhex(given["nonce"]),
            given["batch"],
        )
        made = reference.mask_rows(key, given["first"], 2, given["columns"], given["bits"])
        self.assertEqual(made.ravel().tolist(), given["rows"])


class FrameTest(unittest.TestCase):
    def test_every_message_has_the_bytes_of_rust_and_comes_back(self) -> None:
        packed = pack.pack(numpy.array([[1, (1 << 33) - 1, 5]], numpy.uint64), 33)
        client, epoch, token = (
            bytes([byte] * count) for byte, count in ((1, 32), (2, 16), (3, 32))
        )
        made: dict[str, tuple[str, int, Any]] = {
            "hello": (
                "host",
                1,
                native.Hello(
                    "bank", "masked", parameters.DEFAULT, "a", client, b"secret", bytes([9] * 20)
                ),
            ),
            "attach": ("host", 2, native.Attach(client, epoch, token)),
            "welcome": (
                "holder",
                1,
                native.Welcome(epoch, token, True, False, True, "ba", 56),
            ),
            "terms": ("holder", 1, native.GroupTerms(1535, 7, bytes([1, 2, 3]))),
            "prepare": ("host", 3, native.PrepareRequest(27, 1)),
            "apply": ("host", 4, native.MaskedRequest(27, 0, 4096, 1, packed)),
            "products": ("holder", 4, native.MaskedAnswer(None, 1, packed)),
            "error": ("holder", 4, Refusal("budget", 1535)),
        }
        vectors = read("frames")
        self.assertEqual(sorted(vectors), sorted(made))
        for name, (receiver, request, message) in made.items():
            with self.subTest(message=name):
                frame = message.to_frame(request)
                self.assertEqual(frame.hex(), vectors[name])
                reader = native.FrameReader(receiver)
                for byte in frame[:-1]:
                    self.assertIsNone(reader.read(bytes([byte])))
                found = reader.read(frame[-1:])
                assert found
                self.assertEqual((found[0], reader.is_empty), (request, True))
                self.assertEqual(fields_of(found[1]), fields_of(message))

    def test_messages_without_a_vector_come_back(self) -> None:
        for receiver, message in (
            ("holder", native.AttachAnswer(3)),
            ("holder", native.BlockCredit(4, 1 << 40)),
            ("host", native.CiphertextBlock(32, 2, bytes(10))),
            ("holder", native.PreparedRows(7, 5, bytes(20))),
            ("host", native.Goodbye(True)),
            ("holder", native.Farewell()),
        ):
            found = native.FrameReader(receiver).read(message.to_frame(9))
            assert found
            self.assertEqual((found[0], fields_of(found[1])), (9, fields_of(message)))

    def test_what_is_no_frame_of_this_side_is_refused_by_its_header(self) -> None:
        headers = (
            bytes([4, 0, 0, 0, 1]),
            bytes([5, 0, 0, 0, 0x33]),
            bytes([5, 0, 0, 0, 0x86]),
            bytes([255, 255, 255, 255, 1]),
            bytes([7, 0, 0, 0, 7]),
        )
        for header in headers:
            with self.assertRaises(ProtocolError):
                native.FrameReader("host").read(header + bytes(4))

    def test_a_payload_that_is_not_one_is_refused_by_its_field(self) -> None:
        frame = native.MaskedRequest(0, 0, 0, 1, b"").to_frame(1)
        changed = bytearray(frame)
        # The input, then the number of vectors.
        for at, field in ((13, "input"), (22, "vectors")):
            changed[:] = frame
            changed[at] = 99
            with self.assertRaises(FieldError) as caught:
                native.FrameReader("host").read(bytes(changed))
            self.assertEqual((caught.exception.message, caught.exception.field), ("apply", field))

    def test_what_no_frame_can_hold_is_not_encoded(self) -> None:
        with self.assertRaises(ProtocolError):
            native.CiphertextBlock(0, 1, bytes((8 << 20) + 1)).to_frame(1)
        for given in (
            ("b" * 256, "masked", "a", b""),
            ("bank", "other", "a", b""),
            ("bank", "masked", "b", b""),
            ("bank", "masked", "a", bytes(65)),
        ):
            adapter, scheme, protect, credential = given
            hello = native.Hello(adapter, scheme, "set", protect, bytes(32), credential, b"")
            with self.assertRaises(ValueError):
                hello.to_frame(1)
        with self.assertRaises(ValueError):
            native.PrepareRequest(0, 5).to_frame(1)

    def test_a_version_of_another_is_refused_by_name(self) -> None:
        raw = bytearray(native.Attach(bytes(32), bytes(16), bytes(32)).to_frame(1))
        raw[9 + 8] = 2
        with self.assertRaises(Refusal) as caught:
            native.FrameReader("host").read(bytes(raw))
        self.assertEqual((caught.exception.name, caught.exception.detail), ("version", 1))

    def test_a_refusal_has_the_words_of_rust_and_no_other_name_is_one(self) -> None:
        self.assertEqual(str(Refusal("budget", 7)), "budget: all 7 answers are used up")
        self.assertEqual(
            str(Refusal("busy")), "busy: the host has reached a limit; try again later"
        )
        with self.assertRaises(ValueError):
            Refusal("other")

    def test_words_of_every_width_come_back_and_stray_bits_do_not(self) -> None:
        for bits in (1, 8, 27, 33, 36, 64):
            low = numpy.uint64((1 << bits) - 1)
            values = (
                numpy.arange(1, 31, dtype=numpy.uint64).reshape(3, 10)
                * numpy.uint64(0x9E3779B97F4A7C15)
            ) & low
            raw = pack.pack(values, bits)
            unpacked = pack.unpack(raw, bits, 3, 10)
            assert unpacked is not None
            self.assertTrue((unpacked == values).all())
            self.assertIsNone(pack.unpack(raw[1:], bits, 3, 10))
        changed = bytearray(pack.pack(numpy.array([[1, 2, 3]], numpy.uint64), 33))
        changed[-1] |= 0x80
        self.assertIsNone(pack.unpack(bytes(changed), 33, 1, 3))


if __name__ == "__main__":
    unittest.main()
