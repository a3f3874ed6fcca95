"""Every client against every kind of listener over real sockets: an honest host, and hosts that it has to refuse.

    python tests/clients.py CONFIDE [--node NODE] [--chromium CHROMIUM] [--go PROGRAM]

Each client asks an honest host through each kind of listener, and gets its answers, whole and streamed. Each refuses
every other host through each kind of listener, before it has sent a request: the hosts' own logs show that, and the
servers behind them, of which each refused host has one of its own. What its user then reads is the same in every
language, and says what to do. All evidence is simulated. The Python client runs in this interpreter, which needs the
packages of tests/python/requirements.txt; its native part is the library next to CONFIDE. A client whose program is
not given is left out.
"""

import argparse
import contextlib
import json
import os
import re
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from traceback import format_exception
from typing import Any

from client_drivers import Client, ClientOptions, ConnectClient, DriverClient, Outcome
from client_site import CHAT_PATH, EVIDENCE_PATH, HONEST, HOSTS, Site
from tcp_switch import TcpSwitch

CHECKOUT = Path(__file__).resolve().parents[1]
TOKENS = 12
BINDINGS = ["key", "session"]
SESSION_VERSIONS = [1, 2, 3]
# Longer than it takes until a line is in the log of a host that runs.
LOG_S = 10


@dataclass(frozen=True)
class Fault:
    """A host that a policy refuses: by which check, and words of what the user is told to do."""

    name: str
    host: str
    policy: str
    check: str
    hint: str


FAULTS = [
    Fault("wrong measurement", "judged", "other measurement", "measurements", "another program"),
    Fault("expired endorsement", "expired", "own", "root_crl", "clock"),
    Fault("simulated root in production", "judged", "production", "root", "simulated evidence"),
    Fault("foreign GPU", "judged gpu", "other gpu", "gpu", "GPU"),
]
# Hosts that take the place of an honest one between two requests of a client.
SWAPS = [
    Fault("other machine", "other machine", "own", "root", "simulated evidence"),
    Fault("other configuration", "other configuration", "own", "config_digest", "elsewhere"),
    Fault("other claim", "other claim", "own", "guarantee", "anew"),
    Fault("ordinary server", "ordinary", "own", "evidence", "attested server"),
]
# An ordinary server knows no protocol of session binding: TLS itself fails, and nothing is judged.
UNJUDGED = ("ordinary server", "session")


