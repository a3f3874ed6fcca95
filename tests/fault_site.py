"""The programs of gateway_faults.py: how they are started, asked for their status, joined by links and ended."""

import contextlib
import http.client
import json
import pathlib
import socket
import ssl
import subprocess
import sys
from typing import Any

from fault_peers import DEADLINE_S, Address, parse_address

Program = subprocess.Popen[bytes]


class Report:
    """The printed figures, and the promises that were broken."""

    def __init__(self) -> None:
        self.broken: list[str] = []

    def print_figure(self, text: str) -> None:
        """Prints one figure."""
        print(f"  {text}", flush=True)

    def require(self, holds: bool, promise: str) -> None:
        """Notes a promise that does not hold."""
        if not holds:
            self.broken.append(promise)


class Site:
    """The binary under test, a folder, and the programs that run."""

    def __init__(self, binary: str, folder: pathlib.Path) -> None:
        self.binary = binary
        self.folder = folder
        self.programs: list[Program] = []
        self.links: list[str] = []
        self.attester = folder / "attester"
        if not self.attester.exists():
            simulate = ["attest", "--simulate", "tdx", "--dangerous-platform-scope", "--out"]
            self.run([*simulate, str(self.attester)])

    def start(self, arguments: list[str]) -> tuple[Program, dict[str, str]]:
        """Starts a command of the binary and returns it with its ready line."""
        return self.start_program([self.binary, *arguments])

    def run(self, arguments: list[str]) -> None:
        """Runs a command of the binary to its end."""
        subprocess.run([self.binary, *arguments], check=True, stdout=subprocess.DEVNULL)

    def start_program(self, command: list[str]) -> tuple[Program, dict[str, str]]:
        """Starts a program and returns it with its ready line."""
        program = self.spawn(command)
        assert program.stdout is not None
        line = program.stdout.readline()
        if not line:
            raise SystemExit(f"{' '.join(command)}: ended without a ready line")
        return program, json.loads(line)

    def spawn(self, command: list[str]) -> Program:
        """Starts a program, whose standard error goes to the log."""
        with open(self.folder / "programs.log", "ab") as log:
            program = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
            )
        self.programs.append(program)
        return program

    def start_model(
        self, name: str, address: str = "127.0.0.1:0", prefix: tuple[str, ...] = ()
    ) -> tuple[Program, str]:
        """Starts a model server and returns it with its address."""
        program, ready = self.start_program([*prefix, *peer_command("model", address, name)])
        return program, ready["listen"]

    def start_gateway(self, config: str) -> tuple[Program, Address]:
        """Starts a gateway with the first listener's tables and returns it with its address."""
        path = self.folder / "gateway.toml"
        path.write_text(config)
        program, ready = self.start(["gateway", "--config", str(path)])
        return program, parse_address(ready["listen"])

    def start_connect(self, gateway: Address, more: list[str]) -> tuple[Program, Address]:
        """Starts the verifying client of a gateway and returns it with its address."""
        url = f"https://{gateway[0]}:{gateway[1]}"
        policy = str(self.attester / "policy.toml")
        program, ready = self.start(["connect", url, "--policy", policy, *more])
        return program, parse_address(ready["base_url"].removeprefix("http://").split("/")[0])

    def kill_all(self) -> None:
        """Ends every program that still runs, and removes the links."""
        for program in reversed(self.programs):
            program.kill()
            program.wait()
        self.programs.clear()
        # The kernel may keep one for as long as it repeats what a killed program had sent.
        for link in self.links:
            subprocess.run(["ip", "link", "delete", link], capture_output=True, check=False)
        self.links.clear()


class AdminConnection(http.client.HTTPConnection):
    """A connection to the administrator's socket."""

    def __init__(self, path: str) -> None:
        super().__init__("gateway", timeout=DEADLINE_S)
        self.path = path

    def connect(self) -> None:
        """Connects to the Unix socket."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


def read_status(site: Site) -> dict[str, Any]:
    """Returns the gateway's status from the administrator's socket."""
    with contextlib.closing(AdminConnection(f"{site.folder}/admin.sock")) as connection:
        connection.request("GET", "/status")
        return json.loads(connection.getresponse().read())


def start_plain_gateway(
    site: Site,
    upstreams: list[str],
    limits: dict[str, int] | None = None,
    listen: str = "127.0.0.1:0",
) -> tuple[ssl.SSLContext, Address]:
    """Starts a gateway without evidence; returns what verifies it, and its address."""
    _, gateway = site.start_gateway(plain_config(site, upstreams, limits or {}, listen))
    return ssl.create_default_context(cafile=str(site.folder / "gateway.pem")), gateway


def start_key_gateway(site: Site, upstream: str, more: list[str]) -> tuple[Program, Address]:
    """Starts a gateway with simulated evidence in its certificate."""
    arguments = ["gateway", "--listen", "127.0.0.1:0", "--upstream", f"http://{upstream}"]
    evidence = ["--binding", "key", "--simulate", str(site.attester)]
    program, ready = site.start([*arguments, *evidence, *more])
    return program, parse_address(ready["listen"])


def plain_config(
    site: Site, upstreams: list[str], limits: dict[str, int], listen: str = "127.0.0.1:0"
) -> str:
    """Returns the file of a gateway without evidence."""
    lines = [
        "[admin]",
        f'socket = "{site.folder}/admin.sock"',
        "[[listener]]",
        'kind = "terminate"',
        f'listen = "{listen}"',
        'binding = "none"',
        f'certificate_out = "{site.folder}/gateway.pem"',
    ]
    for upstream in upstreams:
        lines += ["[[listener.upstream]]", f'url = "http://{upstream}"']
    lines += ["[listener.limits]", *(f"{name} = {value}" for name, value in limits.items())]
    return "\n".join(lines) + "\n"


def peer_command(kind: str, *arguments: str) -> list[str]:
    """Returns the command that starts a peer of the gateway."""
    script = pathlib.Path(__file__).with_name("fault_peers.py")
    return [sys.executable, str(script), kind, *arguments]


def find_free_port() -> int:
    """Returns a port of loopback that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def add_link(site: Site, program: Program, number: int) -> str:
    """Joins this network namespace and that of a program, and returns the program's address.

    The addresses are for documentation (RFC 5737).
    """
    near, far = near_address(number), f"198.51.100.{4 * number + 2}"
    name, pid = f"faults{program.pid}", str(program.pid)
    run_ip(["link", "add", name, "type", "veth", "peer", "name", "peer", "netns", pid])
    site.links.append(name)
    run_ip(["addr", "add", f"{near}/30", "dev", name])
    run_ip(["link", "set", name, "up"])
    run_ip(["addr", "add", f"{far}/30", "dev", "peer"], program)
    set_link(program, "up")
    return far


def near_address(number: int) -> str:
    """Returns this end's address of a link."""
    return f"198.51.100.{4 * number + 1}"


def set_link(program: Program, state: str) -> None:
    """Sets the link in a program's namespace up or down."""
    run_ip(["link", "set", "peer", state], program)


def run_ip(arguments: list[str], program: Program | None = None) -> None:
    """Runs ip(8), in the network namespace of a program if there is one."""
    inside = ["nsenter", f"--net=/proc/{program.pid}/ns/net"] if program else []
    subprocess.run([*inside, "ip", *arguments], check=True)
