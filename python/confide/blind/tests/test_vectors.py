"""This package against crates/lora: vectors/lora, which `cargo test -p confide-lora` writes and checks."""

from __future__ import annotations

import json
import struct
import unittest
from pathlib import Path
from typing import Any

import numpy

from confide.blind import frames, masks, messages, pack, terms
from confide.blind.errors import ActivationRefused, FieldError, ProtocolError, Refusal
from confide.blind.tests import reference
from confide.cuda import parameters
from confide.peft import LoraPair

VECTORS = Path(__file__).resolve().parents[4] / "vectors" / "lora"


def read(name: str) -> Any:
    return json.loads((VECTORS / f"{name}.json").read_text())


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
                raw = made.terms.encode()
                self.assertEqual(raw.hex(), form["terms"])
                again = terms.InputTerms.decode(raw)
                self.assertEqual(again.encode(), raw)
                for end in range(len(raw)):
                    with self.assertRaises(FieldError):
                        terms.InputTerms.decode(raw[:end])
                x = numpy.array(form["vectors"], numpy.uint64).reshape(2, -1)
                wide = made.matrix.astype(numpy.int64).astype(numpy.uint64)
                low = numpy.uint64((1 << made.terms.bits) - 1)
                products = [(wide * vector).sum(axis=1) & low for vector in x]
                self.assertEqual(numpy.concatenate(products).tolist(), form["products"])


class DigestTest(unittest.TestCase):
    def test_what_answers_are_counted_for_is_named_as_in_rust(self) -> None:
        from confide.blind.host import weights_digest

        pair = LoraPair(
            numpy.array([[1.0, -0.5]], numpy.float32), numpy.zeros((3, 1), numpy.float32), 2.0
        )
        wanted = "1777ad61f4eb3f43567ff1386db840fe8f64eb7a23ed30ec823d254e51a82013"
        self.assertEqual(weights_digest([("q", pair)]).hex(), wanted)
        self.assertNotEqual(weights_digest([("k", pair)]).hex(), wanted)


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
    def test_every_message_has_the_bytes_of_rust(self) -> None:
        packed = pack.pack(numpy.array([[1, (1 << 33) - 1, 5]], numpy.uint64), 33)
        hello = messages.Hello(
            "bank", "masked", parameters.DEFAULT, "a", bytes([1] * 32), b"secret", bytes([9] * 20)
        )
        attach = messages.Attach(bytes([1] * 32), bytes([2] * 16), bytes([3] * 32))
        welcome = messages.Welcome(bytes([2] * 16), bytes([3] * 32), True, False, True, "ba", 56)
        made = {
            "hello": (frames.FrameKind.HELLO, 1, hello.encode()),
            "attach": (frames.FrameKind.ATTACH, 2, attach.encode()),
            "welcome": (frames.FrameKind.WELCOME, 1, welcome.encode()),
            "terms": (
                frames.FrameKind.TERMS,
                1,
                messages.encode_input_terms(1535, 7, bytes([1, 2, 3])),
            ),
            "prepare": (frames.FrameKind.PREPARE, 3, messages.encode_place(27, 1)),
            "apply": (frames.FrameKind.APPLY, 4, messages.encode_apply(27, 0, 4096, 1, packed)),
            "products": (frames.FrameKind.PRODUCTS, 4, messages.encode_products(None, 1, packed)),
            "error": (frames.FrameKind.ERROR, 4, messages.encode_error(Refusal("budget", 1535))),
        }
        vectors = read("frames")
        self.assertEqual(sorted(vectors), sorted(made))
        for name, frame in made.items():
            self.assertEqual(frames.encode(*frame).hex(), vectors[name], name)
        self.assertEqual(messages.Hello.decode(hello.encode()), hello)
        self.assertEqual(messages.Attach.decode(attach.encode()), attach)
        self.assertEqual(messages.Welcome.decode(welcome.encode()), welcome)
        self.assertEqual(messages.decode_apply(made["apply"][2]), (27, 0, 4096, 1, packed))
        self.assertEqual(messages.decode_products(made["products"][2]), (None, 1, packed))
        self.assertEqual(messages.decode_error(made["error"][2]).detail, 1535)

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
                frames.parse_header(header + bytes(4), frames.Side.HOST)

    def test_a_version_of_another_is_refused_by_name(self) -> None:
        raw = bytearray(messages.Attach(bytes(32), bytes(16), bytes(32)).encode())
        raw[8] = 2
        with self.assertRaises(Refusal) as caught:
            messages.Attach.decode(bytes(raw))
        self.assertEqual((caught.exception.name, caught.exception.detail), ("version", 1))

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
