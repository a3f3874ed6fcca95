"""Python's key holder against Python's adapter host and, where its program is found, Rust's."""

from __future__ import annotations

import json
import subprocess
import sys
import unittest
from typing import TYPE_CHECKING, Any

import numpy

from confide import peft
from confide._extension import native
from confide.blind import (
    batches,
    channel,
    holder,
    pack,
    session,
    terms,
)
from confide.blind.errors import (
    ActivationRefused,
    AdapterRefused,
    BudgetExhausted,
    HostLost,
    HostRefused,
    HostRestarted,
    ProtocolError,
    Refusal,
)
from confide.blind.tests import adapters, hosts, reference
from confide.cuda import parameters

WIDTH = 64
if TYPE_CHECKING:
    Base = unittest.TestCase
else:
    # The tests are the kinds' alone.
    Base = object


def rows_of(count: int, seed: int = 3) -> numpy.ndarray:
    return numpy.random.default_rng(seed).normal(0, 1, (count, WIDTH)).astype(numpy.float32)


class Raw:
    """A key holder that says what it is told to, frame by frame."""

    def __init__(self, host: hosts.Running) -> None:
        self.channel = channel.Channel(host.dial, host.listen)
        options = session.HolderOptions("bank", host.set_name, dangerous_parameters=True)
        self.session = session.HolderSession(self.channel, options)

    def prepare(self, input_index: int = 0) -> batches.MaskBatch:
        return batches.prepare_batch(
            self.channel, self.session.context, self.session.secret, self.session.terms[input_index]
        )

    def apply(
        self,
        batch: batches.MaskBatch,
        counter: int,
        input_index: int = 0,
        over: channel.Channel | None = None,
    ) -> numpy.ndarray:
        terms_of = self.session.terms[input_index]
        words = numpy.zeros((1, terms_of.columns), numpy.uint64)
        request = native.MaskedRequest(
            terms_of.layer, terms_of.source, counter, 1, pack.pack(words, terms_of.bits)
        )
        answer = (over or self.channel).request(request, native.MaskedAnswer)
        products = pack.unpack(answer.packed, terms_of.bits, 1, terms_of.rows)
        assert products is not None
        return products