class Trial:
    """One client in front of all hosts."""

    def __init__(self, client: Client, site: Site, switch: TcpSwitch) -> None:
        self.client = client
        self.site = site
        self.switch = switch
        # What its user reads, by fault and binding.
        self.refusals: dict[str, set[str]] = {}
        self.answers = dict.fromkeys(HONEST, 0)

    def run(self) -> None:
        """Tries everything in turn."""
        first, *others = self.listeners()
        for listener in [first, *others]:
            for binding in BINDINGS:
                self.attempt(self.try_answers, listener, f"honest {binding}", "own")
                for fault in FAULTS[:3]:
                    self.attempt(self.try_fault, listener, binding, fault)
            self.attempt(self.try_fault, listener, "session", FAULTS[3])
        self.attempt(self.try_answers, first, "honest gpu session", "gpu")
        for version in SESSION_VERSIONS:
            self.attempt(self.try_answers, first, "honest session", "own", version)
        for swap in SWAPS:
            for binding in BINDINGS:
                self.attempt(self.try_swap, first, binding, swap)
        for listener in others:
            self.attempt(self.try_swap, listener, "session", SWAPS[0])
        self.attempt(self.try_splice, first, "session", SWAPS[0])
        self.attempt(self.try_renewal, first, "renewed session")

    def attempt(self, case: Callable[..., None], *arguments: Any) -> None:
        """Runs one case, which is named by what fails in it."""
        try:
            case(*arguments)
        except Exception as error:
            words = [it.name if isinstance(it, Fault) else str(it) for it in arguments]
            error.add_note(f"{self.client.name}: {case.__name__}: {', '.join(words)}")
            raise

    def listeners(self) -> list[str]:
        """The kinds of listeners that the client reaches. A page has no sockets but those of a tunnel."""
        kinds = ["terminate", "pass", "tunnel"]
        return kinds if self.client.name != "browser" else ["tunnel", "pass"]

    def make_options(self, listener: str, host: str, policy: str, **more: Any) -> ClientOptions:
        """Makes the options with which the client finds what the switch leads to."""
        server = f"https://127.0.0.1:{self.switch.port}"
        if listener == "pass":
            server = f"https://localhost:{self.site.passing[self.switch.port]}"
        is_tunnelled = listener == "tunnel" or self.client.name == "browser"
        tunnel = self.site.tunnel if is_tunnelled else None
        binding = host.rpartition(" ")[2]
        return ClientOptions(server, self.site.policy(policy), binding, tunnel, **more)

    @contextlib.contextmanager
    def hold_open(self, host: str, options: ClientOptions) -> Iterator[None]:
        """A client that an honest host has answered once."""
        self.switch.lead_to(self.site.ports[host])
        outcome = self.client.open(options)
        assert outcome == Outcome(), f"{self.client.name}: {host}: {outcome}"
        self.ask(host, stream=False)
        yield
        self.client.close()

    def ask(self, host: str, stream: bool) -> str:
        """Asks a host that has to answer; gives the text of the answer."""
        outcome = self.client.ask(chat(stream))
        assert outcome.status == 200, f"{self.client.name}: {host}: {outcome}"
        self.answers[host] += 1
        if stream:
            assert len(outcome.pieces) > 3, f"{self.client.name}: {len(outcome.pieces)} pieces"
        return read_text("".join(outcome.pieces), stream)

    def try_answers(
        self, listener: str, host: str, policy: str, version: int | None = None
    ) -> None:
        """An honest host answers, whole and streamed, with the same words; only what was asked for is offered to it."""
        options = self.make_options(listener, host, policy, session_version=version)
        with self.hold_open(host, options):
            whole, streamed = self.ask(host, stream=False), self.ask(host, stream=True)
        assert whole == streamed and len(whole.split()) == TOKENS, (whole, streamed)
        wanted = {version} if version else set(SESSION_VERSIONS)
        wanted = wanted if options.binding == "session" else set()
        offered = self.switch.read_offered_versions()
        assert offered and all(it == wanted for it in offered), f"wanted {wanted}, got {offered}"

    def try_fault(self, listener: str, binding: str, fault: Fault) -> None:
        """A host is refused by the first connection."""
        host = f"{fault.host} {binding}"
        self.switch.lead_to(self.site.ports[host])
        outcome = self.client.open(self.make_options(listener, host, fault.policy))
        if outcome == Outcome():
            outcome = self.client.ask(chat(False))
            self.client.close()
        self.note_refusal(fault, binding, outcome)

    def try_swap(self, listener: str, binding: str, swap: Fault) -> None:
        """An honest host goes away, and another one takes its address."""
        honest = f"honest {binding}"
        with self.hold_open(honest, self.make_options(listener, honest, swap.policy)):
            self.switch.lead_to(self.site.ports[f"{swap.host} {binding}"])
            self.switch.cut()
            outcome = self.ask_twice()
        if (swap.name, binding) == UNJUDGED:
            assert outcome.failed, f"wanted a failure of TLS, got {outcome}"
        else:
            self.note_refusal(swap, binding, outcome)

    def try_splice(self, listener: str, binding: str, swap: Fault) -> None:
        """Another host takes over the open connection."""
        honest = f"honest {binding}"
        with self.hold_open(honest, self.make_options(listener, honest, swap.policy)):
            self.switch.lead_to(self.site.ports[f"{swap.host} {binding}"])
            self.switch.splice()
            self.note_refusal(swap, binding, self.ask_twice())

    def try_renewal(self, listener: str, host: str) -> None:
        """Evidence that has become too old is fetched anew before the next request, on this or another connection."""
        options = self.make_options(listener, host, "own", evidence_age_s=1)
        with self.site.renewal, self.hold_open(host, options):
            renewals = self.count_renewals(host)
            time.sleep(1.1)
            self.ask(host, stream=False)
            until = time.monotonic() + LOG_S
            while self.count_renewals(host) == renewals and time.monotonic() < until:
                time.sleep(0.1)
            assert self.count_renewals(host) > renewals, "the old evidence was good enough"

    def count_renewals(self, host: str) -> int:
        """How often the client has had evidence of a host: in an open session, or by a connection."""
        return self.site.read_log(host).count(EVIDENCE_PATH) + self.switch.connections

    def ask_twice(self) -> Outcome:
        """Asks as a user does who tries again when a connection broke: the broken one is not a verdict."""
        outcome = self.client.ask(chat(False))
        return self.client.ask(chat(False)) if outcome.failed else outcome

    def note_refusal(self, fault: Fault, binding: str, outcome: Outcome) -> None:
        """Notes what the user reads, apart from the name of the server."""
        row = f"{fault.name}, {binding} binding"
        known = f"{self.client.name}: {row}"
        assert outcome.refused and outcome.check == fault.check, f"{known}: {outcome}"
        words = re.fullmatch(
            r"\S.* is not accepted: (check `(\w+)` failed: .+)\nhint: (.+)", outcome.refused
        )
        assert words and words[2] == fault.check, f"{known}: {outcome.refused!r}"
        assert fault.hint in words[3], f"{known}: {words[3]}"
        # The one thing that differs from moment to moment.
        found = re.sub(r"now is .*", "now is …", words[1])
        self.refusals.setdefault(row, set()).add(f"{found}\nhint: {words[3]}")


