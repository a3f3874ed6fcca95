"""The hosts of tests/clients.py: real gateways with simulated evidence, honest ones and others."""

import contextlib
import json
import re
import shutil
import subprocess
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from client_drivers import STEP_S, LineProgram
from tcp_switch import TcpSwitch

# Older than the 30 days for which simulated endorsements hold.
EXPIRED_S = 40 * 24 * 3600
# A documentation address (RFC 5737): a model server that is not on the attested machine.
ELSEWHERE = '[[listener.upstream]]\nurl = "http://192.0.2.1:80"\n'
CHAT_PATH = "/v1/chat/completions"
# Where a client asks for fresh evidence in an open session (docs/channel.md).
EVIDENCE_PATH = "/.well-known/confide/evidence"


@dataclass(frozen=True)
class Host:
    """A listener that terminates TLS: its attester, its binding, and what its configuration has beyond that."""

    attester: str
    binding: str
    more: str = ""


# Some are alike, because nothing may reach a host that clients must refuse.
HOSTS = {
    **{
        f"{name} {binding}": Host(attester, binding, *more)
        for binding in ["key", "session"]
        for name, attester, *more in [
            ("honest", "own"),
            ("judged", "own"),
            ("expired", "expired"),
            ("other machine", "other"),
            ("other configuration", "own", '[[listener.route]]\npaths = ["/tokenize"]\n'),
            ("other claim", "own", ELSEWHERE),
        ]
    },
    "renewed session": Host("own", "session"),
    "honest gpu session": Host("gpu", "session"),
    "judged gpu session": Host("gpu", "session"),
    "ordinary key": Host("", "none"),
    "ordinary session": Host("", "none"),
}

# The hosts that are asked by right; nothing may be sent to the others.
HONEST = {"honest key", "honest session", "renewed session", "honest gpu session"}


class Upstream:
    """What stands in the place of the model server behind a host that must not be asked."""

    def __init__(self) -> None:
        # The first bytes of each request that was sent through the host.
        self.requests: list[bytes] = []
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._make_handler(self.requests))
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.serving = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.serving.start()

    def close(self) -> None:
        """Ends the server."""
        self.server.shutdown()
        self.serving.join(STEP_S)
        self.server.server_close()

    @staticmethod
    def _make_handler(requests: list[bytes]) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            timeout = STEP_S

            def do_GET(self) -> None:
                """Answers a question of the gateway itself, which asks for the model's name and health."""
                self.send_error(404)

            def do_POST(self) -> None:
                """Notes a request of a client."""
                head = f"{self.requestline}\r\n{self.headers}"
                requests.append(head.encode() + self.rfile.read1(1024))
                self.send_error(500)

            def log_message(self, *_: Any) -> None:
                """Says nothing: what came is in the list."""

        return Handler


