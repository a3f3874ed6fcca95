"""`python -m confide.blind host DIR … --listen 127.0.0.1:0`: an adapter host, the blind protocol in the clear."""

from __future__ import annotations

import argparse
import ipaddress
import json
import os
import signal
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .._extension import native
from ..cuda import parameters
from ..cuda.runtime import DeviceMissing, check_device
from .audit import AuditLog
from .errors import AdapterRefused
from .host import BELOW_WIDTH, AdapterHost, HostOptions
from .serving import Server
from .terms import PROTECTS

_BUDGET_FILE_NAME = "adapter-budgets.jsonl"
_EPILOG = """The channel is plain TCP: an eavesdropper sees masked vectors and ciphertexts, an attacker on the path
can spoil answers, and a key holder does not know who answers. So the host listens on loopback only, unless
--dangerous-plain is given. The attested channel is `confide adapter host`: the same protocol within TLS that is bound
to evidence (docs/channel.md)."""


def main(words: list[str] | None = None) -> int:
    """Runs the program; gives its exit status."""
    parser = argparse.ArgumentParser(prog="python -m confide.blind", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    host = commands.add_parser(
        "host",
        help="serve key holders; the adapters never leave this process",
        epilog=_EPILOG,
    )
    _add_host_arguments(host)
    arguments = parser.parse_args(words)
    try:
        return _run_host(arguments)
    except (AdapterRefused, DeviceMissing, ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _add_host_arguments(host: argparse.ArgumentParser) -> None:
    add = host.add_argument
    add(
        "adapters",
        metavar="DIR",
        nargs="+",
        help="adapter folders as PEFT writes them; each adapter takes its folder's name",
    )
    add("--listen", metavar="ADDR:PORT", required=True, help="port 0 takes any free one")
    add(
        "--device",
        default="cpu",
        help="cuda:N, or cpu in a checkout of the repository (default: cpu)",
    )
    add(
        "--protect",
        choices=PROTECTS,
        default="a",
        help="matrices that never leave the host: A, or A and B",
    )
    add("--parameters", metavar="NAME", default=parameters.DEFAULT)
    add(
        "--dangerous-parameters",
        action="store_true",
        help="also allow a parameter set below 128 bits of security",
    )
    add(
        "--final-hidden",
        action="store_true",
        help="offer only q_proj of layer 0, as a delta on the last hidden state",
    )
    add(
        "--budget",
        type=int,
        metavar="N",
        help="largest number of answers for each client, adapter and input; by default one fewer than "
        "the input's width",
    )
    _add_budget_file_arguments(host)
    add(
        "--clients",
        type=Path,
        metavar="FILE",
        help="one line per client: name and SHA-256 of its credential; by default all share a budget",
    )
    add(
        "--noise-sigma",
        type=float,
        default=0.0,
        metavar="S",
        help="standard deviation of the noise on each answer, in the answer's integer units",
    )
    add("--max-rank", type=int, default=256, metavar="N", help="refuse adapters of a greater rank")
    add(
        "--audit-log",
        type=Path,
        metavar="FILE",
        help="append the count of answers for each client to this file",
    )
    add("--dangerous-plain", action="store_true", help="listen beyond loopback, in the clear")
    add(
        "--dangerous-answer-strangers",
        action="store_true",
        help="serve key holders beyond loopback without a credential: any can learn the adapter",
    )


def _add_budget_file_arguments(host: argparse.ArgumentParser) -> None:
    """Adds the three ways to say where the counts of answers are kept."""
    add = host.add_mutually_exclusive_group().add_argument
    add("--budget-file", type=Path, metavar="FILE", help="keep the counts of answers in this file")
    add(
        "--state",
        type=Path,
        metavar="DIR",
        help="keep the counts of answers in this folder; by default $XDG_STATE_HOME/confide, or "
        "~/.local/state/confide",
    )
    add(
        "--dangerous-forget-budgets",
        action="store_true",
        help="keep the counts of answers in memory only: every restart resets all budgets",
    )


def _run_host(arguments: argparse.Namespace) -> int:
    address, _, port = arguments.listen.rpartition(":")
    address = address.strip("[]")
    if not ipaddress.ip_address(address).is_loopback and not arguments.dangerous_plain:
        raise ValueError(
            f"--listen {arguments.listen}: wanted loopback, since the channel is plain\n"
            "hint: use `confide adapter host`, or add --dangerous-plain"
        )
    if (
        not ipaddress.ip_address(address).is_loopback
        and not arguments.clients
        and not arguments.dangerous_answer_strangers
    ):
        raise ValueError(
            f"--listen {arguments.listen}: wanted --clients beyond loopback, since anyone who connects can learn "
            "the adapter\nhint: give --clients FILE, or add --dangerous-answer-strangers"
        )
    check_device(arguments.device)
    log = AuditLog(arguments.audit_log)
    server_host = AdapterHost(_options(arguments), log)
    for folder in arguments.adapters:
        server_host.load(folder, arguments.final_hidden)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.create_server((address, int(port)), family=family)
    server = Server(server_host, listener)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: server.stopping.set())
    print(json.dumps(_ready_line(server_host, listener)), flush=True)
    try:
        server.run()
    finally:
        server.stop()
        server_host.write_counts()
        log("stopped")
        server_host.ledger.write_exact_counts()
    return 0


def _options(arguments: argparse.Namespace) -> HostOptions:
    clients = (
        native.ClientList.read(arguments.clients) if arguments.clients else native.ClientList("")
    )
    allowance = BELOW_WIDTH if arguments.budget is None else arguments.budget
    return HostOptions(
        parameters.find_set(arguments.parameters, arguments.dangerous_parameters),
        arguments.protect,
        allowance,
        arguments.noise_sigma,
        arguments.max_rank,
        clients,
        _budget_file(arguments),
        arguments.device,
    )


def default_budget_file(environment: Mapping[str, str]) -> Path | None:
    """Gives the file of counts by default, which `confide adapter host` and this host share."""
    for name, below in (("XDG_STATE_HOME", ""), ("HOME", ".local/state")):
        folder = environment.get(name, "")
        if os.path.isabs(folder):
            return Path(folder) / below / "confide" / _BUDGET_FILE_NAME
    return None


def _budget_file(arguments: argparse.Namespace) -> Path | None:
    if arguments.dangerous_forget_budgets:
        return None
    if arguments.budget_file:
        return arguments.budget_file
    found = (
        arguments.state / _BUDGET_FILE_NAME if arguments.state else default_budget_file(os.environ)
    )
    if found is None:
        raise ValueError(
            "no folder for the counts of answers: wanted --state, XDG_STATE_HOME or HOME\n"
            "hint: --state DIR names one; --dangerous-forget-budgets keeps the counts in memory"
        )
    return found


def _ready_line(host: AdapterHost, listener: socket.socket) -> dict[str, Any]:
    address, port = listener.getsockname()[:2]
    shown = f"[{address}]" if ":" in address else address
    adapters = [
        {
            "name": hosted.name,
            "inputs": len(hosted.products),
            "rows": sum(product.terms.rows for product in hosted.products),
            "budget_least": min(
                host.options.answer_limit(product.terms.columns) for product in hosted.products
            ),
        }
        for hosted in host.adapters.values()
    ]
    return {
        "ready": True,
        "listen": f"{shown}:{port}",
        "guarantee": host.guarantee(),
        "pid": os.getpid(),
        "binding": "none",
        "simulated": False,
        "clients_attest": False,
        "epoch": host.epoch.hex(),
        "kept": "masks and keys in memory only: a restart discards them",
        "device": host.options.device,
        "parameters": host.options.parameters.name,
        "protect": host.options.protect,
        "noise_sigma": host.options.noise_sigma,
        "adapters": adapters,
        "budget_file": host.options.budget_file and str(host.options.budget_file),
    }


if __name__ == "__main__":
    sys.exit(main())
