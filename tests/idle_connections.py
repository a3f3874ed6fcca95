#!/usr/bin/env python3
"""Opens many idle TLS connections to one gateway and shows what each costs.

usage: idle_connections.py BINARY [--connections N] [--before-request]
The connections come from many loopback addresses, have made one request unless --before-request is given, and then
stay idle. The client forgets their TLS sessions and keeps the sockets.

Printed are the growth of the gateway's resident memory for each connection, which must be under 12 KiB, and apart from
it the kernel's for both ends of a connection. Meanwhile one more client must get an answer of the model server behind
the gateway. Status 1 if not, and if the gateway has closed a connection.

N is 200,000, or 18,000 with a message where this process may not have so many open files (root raises the limit) or
where too little memory is free.
"""

import argparse
import concurrent.futures
import itertools
import json
import os
import pathlib
import resource
import select
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request

CONNECTIONS = 200_000
CONNECTIONS_WITHOUT_ROOT = 18_000
# Besides the connections: the program's own files, and connections to the model server.
OTHER_FILES = 512
# Memory of the gateway, of both ends of a connection in the kernel, and of this process: an upper bound.
KIB_PER_CONNECTION = 48
GATEWAY_KIB_MAX = 12.0
# Half of the ports that Linux gives to the connections of one address.
CONNECTIONS_PER_ADDRESS = 14_000
DEADLINE_S = 60
WORKERS = 8
HEAD = b"GET /.well-known/confide HTTP/1.1\r\nhost: localhost\r\n\r\n"

# The file's limits permit N connections that are idle for an hour.
CONFIG = """
metrics_listen = "127.0.0.1:{metrics_port}"
[[listener]]
kind = "terminate"
listen = "127.0.0.1:0"
binding = "none"
certificate_out = "{certificate}"
[[listener.upstream]]
url = "http://{upstream}"
[listener.connections]
max = {connections_max}
per_address = {connections_max}
reserved = 0
[listener.limits]
first_head_s = 3600
idle_s = 3600
"""


def main() -> int:
    """Starts the programs, opens the connections and prints what they cost."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary")
    parser.add_argument("--connections", type=int)
    parser.add_argument("--before-request", action="store_true")
    settings = parser.parse_args()
    count = choose_connections(settings.connections)
    programs: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            return measure(
                settings.binary, pathlib.Path(folder), count, settings.before_request, programs
            )
        finally:
            for program in reversed(programs):
                program.kill()
                program.wait()


def measure(
    binary: str,
    folder: pathlib.Path,
    count: int,
    before_request: bool,
    programs: list[subprocess.Popen[bytes]],
) -> int:
    """Opens `count` connections to a gateway; returns the exit status."""
    model = start(programs, [binary, "serve", "--engine", "sim", "--listen", "127.0.0.1:0"])
    certificate, metrics_port = folder / "gateway.pem", find_free_port()
    config = folder / "gateway.toml"
    config.write_text(
        CONFIG.format(
            metrics_port=metrics_port,
            certificate=certificate,
            upstream=model["listen"],
            connections_max=count + OTHER_FILES,
        )
    )
    ready = start(programs, [binary, "gateway", "--config", str(config)])
    gateway = programs[-1].pid
    check_open_files(gateway, count)
    host, port = str(ready["listen"]).rsplit(":", 1)
    address = (host, int(port))
    tls = ssl.create_default_context(cafile=str(certificate))
    request_models(tls, address)
    resident_before, kernel_before = read_resident_kib(gateway), read_kernel_kib()
    started = time.monotonic()
    connections = open_connections(tls, address, count, b"" if before_request else HEAD)
    opened_s = time.monotonic() - started
    # What a handshake leaves for a moment (buffers, sockets in TIME_WAIT) does not belong to idle connections.
    time.sleep(2)
    gateway_kib = (read_resident_kib(gateway) - resident_before) / count
    kernel_kib = (read_kernel_kib() - kernel_before) / count
    started = time.monotonic()
    request_models(tls, address)
    answered_ms = (time.monotonic() - started) * 1e3
    held = read_open_connections(metrics_port)
    closed = count_closed(connections)
    state = "before their first request" if before_request else "after a request"
    print(f"{count:,} idle connections {state}, opened in {opened_s:.0f} s")
    print(
        f"gateway: {gateway_kib:.1f} KiB of resident memory for each, wanted < {GATEWAY_KIB_MAX:.0f}"
    )
    print(f"kernel: {kernel_kib:.1f} KiB for each, both ends (slab and TCP buffers of the machine)")
    print(f"one more client: answered in {answered_ms:.0f} ms")
    if closed or held < count:
        print(
            f"failed: the gateway holds {held:,} connections and has closed {closed:,}",
            file=sys.stderr,
        )
        return 1
    if gateway_kib >= GATEWAY_KIB_MAX:
        print("failed: the gateway takes too much memory for a connection", file=sys.stderr)
        return 1
    return 0


def choose_connections(wanted: int | None) -> int:
    """Returns the number of connections, with the limit of open files raised for them.

    A number that was asked for and cannot be had ends the program.
    """
    count = wanted or CONNECTIONS
    reason = raise_open_files(count) or find_missing_memory(count)
    if reason is None:
        return count
    if wanted is not None:
        raise SystemExit(reason)
    fallback = CONNECTIONS_WITHOUT_ROOT
    print(f"{fallback:,} instead of {count:,} connections: {reason}")
    reason = raise_open_files(fallback) or find_missing_memory(fallback)
    if reason is not None:
        raise SystemExit(reason)
    return fallback


def raise_open_files(count: int) -> str | None:
    """Raises the limit of open files, which the gateway inherits; returns why that is not possible."""
    wanted = count + OTHER_FILES
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(hard, wanted)))
    except (OSError, ValueError):
        return (
            f"wanted a limit of {wanted:,} open files, which is at most {hard:,} here (ulimit -Hn)"
        )
    return None


def find_missing_memory(count: int) -> str | None:
    """Returns why there is too little memory, if so."""
    wanted_kib = count * KIB_PER_CONNECTION
    free_kib = read_field("/proc/meminfo", "MemAvailable")
    if free_kib >= wanted_kib:
        return None
    return f"wanted {wanted_kib >> 20} GiB of free memory, got {free_kib >> 20}"


def check_open_files(pid: int, count: int) -> None:
    """Ends the program if the gateway's limit of open files is below its connections.

    It raises its soft limit to the hard one; where that does not suffice, it evicts idle connections.
    """
    lines = pathlib.Path(f"/proc/{pid}/limits").read_text().splitlines()
    limit = next(line.split()[3] for line in lines if line.startswith("Max open files"))
    if limit != "unlimited" and int(limit) < count + OTHER_FILES:
        raise SystemExit(
            f"the gateway may have {limit} open files, wanted {count + OTHER_FILES} (ulimit -n)"
        )


def start(programs: list[subprocess.Popen[bytes]], command: list[str]) -> dict[str, object]:
    """Starts a program and returns its ready line."""
    program = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    programs.append(program)
    assert program.stdout is not None
    line = program.stdout.readline()
    if not line:
        raise SystemExit(f"{' '.join(command)}: ended without a ready line")
    ready: dict[str, object] = json.loads(line)
    return ready


def find_free_port() -> int:
    """Returns a port of loopback that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def request_models(tls: ssl.SSLContext, address: tuple[str, int]) -> None:
    """Asks the model server for its models over a new connection."""
    head = b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    plain = socket.create_connection(address, DEADLINE_S)
    with tls.wrap_socket(plain, server_hostname="localhost") as stream:
        stream.sendall(head)
        status = stream.makefile("rb").readline()
    if not status.startswith(b"HTTP/1.1 200 "):
        raise SystemExit(f"the gateway answers {status!r}, wanted 200")