class HostTests(Base):
    """One test body for each kind of host."""

    kind = ""

    def setUp(self) -> None:
        entered = hosts.folder()
        self.folder = entered.__enter__()
        self.addCleanup(entered.__exit__, None, None, None)
        self.pairs = adapters.write_adapter(self.folder)

    def pair(self, layer: int, projection: str, scale: float) -> peft.LoraPair:
        a, b = self.pairs[(layer, projection)]
        return peft.LoraPair(a, b, scale)

    def start(self, *more: str, **options: Any) -> hosts.Running:
        host = hosts.Running(
            self.kind,
            self.folder,
            options.get("listen", "127.0.0.1:0"),
            options.get("set_name", hosts.TOY),
            *more,
        )
        self.addCleanup(host.stop)
        return host

    def raw(self, host: hosts.Running) -> Raw:
        raw = Raw(host)
        self.addCleanup(raw.channel.frames.close)
        return raw

    def stream(self, host: hosts.Running) -> channel.Channel:
        stream = channel.Channel(host.dial, host.listen)
        self.addCleanup(stream.frames.close)
        return stream

    def connect(self, host: hosts.Running, **options: Any) -> holder.RemoteAdapter:
        adapter = host.adapter(**options)
        self.addCleanup(adapter.close)
        return adapter

    def check_deltas(self, deltas: holder.RemoteDeltas, layer: int, count: int) -> None:
        rows = rows_of(count)
        outputs = {
            "q": numpy.ones((count, 64), numpy.float32),
            "v": numpy.ones((count, 32), numpy.float32),
            "k": numpy.ones((count, 32), numpy.float32),
        }
        deltas.add(layer, "attention", rows, outputs)
        for projection in ("q", "v"):
            wanted = adapters.plain(self.pairs, layer, projection, rows)
            error = numpy.linalg.norm(outputs[projection] - 1 - wanted) / numpy.linalg.norm(wanted)
            self.assertLess(error, 1e-3)
        self.assertTrue(
            (outputs["k"] == 1).all(), "what the adapter does not change stays as it was"
        )

    def test_deltas_are_lora_and_their_integers_are_exact(self) -> None:
        for protect in ("a", "ba"):
            with self.subTest(protect=protect):
                adapter = self.connect(self.start("--protect", protect, "--budget", "100000"))
                deltas = adapter.open()
                for count in (1, 5, 70):
                    self.check_deltas(deltas, 1, count)
                session, input_index = adapter.session, adapter.session.by_input[(1, 0)]
                pairs = [
                    (
                        projection,
                        self.pair(1, projection, adapters.ALPHA / adapters.RANK),
                    )
                    for projection in ("q", "v")
                ]
                matrix = terms.quantise_pairs(
                    1, pairs, protect, parameters.find_set(hosts.TOY, dangerous=True)
                ).matrix
                limit, wide = session.terms[input_index].norm_limit, matrix.astype(numpy.int64)
                wanted = []
                for row in rows_of(70):
                    values, scale = reference.quantise_vector(row, limit)
                    products = wide @ values.astype(numpy.int64)
                    wanted.append((products.astype(numpy.float64) * scale).astype(numpy.float32))
                real = adapter._steps[input_index].online.real[:70, : len(matrix)]
                self.assertEqual(real.tolist(), numpy.stack(wanted).tolist())
                self.assertEqual(deltas.report()["answered_vectors"], 76)

    def test_a_full_set_gives_the_same_under_its_own_guarantee(self) -> None:
        adapter = self.connect(self.start(set_name=hosts.REAL))
        self.check_deltas(adapter.open(), 0, 3)
        self.assertEqual(adapter.guarantee, "adapter host is blind; adapter can be learned")

    def test_the_budget_is_of_the_account_and_not_of_the_key(self) -> None:
        host = self.start("--budget", "3")
        first = self.connect(host)
        self.check_deltas(first.open(), 0, 2)
        second = self.connect(host).open()
        self.check_deltas(second, 0, 1)
        with self.assertRaises(BudgetExhausted) as caught:
            self.check_deltas(second, 0, 1)
        self.assertEqual(caught.exception.limit, 3)
        self.check_deltas(second, 1, 1)

    def test_no_budget_keeps_the_adapter_from_being_learned_and_the_guarantee_says_so(self) -> None:
        for budget in ("1", str(WIDTH)):
            adapter = self.connect(self.start("--budget", budget, set_name=hosts.REAL))
            self.assertEqual(adapter.guarantee, "adapter host is blind; adapter can be learned")

    def test_a_counter_is_answered_once_and_its_batch_is_dropped_with_the_second_try(self) -> None:
        raw = self.raw(self.start())
        batch = raw.prepare()
        answered = raw.apply(batch, 5)
        self.assertEqual(answered.shape, (1, raw.session.terms[0].rows))
        for name in ("counter-used", "not-prepared"):
            with self.assertRaises(Refusal) as caught:
                raw.apply(batch, 5)
            self.assertEqual(caught.exception.name, name)
        with self.assertRaises(Refusal) as caught:
            raw.apply(batch, 999_999)
        self.assertEqual(caught.exception.name, "not-prepared")

    def test_after_a_goodbye_no_connection_is_answered_and_every_answer_is_audited(self) -> None:
        audit_log = self.folder.parent / "audit"
        host = self.start("--audit-log", str(audit_log))
        raw, other = self.raw(host), self.stream(host)
        batch = raw.prepare()
        other.attach(raw.session.attach)
        raw.apply(batch, 5, over=other)
        raw.channel.say_goodbye(session=True)
        # A host may close the connection before the request reaches it.
        with self.assertRaises((Refusal, ProtocolError)) as caught:
            raw.apply(batch, 6, over=other)
        if isinstance(caught.exception, Refusal):
            self.assertEqual(caught.exception.name, "no-session")
        lines = [json.loads(line) for line in audit_log.read_text().splitlines()]
        self.assertEqual(lines[-1]["event"], "goodbye")
        counted = [line["vectors"] for line in lines if line["event"] == "counted"]
        self.assertEqual(sum(counted), 1)

    def test_answers_of_one_batch_are_no_equations_about_a(self) -> None:
        raw = self.raw(self.start())
        batch = raw.prepare()
        low = numpy.uint64((1 << raw.session.terms[0].bits) - 1)
        pairs = [(projection, self.pair(0, projection, 1.0)) for projection in ("q", "v")]
        matrix = terms.quantise_pairs(
            0, pairs, "a", parameters.find_set(hosts.TOY, dangerous=True)
        ).matrix
        drawn = reference.mask_rows(batch.key, 0, 1, WIDTH, raw.session.terms[0].bits)[0]
        product = (matrix.astype(numpy.int64).astype(numpy.uint64) * drawn).sum(axis=1) & low
        self.assertFalse(
            (batch.prepared[0] == product).any(), "what is prepared is A·r − s, not A·r"
        )
        share = (product - batch.prepared[0]) & low
        self.assertEqual(
            raw.apply(batch, 0)[0].tolist(), share.tolist(), "of a vector of zeroes the answer is s"
        )

    def test_what_the_host_does_not_offer_is_refused_by_name(self) -> None:
        host = self.start()
        for options in ({"name": "other"}, {"protect": "ba"}):
            with self.assertRaises(HostRefused):
                host.adapter(**options)
        stream = self.stream(host)
        with self.assertRaises(Refusal) as caught:
            stream.attach(native.Attach(bytes(32), bytes(16), bytes(32)))
        self.assertEqual(caught.exception.name, "no-session")
        stream = self.stream(host)
        stream.frames.send_bytes(b"GET / HTTP/1.1\r\n\r\n")
        with self.assertRaises(Refusal) as caught:
            stream.receive(1, "an answer", 10)
        self.assertEqual(caught.exception.name, "malformed")

    def test_a_dropped_connection_goes_on_with_other_counters(self) -> None:
        adapter = self.connect(self.start())
        deltas = adapter.open()
        self.check_deltas(deltas, 0, 1)
        assert adapter._online
        adapter._online.frames.socket.shutdown(2)
        self.check_deltas(deltas, 0, 1)
        self.assertEqual(deltas.report()["answered_vectors"], 2)

    def test_a_host_that_is_gone_ends_the_generation_and_a_new_one_begins_anew(self) -> None:
        host = self.start()
        adapter = self.connect(host)
        deltas = adapter.open()
        self.check_deltas(deltas, 0, 1)
        host.stop(kill=True)
        outputs = {"q": numpy.ones((1, 64), numpy.float32)}
        with self.assertRaises(HostLost):
            deltas.add(0, "attention", rows_of(1), outputs)
        self.assertTrue((outputs["q"] == 1).all(), "outputs are as they were")
        self.start(listen=host.listen)
        with self.assertRaises(HostRestarted):
            deltas.add(0, "attention", rows_of(1), outputs)
        self.check_deltas(adapter.open(), 0, 2)

    def test_an_activation_that_cannot_be_sent_spends_no_budget(self) -> None:
        adapter = self.connect(self.start())
        deltas = adapter.open()
        self.check_deltas(deltas, 0, 1)
        left = list(adapter.session.budget_left)
        rows, outputs = rows_of(2), {"q": numpy.ones((2, 64), numpy.float32)}
        rows[1, 3] = numpy.inf
        with self.assertRaises(ActivationRefused):
            deltas.add(0, "attention", rows, outputs)
        self.assertTrue((outputs["q"] == 1).all(), "outputs are as they were")
        self.assertEqual(adapter.session.budget_left, left)
        self.check_deltas(deltas, 0, 1)
        self.assertEqual(deltas.report()["answered_vectors"], 2)

    def test_rows_of_a_decode_batch_are_one_request(self) -> None:
        adapter = self.connect(self.start())
        one, other = adapter.open(), adapter.open()
        rows = rows_of(4)
        outputs = {"q": numpy.ones((4, 64), numpy.float32)}
        adapter.add(0, "attention", rows, outputs, [one, None, other, one])
        wanted = adapters.plain(self.pairs, 0, "q", rows) + 1
        wanted[1] = 1
        self.assertLess(numpy.linalg.norm(outputs["q"] - wanted) / numpy.linalg.norm(wanted), 1e-3)
        self.assertEqual((one.report()["round_trips"], other.report()["round_trips"]), (2, 1))