def chat(stream: bool) -> str:
    """The body of a request."""
    question = [{"role": "user", "content": "Which machine are you?"}]
    members = {"model": "sim", "messages": question, "max_tokens": TOKENS, "seed": 7}
    return json.dumps({**members, "stream": stream})


def read_text(body: str, stream: bool) -> str:
    """The words in the body of an answer."""
    if not stream:
        return str(json.loads(body)["choices"][0]["message"]["content"])
    events = [line.removeprefix("data: ") for line in body.splitlines() if line]
    assert events[-1] == "[DONE]", body
    choices = [choice for event in events[:-1] for choice in json.loads(event)["choices"]]
    return "".join(choice["delta"].get("content") or "" for choice in choices)


def compare_words(trials: list[Trial]) -> None:
    """Every client says the same of the same host, whatever listener leads to it."""
    for row in trials[0].refusals:
        texts = {trial.client.name: sorted(trial.refusals[row]) for trial in trials}
        said = {text for texts_of_client in texts.values() for text in texts_of_client}
        assert len(said) == 1, f"{row}: the words differ: {json.dumps(texts, indent=2)}"
        check = said.pop().partition(" failed:")[0]
        print(f"clients: {row}: {check} refuses in the same words: {', '.join(texts)}")


def check_logs(site: Site, trials: list[Trial]) -> None:
    """Hosts that were refused have been sent nothing. Those that were asked show that their logs are whole."""
    for host in HOSTS:
        log = site.read_log(host)
        if host in HONEST:
            wanted, got = sum(trial.answers[host] for trial in trials), log.count(CHAT_PATH)
            assert got == wanted > 0, f"{host}: wanted {wanted} chats in its log, got {got}"
        else:
            sent = site.upstreams[host].requests
            text = f"{host}: wanted no request, got {log} in its log and {sent} behind it"
            assert not log and not sent, text


@contextlib.contextmanager
def start_clients(options: argparse.Namespace, folder: Path, page: int) -> Iterator[list[Client]]:
    """Starts the client of each language that is there; all of them end, whatever becomes of one."""
    sys.path.insert(0, str(CHECKOUT / "tests/python"))
    from checkout_package import link_package

    link_package(Path(options.confide), folder / "packages")
    driver = [sys.executable, str(CHECKOUT / "tests/python/client_driver.py")]
    packages = {"PYTHONPATH": str(folder / "packages")}
    with contextlib.ExitStack() as stack:
        clients: list[Client] = []

        def add(client: Client) -> None:
            stack.callback(client.end)
            clients.append(client)

        add(ConnectClient(options.confide))
        add(DriverClient("Python", driver, packages))
        driver = [*options.node.split(), str(CHECKOUT / "tests/javascript/client_driver.mjs")]
        if options.node:
            add(DriverClient("Node", driver))
        if options.node and options.chromium:
            add(DriverClient("browser", [*driver, options.chromium, str(page)]))
        if options.go:
            add(DriverClient("Go", [options.go]))
        yield clients


def free_port() -> int:
    """A port of 127.0.0.1 that nothing uses just now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def main() -> None:
    """Runs all clients at once, each in front of a switch of its own."""
    parser = argparse.ArgumentParser()
    parser.add_argument("confide")
    parser.add_argument("--node", default="")
    parser.add_argument("--chromium", default="")
    parser.add_argument("--go", default="")
    options = parser.parse_args()
    options.confide = os.path.realpath(options.confide)
    began, page = time.monotonic(), free_port()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        clients = stack.enter_context(start_clients(options, folder, page))
        switches = [stack.enter_context(contextlib.closing(TcpSwitch())) for _ in clients]
        with contextlib.closing(Site(options.confide, folder, switches, page)) as site:
            trials = [Trial(client, site, switch) for client, switch in zip(clients, switches)]
            with ThreadPoolExecutor(len(trials)) as threads:
                runs = [threads.submit(trial.run) for trial in trials]
            failures = ["".join(format_exception(it)) for run in runs if (it := run.exception())]
            assert not failures, "\n".join(failures)
        check_logs(site, trials)
    compare_words(trials)
    print(f"clients: {len(trials)} clients, {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