def open_connections(
    tls: ssl.SSLContext, address: tuple[str, int], count: int, head: bytes
) -> list[int]:
    """Opens idle connections from one loopback address after the other; returns their descriptors."""

    def open_share(worker: int) -> list[int]:
        return [
            open_connection(tls, address, source_address(number), head)
            for number in range(worker, count, WORKERS)
        ]

    with concurrent.futures.ThreadPoolExecutor(WORKERS) as workers:
        return list(itertools.chain.from_iterable(workers.map(open_share, range(WORKERS))))


def source_address(number: int) -> str:
    """Returns the loopback address of a connection: each has as many as its ports allow."""
    host = 2 + number // CONNECTIONS_PER_ADDRESS
    return f"127.0.{host >> 8}.{host & 0xFF}"


def open_connection(tls: ssl.SSLContext, address: tuple[str, int], source: str, head: bytes) -> int:
    """Opens a connection, sends `head`, reads the answer, and forgets the TLS session."""
    plain = socket.socket()
    plain.settimeout(DEADLINE_S)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # The kernel chooses the port with the other end in view.
    plain.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
    plain.bind((source, 0))
    plain.connect(address)
    stream = tls.wrap_socket(plain, server_hostname="localhost")
    if head:
        stream.sendall(head)
        read_answer(stream)
    return stream.detach()


def read_answer(stream: ssl.SSLSocket) -> None:
    """Reads an answer of status 200 to its end, which its length tells."""
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += read_some(stream)
    fields, _, body = answer.partition(b"\r\n\r\n")
    status, *lines = fields.lower().split(b"\r\n")
    length = next(int(line[15:]) for line in lines if line.startswith(b"content-length:"))
    if not status.startswith(b"http/1.1 200 "):
        raise SystemExit(f"the gateway answers {status!r}, wanted 200")
    missing = length - len(body)
    while missing > 0:
        missing -= len(read_some(stream))


def read_some(stream: ssl.SSLSocket) -> bytes:
    """Reads what has arrived; an end ends the program."""
    piece = stream.recv(16384)
    if not piece:
        raise SystemExit("the gateway closed a connection before its answer was complete")
    return piece


def count_closed(connections: list[int]) -> int:
    """Counts the connections on which something has happened: an idle one is silent until it is closed."""
    waiting = select.poll()
    for descriptor in connections:
        waiting.register(descriptor, select.POLLIN | select.POLLRDHUP)
    return len(waiting.poll(0))


def read_open_connections(metrics_port: int) -> int:
    """Returns the number of open connections, as the gateway's metrics say."""
    with urllib.request.urlopen(
        f"http://127.0.0.1:{metrics_port}/metrics", timeout=DEADLINE_S
    ) as answer:
        lines = answer.read().decode().splitlines()
    return next(
        int(line.split()[1]) for line in lines if line.startswith("confide_gateway_connections ")
    )


def read_resident_kib(pid: int) -> int:
    """Returns a process's resident memory."""
    return read_field(f"/proc/{pid}/status", "VmRSS")


def read_kernel_kib() -> int:
    """Returns the memory of the kernel's slabs and of all TCP buffers of this machine."""
    tcp = pathlib.Path("/proc/net/sockstat").read_text().partition("TCP:")[2].split()
    pages = int(tcp[tcp.index("mem") + 1])
    return read_field("/proc/meminfo", "Slab") + pages * os.sysconf("SC_PAGE_SIZE") // 1024


def read_field(path: str, name: str) -> int:
    """Returns the number of KiB in a line of /proc."""
    lines = pathlib.Path(path).read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


# Python names it from 3.14 on (linux/in.h).
IP_BIND_ADDRESS_NO_PORT = 24

if __name__ == "__main__":
    sys.exit(main())