class Site:
    """All hosts in one gateway, a model server behind them, and listeners that lead to the switch of each client."""

    def __init__(self, confide: str, folder: Path, switches: list[TcpSwitch], page: int) -> None:
        self.confide = confide
        self.folder = folder
        self.stack = contextlib.ExitStack()
        # One client at a time renews evidence, so that the log of the host tells whose renewal it was.
        self.renewal = threading.Lock()
        try:
            self._make_attesters()
            # Slow enough that the tokens stay apart while five clients keep the processors busy.
            pace = ["--ttft-ms", "10", "--tokens-per-second", "40"]
            self.model = self._start("serve", "--engine", "sim", "--listen", "127.0.0.1:0", *pace)
            self._start_hosts()
            self._start_carriers(switches, page)
            self._write_policies()
        except BaseException:
            self.stack.close()
            raise

    def policy(self, name: str) -> Path:
        """The file of a policy."""
        return self.folder / f"{name}.policy.toml"

    def read_log(self, host: str) -> list[str]:
        """The paths that a host has answered. All of them are in its log once it has ended."""
        log = self.folder / f"{host}.access"
        lines = log.read_text().splitlines() if log.exists() else []
        return [str(json.loads(line)["path"]) for line in lines]

    def close(self) -> None:
        """Ends all programs, in good order."""
        self.stack.close()

    def _run(self, *arguments: str) -> None:
        command = [self.confide, *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=STEP_S)

    def _start(self, *arguments: str) -> dict[str, Any]:
        """Starts a server and gives its ready line; it ends by SIGTERM, which must end it with status 0."""
        program = LineProgram([self.confide, *arguments])
        self.stack.callback(program.stop)
        return program.read()

    def _make_attesters(self) -> None:
        for name, more in [
            ("own", []),
            ("other", []),
            ("gpu", ["--gpu"]),
            ("other gpu", ["--gpu"]),
        ]:
            self._run("attest", "--simulate", "tdx", *more, "--out", str(self.folder / name))
        # The same machine, whose endorsements nobody has fetched anew since.
        expired = self.folder / "expired"
        shutil.copytree(self.folder / "own", expired)
        state = expired / "simulated-attester.json"
        saved = json.loads(state.read_text())
        saved["issued_at"] -= EXPIRED_S
        state.write_text(json.dumps(saved))

    def _start_hosts(self) -> None:
        self.upstreams = {name: Upstream() for name in HOSTS if name not in HONEST}
        for upstream in self.upstreams.values():
            self.stack.callback(upstream.close)
        file = self.folder / "hosts.toml"
        file.write_text("".join(self._describe_host(name) for name in HOSTS))
        ready = self._start("gateway", "--config", str(file))["listeners"]
        self.ports = {name: port_of(it) for name, it in zip(HOSTS, ready)}
        self.digests = {name: it["config_digest"] for name, it in zip(HOSTS, ready)}

    def _describe_host(self, name: str) -> str:
        host = HOSTS[name]
        evidence = f'simulate = "{self.folder / host.attester}"\n' if host.attester else ""
        own = self.upstreams.get(name)
        upstream = own.url if own else f"http://{self.model['listen']}"
        return (
            '[[listener]]\nkind = "terminate"\nlisten = "127.0.0.1:0"\n'
            f'binding = "{host.binding}"\n{evidence}access_log = "{self.folder / name}.access"\n'
            f'upstream_wait_s = 0\n[[listener.upstream]]\nurl = "{upstream}"\n{host.more}'
        )

    def _start_carriers(self, switches: list[TcpSwitch], page: int) -> None:
        """Starts a tunnel to all switches, and a listener that passes TLS to each."""
        passing = [
            '[[listener]]\nkind = "pass"\nlisten = "127.0.0.1:0"\n[[listener.route]]\n'
            f'names = ["localhost"]\ntargets = ["127.0.0.1:{switch.port}"]\n'
            for switch in switches
        ]
        file = self.folder / "carriers.toml"
        file.write_text("".join(passing))
        ready = self._start("gateway", "--config", str(file))["listeners"]
        self.passing = {switch.port: port_of(it) for switch, it in zip(switches, ready)}
        targets = [f"127.0.0.1:{switch.port}" for switch in switches]
        targets += [f"localhost:{port}" for port in self.passing.values()]
        allowed = ", ".join(f'"{target}"' for target in targets)
        file = self.folder / "tunnel.toml"
        file.write_text(
            '[[listener]]\nkind = "tunnel"\nlisten = "127.0.0.1:0"\n'
            f'allow = [{allowed}]\nallow_origin = ["http://localhost:{page}"]\n'
        )
        tunnel = self._start("gateway", "--config", str(file))["listeners"][0]
        self.tunnel = f"ws://{tunnel['listen']}"

    def _write_policies(self) -> None:
        own = (self.folder / "own/policy.toml").read_text()
        gpus = ["honest gpu session", "judged gpu session"]
        changed = ["other configuration key", "other configuration session"]
        own = self._pin(own, [name for name in HOSTS if name not in gpus + changed])
        gpu = self._pin((self.folder / "gpu/policy.toml").read_text(), gpus)
        roots = (
            read_roots(gpu)[:1]
            + read_roots((self.folder / "other gpu/policy.toml").read_text())[1:]
        )
        policies = {
            "own": own,
            "other measurement": replace_line(own, "mrtd", f'"{"00" * 48}"'),
            "production": replace_line(own, "roots", '["intel-production"]'),
            "gpu": gpu,
            "other gpu": replace_line(gpu, "roots", json.dumps(roots)),
        }
        for name, text in policies.items():
            self.policy(name).write_text(text)

    def _pin(self, policy: str, hosts: list[str]) -> str:
        return replace_line(policy, "config_digest", json.dumps([self.digests[it] for it in hosts]))


def port_of(listener: dict[str, Any]) -> int:
    """The port of a listener in a ready line."""
    return int(listener["listen"].rpartition(":")[2])


def replace_line(policy: str, key: str, value: str) -> str:
    """The policy with another value of a key."""
    text, count = re.subn(rf"^{key} = .*$", f"{key} = {value}", policy, flags=re.MULTILINE)
    assert count == 1, f"{key}: {policy}"
    return text


def read_roots(policy: str) -> list[str]:
    """The roots that a policy names: that of the CPU, and both of a GPU."""
    return list(re.findall(r"sha256:[0-9a-f]{64}", policy))
