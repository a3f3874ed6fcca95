"""Adapters in the worker: plain ones as PEFT applies them, relayed ones over the socket's frames, failures alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from confide.worker.generation import Generation

import json
import os
import struct
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import unittest
import warnings
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
try:
    import numpy
    import peft
    import torch

    torch.set_num_threads(1)
except ImportError:
    torch = None

PROMPTS = [list(range(5, 30)), [9, 8, 7], list(range(60, 100)), [44, 3, 90, 12]]


def setUpModule() -> None:
    if torch is None:
        raise unittest.SkipTest("skipped: no torch or no peft")


class Bench:
    """A worker without its socket, over a small model with adapters that PEFT made."""

    def __init__(self, folder: Path, family: str = "qwen2", **options: Any) -> None:
        from confide.worker.adapters import AdapterRegistry, WorkerContext
        from confide.worker.relay import Mailbox
        from confide.worker.setup import Options, RecordingListener, build_worker
        from confide.worker.tests import shapes

        self.folder, self.family = folder, family
        shapes.save(shapes.peer(family), folder / "base")
        self.built = build_worker(
            Options(str(folder / "base"), **({"slots": 4, "context": 128} | options))
        )
        self.scheduler = self.built.scheduler
        self.heard = RecordingListener()
        self.scheduler.listener = self.heard
        self.sent: list[bytes] = []
        self.mailbox = Mailbox(self.sent.append)
        self.mailbox.pump, self.mailbox.is_cancelled = (
            self.scheduler.run_round_meanwhile,
            self.scheduler.is_cancelled,
        )
        device, dtype = torch.device("cpu"), torch.float32
        self.adapters = AdapterRegistry(
            WorkerContext(self.built.config, device, dtype, 4, self.mailbox)
        )

    def make(self, name: str, seed: int = 1, **changes: object) -> Any:
        """A PEFT adapter with random A and B, saved; gives the model that PEFT makes of it."""
        from confide.worker.tests import shapes

        every = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
        own = {"r": 4, "lora_alpha": 8, "target_modules": every, "task_type": "CAUSAL_LM"}
        config = peft.LoraConfig(**{**own, **changes})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = peft.get_peft_model(shapes.peer(self.family), config).eval()
        torch.manual_seed(seed)
        with torch.no_grad():
            for key, tensor in model.named_parameters():
                if "lora_" in key:
                    tensor.copy_(torch.randn_like(tensor) * 0.3)
        model.save_pretrained(self.folder / name)
        return model

    def submit(
        self, number: int, ids: list[int], count: int, adapter: str | None = None, **more: Any
    ) -> Generation:
        from confide.worker.generation import Request

        loaded = self.adapters.loaded[adapter] if adapter else None
        return self.scheduler.submit(Request(number, ids, count, **more), loaded)

    def run(self, seconds: float = 30.0) -> dict[int, list[int]]:
        """Turns until nothing is left."""
        end = time.monotonic() + seconds
        with torch.inference_mode():
            while not self.scheduler.is_idle and time.monotonic() < end:
                self.scheduler.run_round()
        return self.heard.said

    def failure_kind(self, number: int) -> str | None:
        failure = self.ended_by_number[number].failure
        return failure.kind if failure is not None else None

    @property
    def ended_by_number(self) -> dict[int, Generation]:
        return self.heard.over


def greedy(model: Any, ids: list[int], count: int) -> list[int]:
    with torch.inference_mode():
        given = torch.tensor([ids])
        how = {"do_sample": False, "max_new_tokens": count, "eos_token_id": None}
        out = model.generate(input_ids=given, attention_mask=torch.ones_like(given), **how)
    tokens: list[int] = out[0, len(ids) :].tolist()
    return tokens


class WithFolder(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)


class Plain(WithFolder):
    def test_a_batch_of_several_adapters_and_none_gives_each_what_peft_gives(self) -> None:
        from confide.worker.tests import shapes

        for family in ("qwen2", "llama"):
            with self.subTest(family):
                bench = Bench(self.folder / family, family)
                models: dict[str | None, Any] = {
                    "all": bench.make("all", 1),
                    "some": bench.make("some", 2, target_modules=["q_proj", "v_proj", "down_proj"], use_rslora=True,
                                       rank_pattern={"layers.1.self_attn.q_proj": 7}, alpha_pattern={"down_proj": 3}),
                    None: shapes.peer(family),
                }  # fmt: skip
                for loaded in ("all", "some"):
                    bench.adapters.load(loaded, "plain", {"path": str(bench.folder / loaded)})
                order: list[str | None] = ["all", None, "some", "all"]
                for number, (ids, name) in enumerate(zip(PROMPTS, order)):
                    bench.submit(number, ids, 12 + 4 * number, name)
                said = bench.run()
                for number, (ids, name) in enumerate(zip(PROMPTS, order)):
                    self.assertEqual(
                        said[number], greedy(models[name], ids, 12 + 4 * number), (number, name)
                    )
                    told = bench.ended_by_number[number].end_frame()["adapter"]
                    self.assertEqual(told, None if name is None else {"guarantee": "none"})
                self.assertNotEqual(
                    greedy(models["all"], PROMPTS[0], 12), greedy(models[None], PROMPTS[0], 12)
                )

    def test_an_adapter_that_comes_or_goes_leaves_running_ones_as_they_are(self) -> None:
        bench = Bench(self.folder)
        models = {name: bench.make(name, seed) for seed, name in enumerate(("first", "second"), 3)}
        bench.adapters.load("first", "plain", {"path": str(bench.folder / "first")})
        bench.submit(1, PROMPTS[0], 30, "first")
        with torch.inference_mode():
            for _ in range(8):
                bench.scheduler.run_round()
            bench.adapters.unload("first")
            bench.adapters.load("second", "plain", {"path": str(bench.folder / "second")})
        bench.submit(2, PROMPTS[1], 20, "second")
        said = bench.run()
        self.assertEqual(said[1], greedy(models["first"], PROMPTS[0], 30))
        self.assertEqual(said[2], greedy(models["second"], PROMPTS[1], 20))

    def test_a_generation_that_moves_to_a_lower_slot_takes_its_adapter_along(self) -> None:
        bench = Bench(self.folder)
        model = bench.make("one")
        bench.adapters.load("one", "plain", {"path": str(bench.folder / "one")})
        for number in range(3):
            bench.submit(number, PROMPTS[1], 3)
        bench.submit(3, PROMPTS[2], 40, "one")
        said = bench.run()
        self.assertEqual(said[3], greedy(model, PROMPTS[2], 40))
        self.assertEqual(bench.ended_by_number[3].slot, 0)

    def test_what_peft_would_do_otherwise_is_refused_by_name(self) -> None:
        from confide.worker.deltas import AdapterError

        bench = Bench(self.folder)
        bench.make("good")
        path = self.folder / "good" / "adapter_config.json"
        good = json.loads(path.read_text())
        changes: list[tuple[dict[str, Any], str]] = [
            ({"use_dora": True}, "use_dora"), ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
            ({"bias": "all"}, "bias"), ({"lora_bias": True}, "lora_bias"), ({"peft_type": "IA3"}, "peft_type"),
            ({"init_lora_weights": "pissa"}, "init_lora_weights"), ({"arrow_config": {"x": 1}}, "arrow_config"),
            ({"target_modules": ["q_proj"]}, "does not select"), ({"r": 5}, "wanted shape \\[5"), ({"r": 0}, "good"),
            ({"target_modules": "(q_proj"}, "pattern"), ({"layers_to_transform": [0, 1, 2, 3]}, "missing"),
        ]  # fmt: skip
        for change, word in changes:
            path.write_text(json.dumps({**good, **change}))
            if change == {"r": 0}:
                continue
            with self.assertRaisesRegex(AdapterError, word):
                bench.adapters.load("good", "plain", {"path": str(self.folder / "good")})
        path.write_text(json.dumps(good))
        weights = self.folder / "good" / "adapter_model.safetensors"
        weights.rename(self.folder / "good" / "adapter_model.bin")
        with self.assertRaisesRegex(AdapterError, "pickle"):
            bench.adapters.load("good", "plain", {"path": str(self.folder / "good")})
        for kind in ("blind", "magic"):
            with self.assertRaises(AdapterError):
                bench.adapters.load("other", kind, {})

    def test_an_adapter_of_other_widths_is_refused(self) -> None:
        from confide.worker.deltas import AdapterError
        from confide.worker.tests import shapes

        bench = Bench(self.folder)
        other = peft.get_peft_model(
            shapes.peer("qwen2", hidden_size=32),
            peft.LoraConfig(target_modules=["up_proj"], task_type="CAUSAL_LM"),
        )
        other.save_pretrained(self.folder / "narrow")
        with self.assertRaisesRegex(AdapterError, r"up: wanted \(64, 96\), got \(32, 96\)"):
            bench.adapters.load("narrow", "plain", {"path": str(self.folder / "narrow")})


class Answers(threading.Thread):
    """Answers needs as `confide serve` would, by a PEFT folder; `after` needs of a generation it gives an error."""

    def __init__(
        self, bench: Bench, path: Path, after: int = 1 << 30, error: int = 1, stalls: bool = False
    ) -> None:
        super().__init__(daemon=True)
        from confide import peft as folder

        self.bench, self.pairs, self.after, self.error, self.stalls = (
            bench,
            folder.load_adapter(path)[1],
            after,
            error,
            stalls,
        )
        self.asked: dict[int, int] = {}
        self.over = False
        self.start()

    def run(self) -> None:
        while not self.over:
            if not self.bench.sent:
                time.sleep(0.0002)
                continue
            self.answer(self.bench.sent.pop(0))

    def answer(self, payload: bytes) -> None:
        from confide.worker.deltas import PROJECTIONS

        number, layer, source, rows, width, count = struct.unpack_from("<IIBIIB", payload)
        projections = [PROJECTIONS[one] for one in payload[18 : 18 + count]]
        self.asked[number] = self.asked.get(number, 0) + 1
        head = struct.pack("<IIB", number, layer, source)
        if self.asked[number] > self.after:
            message = json.dumps({"message": "the host is gone"}).encode()
            if not self.stalls:
                self.bench.mailbox.deliver_answer(
                    head + bytes([self.error]) + struct.pack("<I", len(message)) + message
                )
            return
        floats = numpy.frombuffer(payload, "<f4", offset=18 + count)
        given, rest = torch.tensor(floats[: rows * width]).view(rows, width), floats[rows * width :]
        changed = []
        for name in projections:
            pair = self.pairs[layer, name]
            out, rest = rest[: rows * pair.b.shape[0]], rest[rows * pair.b.shape[0] :]
            a, b = torch.from_numpy(pair.a), torch.from_numpy(pair.b)
            delta = given @ a.t() @ b.t() * pair.scale
            changed.append((torch.tensor(out).view(rows, -1) + delta).numpy().tobytes())
        assert not len(rest)
        self.bench.mailbox.deliver_answer(head + b"\0" + b"".join(changed))


class Relay(WithFolder):
    def make_relayed(self, **options: Any) -> tuple[Bench, Any, Answers]:
        bench = Bench(self.folder)
        model = bench.make("one", target_modules=["q_proj", "v_proj", "o_proj", "up_proj"])
        answers = Answers(bench, self.folder / "one", **options)
        self.addCleanup(lambda: setattr(answers, "over", True))
        from confide.worker.adapters import sites_on_wire

        sites = {site: (pair.a.shape[1], pair.b.shape[0]) for site, pair in answers.pairs.items()}
        bench.adapters.load(
            "one", "relay", {"sites": sites_on_wire(sites), "guarantee": "adapter host is blind"}
        )
        return bench, model, answers

    def test_a_relayed_adapter_gives_what_peft_gives_beside_plain_generations(self) -> None:
        from confide.worker.tests import shapes

        bench, model, answers = self.make_relayed()
        names = ["one", None, "one", None]
        for number, (ids, name) in enumerate(zip(PROMPTS, names)):
            bench.submit(number, ids, 10 + number, name)
        said = bench.run()
        for number, (ids, name) in enumerate(zip(PROMPTS, names)):
            wanted = model if name else shapes.peer("qwen2")
            self.assertEqual(said[number], greedy(wanted, ids, 10 + number), number)
        # Nine points (three layers with three of the four sources), for the prompt and for each further token.
        self.assertEqual(answers.asked, {0: 9 * 10, 2: 9 * 12})
        self.assertEqual(
            bench.ended_by_number[0].end_frame()["adapter"]["guarantee"], "adapter host is blind"
        )

    def test_a_failing_adapter_ends_its_generation_alone_and_by_its_cause(self) -> None:
        from confide.worker.tests import shapes

        for after, error, cause in ((4, 3, "budget"), (20, 1, "host_lost")):
            bench, _, _ = self.make_relayed(after=after, error=error)
            bench.submit(1, PROMPTS[0], 20, "one")
            bench.submit(2, PROMPTS[1], 20)
            said = bench.run()
            self.assertEqual(said[2], greedy(shapes.peer("qwen2"), PROMPTS[1], 20))
            told = bench.ended_by_number[1].end_frame()
            self.assertEqual((told["reason"], told["error"]["kind"]), ("failed", "adapter"))
            self.assertEqual(told["error"]["cause"], cause)
            self.assertEqual(told["error"]["message"], "the host is gone")
            self.assertEqual(bench.scheduler.slots, [None] * 4)

    def test_while_one_waits_for_its_host_others_start_and_end_and_it_can_be_cancelled(
        self,
    ) -> None:
        for after in (2, 12):
            bench, _, _ = self.make_relayed(after=after, stalls=True)
            bench.submit(1, PROMPTS[0], 20, "one")
            bench.submit(2, PROMPTS[1], 30)
            others = threading.Thread(target=bench.run)
            others.start()
            end = time.monotonic() + 20
            while 2 not in bench.ended_by_number and time.monotonic() < end:
                time.sleep(0.01)
            self.assertIn(
                2, bench.ended_by_number, "the plain generation waits for the other's host"
            )
            self.assertNotIn(1, bench.ended_by_number)
            bench.submit(3, PROMPTS[3], 5)
            while 3 not in bench.ended_by_number and time.monotonic() < end:
                time.sleep(0.01)
            self.assertIn(3, bench.ended_by_number, "a later generation waits for the other's host")
            bench.scheduler.cancel(1)
            others.join(20)
            self.assertEqual(bench.ended_by_number[1].ended, "cancelled")


class WithoutNative(unittest.TestCase):
    def test_each_kind_that_needs_the_native_part_is_refused_with_a_word_on_how_to_get_it(
        self,
    ) -> None:
        script = """
            import os, sys

            os.environ.pop("CONFIDE_NATIVE", None)
            os.environ["CARGO_TARGET_DIR"] = os.devnull
            sys.modules["confide._native"] = None
            import torch
            from types import SimpleNamespace
            from confide.worker.adapters import AdapterRegistry
            from confide.worker.deltas import AdapterError

            registry = AdapterRegistry(SimpleNamespace(slots=1, device="cpu", dtype=torch.float32))
            for kind in ("plain", "one-graph", "ipc", "blind"):
                try:
                    registry.make("mine", kind, {"path": "bank"})
                except AdapterError as error:
                    assert "make native" in str(error), (kind, error)
                else:
                    raise SystemExit(f"{kind}: wanted an error")
        """
        python_folder = str(Path(__file__).resolve().parents[3])
        subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script)],
            env=os.environ | {"PYTHONPATH": python_folder},
            check=True,
            timeout=60,
        )


class Failing(WithFolder):
    def test_an_adapter_that_cannot_open_or_breaks_fails_its_generation_only(self) -> None:
        from confide.worker.deltas import AdapterError
        from confide.worker.tests import shapes

        class Broken:
            guarantee, capturable = "none", True

            def add(self, layer: int, source: str, rows: Any, outputs: dict[str, Any]) -> None:
                raise RuntimeError("a bug")

            def report(self) -> dict[str, Any]:
                return {}

        class Adapter:
            def __init__(self, name: str, opens: bool) -> None:
                self.name, self.opens, self.sites = name, opens, {(1, "q"): (64, 64)}

            def open(self) -> Broken:
                if not self.opens:
                    raise AdapterError("refused by its host", "refused")
                return Broken()

        bench = Bench(self.folder)
        for name, opens in (("shut", False), ("broken", True)):
            bench.adapters.attach(name, Adapter(name, opens))
        bench.submit(1, PROMPTS[0], 20, "shut")
        bench.submit(2, PROMPTS[0], 20, "broken")
        bench.submit(3, PROMPTS[1], 20)
        end = time.monotonic() + 20
        while len(bench.ended_by_number) < 3 and time.monotonic() < end:
            said = bench.run()
        self.assertEqual(said[3], greedy(shapes.peer("qwen2"), PROMPTS[1], 20))
        refused, broken = (bench.ended_by_number[number].failure for number in (1, 2))
        assert refused and broken
        self.assertEqual(refused.cause, "refused")
        self.assertEqual((broken.kind, broken.cause), ("adapter", None))
        self.assertIn("a bug", broken.message)


if __name__ == "__main__":
    unittest.main()