class PythonHostTest(HostTests, unittest.TestCase):
    kind = "python"

    def test_it_listens_on_loopback_only_unless_asked_by_name(self) -> None:
        line = [
            sys.executable,
            "-m",
            "confide.blind",
            "host",
            str(self.folder),
            "--listen",
            "0.0.0.0:0",
        ]
        done = subprocess.run(
            line, capture_output=True, text=True, cwd=hosts.PYTHON_FOLDER, timeout=60
        )
        self.assertEqual(done.returncode, 1)
        self.assertIn("--dangerous-plain", done.stderr)

    def test_beyond_loopback_it_demands_a_credential(self) -> None:
        line = [
            sys.executable,
            "-m",
            "confide.blind",
            "host",
            str(self.folder),
            "--listen",
            "0.0.0.0:0",
            "--dangerous-plain",
        ]
        done = subprocess.run(
            line, capture_output=True, text=True, cwd=hosts.PYTHON_FOLDER, timeout=60
        )
        self.assertEqual(done.returncode, 1)
        self.assertIn("--clients", done.stderr)

    def test_a_client_list_knows_its_clients_and_no_stranger(self) -> None:
        import hashlib

        names = self.folder.parent / "clients"
        names.write_text(f"# ours\nalice {hashlib.sha256(b'secret').hexdigest()}\n")
        host = self.start("--clients", str(names))
        self.check_deltas(self.connect(host, credential=b"secret").open(), 0, 1)
        with self.assertRaises(HostRefused):
            host.adapter(credential=b"other")

    def test_counts_outlive_a_restart_where_they_are_kept(self) -> None:
        counts = self.folder.parent / "counts"
        host = self.start("--budget", "100", "--budget-file", str(counts))
        self.check_deltas(self.connect(host).open(), 0, 2)
        host.stop()
        again = self.start("--budget", "100", "--budget-file", str(counts))
        session = self.connect(again).session
        # A clean end writes what was answered and no more.
        self.assertEqual(session.budget_left[session.by_input[(0, 0)]], 98)

    def test_final_hidden_is_offered_as_a_mode_of_its_own(self) -> None:
        adapter = self.connect(self.start("--final-hidden"))
        self.assertEqual(adapter.sites, {(0, "final_hidden"): (64, 64)})
        rows = rows_of(2)
        outputs = {"final_hidden": numpy.zeros((2, 64), numpy.float32)}
        adapter.open().add(0, "final_hidden", rows, outputs)
        wanted = adapters.plain(self.pairs, 0, "q", rows)
        self.assertLess(
            numpy.linalg.norm(outputs["final_hidden"] - wanted) / numpy.linalg.norm(wanted), 1e-3
        )


