"""Budgets, accounts, the audit log and limits of a host: what the native part counts, and the file that keeps it."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import resource
import tempfile
import unittest
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

from confide._extension import native
from confide.blind.__main__ import default_budget_file
from confide.blind.audit import AuditLog
from confide.blind.errors import AdapterRefused, Refusal
from confide.blind.peers import HostLimits, PreparationSlots, evict_for_session, peer_address_block

# An account, a digest of weights, a layer and an input.
SLOT = bytes([1] * 32), bytes([2] * 32), 3, 2


@contextlib.contextmanager
def no_file_grows() -> Iterator[None]:
    """A full disk, as far as this process is concerned."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@dataclass
class Subject:
    """As much of a session as the audit log looks at."""

    client: bytes = bytes([1] * 32)
    account_name: str = "everyone"
    adapter: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(name="bank"))
    tally: native.AuditTally = field(default_factory=native.AuditTally)


@dataclass
class Session:
    """As much of a session as eviction looks at."""

    client: bytes
    peer: str
    connections: int = 0
    last_used: float = 0.0
    is_used: bool = False


class BudgetTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name) / "state" / "budgets.jsonl"

    def test_a_restart_keeps_the_budget_and_a_request_that_does_not_fit_takes_nothing(self) -> None:
        ledger = native.AnswerLedger(self.path)
        self.assertEqual(ledger.count_answers(*SLOT, 127, 100), 27)
        with self.assertRaises(Refusal) as caught:
            ledger.count_answers(*SLOT, 127, 28)
        self.assertEqual((caught.exception.name, caught.exception.detail), ("budget", 127))
        self.assertEqual(ledger.count_left(*SLOT, 127), 27)
        ledger.write_exact_counts()
        with self.assertRaisesRegex(AdapterRefused, "another adapter host"):
            native.AnswerLedger(self.path)
        del ledger
        again = native.AnswerLedger(self.path)
        self.assertEqual(again.count_left(*SLOT, 127), 27)
        again.count_answers(*SLOT, 127, 1)
        del again
        # A crash counts what was written ahead, which is a 32nd of the budget at most.
        self.assertIn(native.AnswerLedger(self.path).count_left(*SLOT, 127), range(22, 27))

    def test_answers_that_cannot_be_counted_on_the_disk_are_an_error(self) -> None:
        ledger = native.AnswerLedger(self.path)
        with no_file_grows(), self.assertRaises(OSError):
            ledger.count_answers(*SLOT, 127, 1)

    def test_without_a_file_counts_are_in_memory_and_without_a_budget_none_is_left_over(
        self,
    ) -> None:
        ledger = native.AnswerLedger(None)
        self.assertIsNone(ledger.count_answers(*SLOT, None, 5))
        self.assertEqual(ledger.count_left(*SLOT, 7), 2)
        ledger.write_exact_counts()
        with self.assertRaises(ValueError):
            ledger.count_left(bytes(31), *SLOT[1:], 7)

    def test_a_torn_line_counts_nothing_and_a_file_of_names_is_refused(self) -> None:
        native.AnswerLedger(self.path).count_answers(*SLOT, 1000, 5)
        self.path.write_text(self.path.read_text() + '{"account":"01')
        left = native.AnswerLedger(self.path).count_left(*SLOT, 1000)
        assert left is not None
        self.assertLessEqual(left, 995)
        old = f'{{"client":"{"ab" * 32}","adapter":"{"ab" * 32}","layer":0,"input":0,"used":5}}\n'
        self.path.write_text(old)
        with self.assertRaisesRegex(AdapterRefused, "by the adapter's name"):
            native.AnswerLedger(self.path)
        self.assertEqual(self.path.read_text(), old)

    def test_counts_are_kept_in_an_ordinary_file_with_one_name_only(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            os.mkfifo(place / "pipe")
            (place / "twice").touch()
            os.link(place / "twice", place / "other")
            (place / "kept").touch()
            (place / "link").symlink_to(place / "kept")
            (place / "nowhere").symlink_to(place / "missing")
            for name, reason in (
                ("pipe", "wanted a regular file"),
                ("twice", "only one hard link"),
                ("nowhere", "No such file"),
            ):
                with self.assertRaisesRegex(AdapterRefused, reason):
                    native.AnswerLedger(place / name)
                self.assertEqual([found.name for found in place.glob("*.lock")], [])
            # A link and what it leads to are one file, and one lock.
            first = native.AnswerLedger(place / "link")
            with self.assertRaisesRegex(AdapterRefused, "another adapter host"):
                native.AnswerLedger(place / "kept")
            first.write_exact_counts()
            self.assertTrue((place / "link").is_symlink())

    def test_counts_are_kept_in_the_folder_for_state_by_default(self) -> None:
        for environment, wanted in (
            ({"XDG_STATE_HOME": "/s", "HOME": "/h"}, "/s/confide/adapter-budgets.jsonl"),
            ({"HOME": "/h"}, "/h/.local/state/confide/adapter-budgets.jsonl"),
        ):
            self.assertEqual(default_budget_file(environment), Path(wanted))
        self.assertIsNone(default_budget_file({}))


class ClientListTest(unittest.TestCase):
    def test_with_a_list_each_client_has_an_account_and_strangers_none(self) -> None:
        digests = {name: hashlib.sha256(name.encode()).hexdigest() for name in ("a", "b", "")}
        clients = native.ClientList(f"# ours\nalice {digests['a']}\nbob {digests['b']}\n")
        self.assertEqual(clients.find_account(b"a")[1], "alice")
        self.assertNotEqual(clients.find_account(b"a")[0], clients.find_account(b"b")[0])
        with self.assertRaises(Refusal) as caught:
            clients.find_account(b"c")
        self.assertEqual(caught.exception.name, "unknown-adapter")
        everyone = native.ClientList("")
        self.assertEqual(everyone.find_account(b""), everyone.find_account(b"any"))
        for text in ("alice", f"alice {digests['']}", f"a {digests['a']}\nb {digests['a']}"):
            with self.assertRaisesRegex(AdapterRefused, "clients, line"):
                native.ClientList(text)

    def test_a_list_that_others_may_write_or_that_names_nobody_is_not_read(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "clients"
            path.write_text(f"alice {hashlib.sha256(b'a').hexdigest()}\n")
            path.chmod(0o644)
            self.assertEqual(native.ClientList.read(path).find_account(b"a")[1], "alice")
            path.chmod(0o662)
            with self.assertRaisesRegex(AdapterRefused, f"{path}: .* got mode 662"):
                native.ClientList.read(path)
            path.chmod(0o600)
            path.write_text("# nobody\n")
            with self.assertRaisesRegex(AdapterRefused, "at least one client"):
                native.ClientList.read(path)


class AuditTest(unittest.TestCase):
    def test_lines_name_whom_they_concern_and_counts_are_written_together(self) -> None:
        log = AuditLog()
        session = Subject()
        log("hello", session=session, scheme="masked")
        for vectors in (2, 3):
            session.tally.count_answers(4, 1, vectors)
        for _ in range(3):
            log("refused", session=session, refusal="counter-used")
        log("prepared", session=session, layer=4, source=2, batch=0, vectors=256)
        log("goodbye", session=session)
        log("stopped")
        lines = [json.loads(line) for line in log.lines]
        events = ["hello", "refused", "prepared", "counted", "goodbye", "stopped"]
        self.assertEqual([line["event"] for line in lines], events)
        for line in lines[:-1]:
            self.assertEqual((line["client"], line["account"]), ("01" * 8, "everyone"))
            self.assertEqual(line["adapter"], "bank")
        self.assertEqual(lines[2]["input"], "4/feed-forward")
        counted = lines[3]
        self.assertEqual((counted["vectors"], counted["inputs"]), (5, {"4/attention-output": 5}))
        self.assertEqual(counted["refused"], {"counter-used": 3})
        self.assertNotIn("client", lines[-1])

    def test_nothing_is_answered_after_the_line_of_a_sessions_end(self) -> None:
        for event in ("goodbye", "expired", "evicted"):
            log, session = AuditLog(), Subject()
            session.tally.count_answers(4, 1, 2)
            log(event, session=session)
            self.assertTrue(session.tally.is_closed)
            with self.assertRaises(Refusal) as caught:
                session.tally.count_answers(4, 1, 3)
            self.assertEqual(caught.exception.name, "no-session")
            log.write_counts(session)
            lines = [json.loads(line) for line in log.lines]
            self.assertEqual([line["event"] for line in lines], ["counted", event])
            self.assertEqual(lines[0]["vectors"], 2)

    def test_a_file_is_appended_to(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "audit"
            path.write_text("{}\n")
            log = AuditLog(path)
            log("stopped")
            self.assertEqual(len(path.read_text().splitlines()), 2)
            self.assertEqual(log.lines, [])
            with self.assertRaises(OSError):
                AuditLog(Path(folder))

    def test_a_line_that_cannot_be_written_is_reported_and_the_next_one_counts_it(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "audit"
            log = AuditLog(path)
            with no_file_grows(), contextlib.redirect_stderr(io.StringIO()) as reported:
                log("stopped")
                with self.assertRaises(OSError):
                    log._log.write("stopped", None, None, None, "{}")
            self.assertIn("the audit log cannot be written", reported.getvalue())
            log("stopped")
            (line,) = path.read_text().splitlines()
            self.assertEqual(json.loads(line)["lines_lost"], 2)


class LimitTest(unittest.TestCase):
    def test_a_peer_is_an_ipv4_address_or_a_network_of_ipv6_ones(self) -> None:
        self.assertEqual(peer_address_block("::ffff:192.0.2.1"), peer_address_block("192.0.2.1"))
        self.assertEqual(peer_address_block("2001:db8::1"), peer_address_block("2001:db8::2"))
        self.assertNotEqual(
            peer_address_block("2001:db8::1"), peer_address_block("2001:db8:0:1::1")
        )

    def test_four_begun_preparations_of_one_peer_leave_room_for_another(self) -> None:
        rooms = PreparationSlots(HostLimits())
        self.assertEqual([rooms.acquire("a") for _ in range(4)], [True, True, True, False])
        self.assertTrue(rooms.acquire("b"))
        rooms.release("b")
        rooms.release("a")
        self.assertEqual(
            [rooms.acquire("b"), rooms.acquire("b"), rooms.acquire("c")], [True, False, True]
        )

    def test_idle_sessions_give_way_before_a_newcomer_is_refused(self) -> None:
        limits = HostLimits(sessions=3, sessions_per_peer=2)
        used = Session(b"1", "honest", last_used=1.0, is_used=True)
        sessions = {
            b"1": used,
            b"2": Session(b"2", "stranger", last_used=2.0),
            b"3": Session(b"3", "stranger", last_used=3.0),
        }
        self.assertEqual(evict_for_session(sessions, "new", limits).client, b"2")
        sessions[b"4"] = Session(b"4", "new", connections=1)
        self.assertEqual(evict_for_session(sessions, "new", limits).client, b"3")
        sessions[b"5"] = Session(b"5", "new", connections=1)
        with self.assertRaises(Refusal):
            evict_for_session(sessions, "new", limits)
        self.assertEqual(evict_for_session(sessions, "other", limits).client, b"1")


if __name__ == "__main__":
    unittest.main()
