"""Stages that break, hang or lose the card: what was measured stays, the reason is told, nothing is left running."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent)]

from typing import Any, Never

import checks
import journal
import peers
import probe
import run
from blocks import Arm, ArmFailed, Measurement, StageSession

Work = Callable[[StageSession], None]
PARAMS = {"model": "qwen2.5-1.5b", "batch": 1}


def measure(_seed: int) -> Measurement:
    return Measurement([{"tokens_per_s": 1.0}])


class StageCase(unittest.TestCase):
    """A journal, and stages whose work is made up."""

    def setUp(self) -> None:
        folder = self.enterContext(tempfile.TemporaryDirectory())
        head = journal.make_head(["run.py"], {"cpu_model": "made-up", "cpus_online": 1}, 7)
        self.journal = journal.Journal(Path(folder), head, rehearsal=True)
        self.addCleanup(self.journal._file.close)
        self.facts: dict[str, Any] = {}

    def run_stage(self, work: Work, budget: float = 20.0, cpu: bool = True) -> str | None:
        stage = {"name": "made-up", "budget_s": budget / (4 if cpu else 1)}
        arguments = argparse.Namespace(cpu=cpu, seed=7)
        quiet = contextlib.redirect_stdout(io.StringIO())
        with mock.patch.dict(sys.modules, {"stages.made-up": SimpleNamespace(run=work)}), quiet:
            return run.run_stage(stage, self.journal, self.facts, arguments)

    def lines(self, kind: str) -> list[dict[str, Any]]:
        every = [
            json.loads(line) for line in self.journal.path.read_text(encoding="utf-8").splitlines()
        ]
        return [line for line in every if line["kind"] == kind]


class AStage(StageCase):
    def test_that_fails_stands_in_the_record_with_its_error_and_keeps_its_blocks(self) -> None:
        def work(session: StageSession) -> Never:
            session.run_case_blocks("decode", PARAMS, [Arm("base", measure)])
            raise ValueError("made-up: no such kernel")

        ended = self.run_stage(work)
        self.assertEqual(ended, "failed: ValueError: made-up: no such kernel")
        self.assertEqual(
            self.lines("not_run"), [{"kind": "not_run", "bench": "made-up", "reason": ended}]
        )
        self.assertEqual(len(self.lines("block")), 3)

    def test_leaves_no_process_behind_however_it_ends(self) -> None:
        def work(session: StageSession) -> None:
            held = subprocess.Popen(["sleep", "100"])
            session.share_fact("pid", held.pid)
            if session.facts.get("fails"):
                raise ValueError("made-up")

        for fails in (False, True):
            self.facts["fails"] = fails
            self.run_stage(work)
            end = time.monotonic() + 5
            while Path(f"/proc/{self.facts['pid']}").exists() and time.monotonic() < end:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(self.facts["pid"], os.WNOHANG)
                stat = Path(f"/proc/{self.facts['pid']}/stat")
                if stat.exists() and stat.read_text().rsplit(")", 1)[1].split()[0] == "Z":
                    break
                time.sleep(0.02)
            self.assertLess(time.monotonic(), end)

    def test_goes_on_without_an_arm_that_breaks(self) -> None:
        def break_down(_seed: int) -> Measurement:
            raise RuntimeError("made-up: operation not permitted when stream is capturing")

        def work(session: StageSession) -> None:
            made = session.make_or_leave_out("decode", "ipc", lambda: 1 // 0)
            self.assertIsNone(made)
            session.run_case_blocks(
                "decode", PARAMS, [Arm("base", measure), Arm("one-graph", break_down)]
            )

        self.assertIsNone(self.run_stage(work))
        given_up = {
            line["name"]: line["given_up"] for line in self.lines("arm") if line["given_up"]
        }
        self.assertIn("ZeroDivisionError", given_up["ipc"])
        self.assertIn("not permitted when stream is capturing", given_up["one-graph"])
        slices = [(line["block"], line["arm"], "void" in line) for line in self.lines("slice")]
        self.assertEqual(sorted(slices), [(0, "base", False), (0, "one-graph", True), (1, "base", False),
                                          (2, "base", False)])  # fmt: skip

    def test_measures_the_others_where_an_arm_is_not_ready_in_time(self) -> None:
        def work(session: StageSession) -> None:
            began = time.monotonic()
            self.assertIsNone(
                session.make_or_leave_out("decode", "one-graph", lambda: time.sleep(60))
            )
            self.assertLess(time.monotonic() - began, 5)
            session.run_case_blocks("decode", PARAMS, [Arm("base", measure)])

        with mock.patch("blocks.MAKING_SHARE", 0.01):
            self.assertIsNone(self.run_stage(work))
        self.assertEqual(self.lines("arm")[0]["given_up"], "NotReady: not ready within 1 s")
        self.assertEqual(len(self.lines("block")), 3)

    def test_that_loses_the_card_goes_on_in_a_new_process_without_the_arm_that_lost_it(
        self,
    ) -> None:
        lost: list[int] = []

        def synchronize() -> None:
            if lost:
                raise RuntimeError("CUDA error: an illegal memory access was encountered")

        def breaks(seed: int) -> Measurement:
            counted.append(seed)
            if len(counted) > 3:
                lost.append(seed)
                synchronize()
            return measure(seed)

        def work(session: StageSession) -> None:
            session.run_case_blocks(
                "decode", PARAMS, [Arm("base", measure), Arm("one-graph", breaks)]
            )

        counted: list[int] = []
        with mock.patch.dict(
            sys.modules, {"torch": SimpleNamespace(cuda=SimpleNamespace(synchronize=synchronize))}
        ):
            self.assertIsNone(self.run_stage(work, cpu=False))
        self.assertEqual([line["block"] for line in self.lines("block")], list(range(13)))
        arms = [line["arm"] for line in self.lines("slice")]
        self.assertEqual((arms.count("base"), arms.count("one-graph")), (13, 3))
        given_up = [line["given_up"] for line in self.lines("arm") if line["name"] == "one-graph"][
            -1
        ]
        self.assertIn("illegal memory access", given_up)

    def test_is_cut_at_its_budget_and_not_begun_after_the_run_s_limit(self) -> None:
        with mock.patch.object(run, "GRACE_S", 0.1), mock.patch.object(run, "LEAST_S", 0.1):
            began = time.monotonic()
            self.assertIn(
                "cut at its budget", str(self.run_stage(lambda _: time.sleep(60), budget=0.4))
            )
            self.assertLess(time.monotonic() - began, 5)
        with mock.patch.object(run, "STARTED", time.monotonic() - run.LIMIT_S):
            self.assertIn("no time left of the run", str(self.run_stage(lambda _: None, cpu=False)))
        self.assertLess(run.LIMIT_S + run.RECORD_S, 480)


class Checks(StageCase):
    """What a record says of checks that ran after the figures, failed, or did not run."""

    def notes(self, outcomes: dict[str, str] | None) -> dict[str, str | None]:
        def decode(session: StageSession) -> None:
            arms = [Arm("base", measure), Arm("one-graph", measure, note="its own")]
            session.run_case_blocks("decode", PARAMS, arms)
            session.run_case_blocks("generate", PARAMS, [Arm("transformers", measure)])

        def check(session: StageSession) -> None:
            session.share_fact("checks", outcomes)

        for work in (decode, *([check] if outcomes is not None else [])):
            self.assertIsNone(self.run_stage(work))
        with contextlib.redirect_stdout(io.StringIO()):
            run.finish_journal(self.journal, self.facts, [])
        return {line["name"]: line["note"] for line in self.lines("arm")}

    def test_an_arm_is_not_checked_where_they_did_not_run(self) -> None:
        not_run = {"base": "not checked on this card", "transformers": None,
                   "one-graph": "its own; not checked on this card"}  # fmt: skip
        self.assertEqual(self.notes(None), not_run)

    def test_an_arm_is_not_checked_where_they_had_no_time(self) -> None:
        outcomes = dict.fromkeys(checks.OF_ARM["base"], "passed: OK")
        outcomes[checks.OF_ARM["one-graph"][0]] = "no time left"
        self.assertEqual(self.notes(outcomes)["one-graph"], "its own; not checked on this card")

    def test_an_arm_names_those_that_failed(self) -> None:
        every = {name: "passed: OK" for names in checks.OF_ARM.values() for name in names}
        failed = every | {"confide.cuda.tests.test_online": "failed with status 1: FAILED"}
        wanted = "its own; checks failed on this card: test_online"
        self.assertEqual(
            self.notes(failed), {"base": None, "transformers": None, "one-graph": wanted}
        )

    def test_an_arm_is_clean_where_all_passed(self) -> None:
        every = {name: "passed: OK" for names in checks.OF_ARM.values() for name in names}
        clean = {"base": None, "transformers": None, "one-graph": "its own"}
        self.assertEqual(self.notes(every), clean)

    def test_the_checks_of_every_arm_are_files_that_the_stage_runs(self) -> None:
        arms = {arm["name"] for arm in journal.read_suite()["arm"]}
        self.assertLessEqual(set(checks.OF_ARM), arms)
        for names in checks.OF_ARM.values():
            for name in names:
                path = journal.CHECKOUT / "python" / f"{name.replace('.', '/')}.py"
                self.assertTrue(path.is_file(), name)


class TheProbe(StageCase):
    """The choice of a decoder, with decoders of made-up speed."""

    def choose(self, rates: dict[str, float]) -> str:
        loop: Any = SimpleNamespace(
            model_name="qwen2.5-1.5b", slots=1, decoder="", weight_read_floor=lambda _: None
        )

        def use_decoder(name: str) -> None:
            loop.decoder = name

        def decode(*_: int) -> Any:
            if loop.decoder not in rates:
                raise RuntimeError("made-up: operation not supported in a capture")
            return SimpleNamespace(tokens=rates[loop.decoder], seconds=1.0)

        loop.use_decoder, loop.run = use_decoder, decode

        def work(session: StageSession) -> None:
            probe.choose_decoder(session, loop)
            session.share_fact("used", loop.decoder)

        synchronize = SimpleNamespace(cuda=SimpleNamespace(synchronize=lambda: None))
        with mock.patch.dict(sys.modules, {"torch": synchronize}):
            self.assertIsNone(self.run_stage(work, cpu=False))
        return str(self.facts["used"])

    def test_takes_the_fastest(self) -> None:
        names = ("decoder-kernels", "decoder-kernels-in-turn", "decoder-torch")
        for best in names:
            self.facts.clear()
            found = self.choose({name: 900.0 if name == best else 800.0 for name in names})
            self.assertEqual(found, best)

    def test_does_without_one_that_breaks_and_names_it(self) -> None:
        self.assertEqual(self.choose({"decoder-torch": 500.0}), "decoder-torch")
        given_up = {line["name"] for line in self.lines("arm") if line["given_up"]}
        self.assertEqual(given_up, {"decoder-kernels", "decoder-kernels-in-turn"})
        # What was chosen is known to later stages, which do not try again.
        blocks = len(self.lines("block"))
        self.assertEqual(self.choose({"decoder-torch": 500.0}), "decoder-torch")
        self.assertEqual(len(self.lines("block")), blocks)


class TheArchive(StageCase):
    def test_holds_everything_that_should_come_back(self) -> None:
        folder = self.journal.path.parent
        (folder / "log").mkdir()
        (folder / "log" / "check-made-up.log").write_text("OK")
        cache = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.enterContext(mock.patch.dict(os.environ, {"CONFIDE_CACHE": str(cache)}))
        (cache / "kernels").mkdir(mode=0o700)
        (cache / "kernels" / "tilings-NVIDIA-H100-0123.json").write_text("[]")
        (cache / "kernels" / "gemv-sm_90-0123.cubin").write_bytes(b"")
        for _ in range(2):
            with tarfile.open(run.archive_folder(folder)) as packed:
                names = [
                    "log/check-made-up.log",
                    "rehearsal.jsonl",
                    "tilings/tilings-NVIDIA-H100-0123.json",
                ]
                self.assertEqual(sorted(packed.getnames()), names)

    def test_names_its_commit_where_there_is_no_repository(self) -> None:
        nowhere = self.enterContext(tempfile.TemporaryDirectory())
        with (
            mock.patch.object(journal, "CHECKOUT", Path(nowhere)),
            mock.patch.dict(os.environ, {"CONFIDE_COMMIT": "0123abc"}),
        ):
            self.assertEqual(journal.read_commit(), "0123abc")


class TheNativePart(StageCase):
    """The package's native part, which only adapters need."""

    def run_stages(self, fault: str | None, *needing: bool) -> tuple[int, list[dict[str, Any]]]:
        """Runs stages that measure a made-up base; gives the exit status and the journal's lines."""

        def work(session: StageSession) -> None:
            session.run_case_blocks("decode", PARAMS, [Arm("base", measure)])

        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        stages = [
            {"name": f"made-up-{number}", "budget_s": 5, "needs_native": needs}
            for number, needs in enumerate(needing)
        ]
        modules = {f"stages.{stage['name']}": SimpleNamespace(run=work) for stage in stages}
        arguments = ["run.py", "--cpu", "--out", str(folder)]
        with (
            mock.patch.object(run, "read_plan", lambda: stages),
            mock.patch.object(run, "find_native_fault", lambda: fault),
            mock.patch.object(run, "read_native_facts", lambda: {"file": "made-up"}),
            mock.patch.object(sys, "argv", arguments),
            mock.patch.dict(sys.modules, modules),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            status = run.main()
        path = folder / journal.REHEARSAL_FILE
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return status, [json.loads(line) for line in lines]

    def test_is_named_in_the_record(self) -> None:
        status, lines = self.run_stages(None, True, False)
        self.assertEqual(status, 0)
        (service,) = (line for line in lines if line["kind"] == "service")
        self.assertEqual((service["name"], service["ready"]), ("native", {"file": "made-up"}))

    def test_is_missed_by_the_stages_of_adapters_alone(self) -> None:
        status, lines = self.run_stages("made-up", True, False)
        self.assertEqual(status, 1)
        self.assertEqual(
            [line for line in lines if line["kind"] == "not_run"],
            [{"kind": "not_run", "bench": "made-up-0", "reason": "made-up"}],
        )
        self.assertTrue([line for line in lines if line["kind"] == "block"])
        self.assertFalse([line for line in lines if line["kind"] == "service"])

    def test_where_it_is_all_that_would_be_measured_nothing_is_written(self) -> None:
        self.assertEqual(self.run_stages("made-up", True), (2, []))

    def test_has_a_name_without_folders_and_a_digest(self) -> None:
        try:
            facts = run.read_native_facts()
        except ImportError as error:
            self.skipTest(f"skipped: {error}")
        self.assertNotIn(str(Path.home()), facts["file"])
        self.assertRegex(facts["sha256"], "^[0-9a-f]{64}$")


class ThePlan(unittest.TestCase):
    def test_measures_what_is_wanted_most_first_and_checks_before_the_rest(self) -> None:
        names = [stage["name"] for stage in run.read_plan()]
        wanted = ["ceilings", "decode", "batch", "generate", "placement", "accuracy", "check"]
        self.assertEqual([name for name in names if name in wanted], wanted)
        self.assertEqual(names[:3], ["ceilings", "build", "decode"])
        self.assertEqual(set(names[names.index("check") :]), {"check", "ring", "crossings", "step"})


class APeer(unittest.TestCase):
    def test_that_complains_at_length_is_read_and_one_that_is_silent_is_ended(self) -> None:
        talks = (
            'import sys, time; sys.stderr.write("x" * 300000); print(\'{"type":"hello","arm":"a"}\', flush=True);'
            "time.sleep(60)"
        )
        peer = peers.Peer([sys.executable, "-c", talks])
        with mock.patch.object(peers, "RUN_S", 0.2), self.assertRaisesRegex(ArmFailed, "silent"):
            peer.run(1, 1, {})
        self.assertIsNotNone(peer._process.child.wait(5))
        peer.end()


if __name__ == "__main__":
    unittest.main()