class RustHostTest(HostTests, unittest.TestCase):
    kind = "rust"

    @classmethod
    def setUpClass(cls) -> None:
        hosts.rust_program()


class RustHolderTest(unittest.TestCase):
    """Rust's key holder against Python's host: it prepares, asks about each input and compares with the adapter."""

    def test_its_answers_are_those_of_the_adapter(self) -> None:
        program = hosts.rust_program()
        with hosts.folder() as folder:
            adapters.write_adapter(folder)
            for set_name, danger in ((hosts.TOY, ["--dangerous-parameters"]), (hosts.REAL, [])):
                with (
                    self.subTest(set=set_name),
                    hosts.running("python", folder, set_name=set_name) as host,
                ):
                    line = [
                        program,
                        "adapter",
                        "prepare",
                        "--adapter",
                        "bank",
                        host.listen,
                        "--binding",
                        "none",
                        "--parameters",
                        set_name,
                        "--compare",
                        str(folder),
                        "--json",
                        *danger,
                    ]
                    done = subprocess.run(line, capture_output=True, text=True, timeout=100)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    told = json.loads(done.stdout)
                    self.assertEqual((told["inputs"], told["batches"]), (4, 4))
                    self.assertLess(told["relative_error"], 1e-3)


class FolderTest(unittest.TestCase):
    def test_folders_that_peft_would_read_otherwise_are_refused(self) -> None:
        changes = (
            {"use_dora": True},
            {"bias": "all"},
            {"r": 5},
            {"target_modules": ["q_proj"]},
            {"peft_type": "IA3"},
            {"target_modules": ["q_proj", "v_proj", "o_proj", "k_proj"]},
            {"modules_to_save": ["lm_head"]},
            {"something_new": 3},
            {"init_lora_weights": "pissa"},
        )
        for change in changes:
            with self.subTest(change=change), hosts.folder() as folder:
                adapters.write_adapter(folder, **change)
                with self.assertRaises(AdapterRefused):
                    peft.load_adapter(folder)
        with hosts.folder() as folder:
            adapters.write_adapter(folder, use_dora=True)
            with self.assertRaisesRegex(AdapterRefused, "use_dora: .*; hint: `confide serve"):
                peft.load_adapter(folder)
        with hosts.folder() as folder:
            pairs = adapters.write_adapter(folder, use_rslora=True, alpha_pattern={"q_proj": 3})
            name, read = peft.load_adapter(folder)
            self.assertEqual((name, sorted(read)), ("bank", sorted(pairs)))
            self.assertEqual(read[(0, "q")].scale, 3 / 2)
            self.assertEqual(read[(0, "v")].scale, adapters.ALPHA / 2)


if __name__ == "__main__":
    unittest.main()
