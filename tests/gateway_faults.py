#!/usr/bin/env python3
"""Makes everything around a gateway fail, and prints how it behaves, one figure a line.

usage: gateway_faults.py BINARY [--case NAME] [--folder FOLDER]
Status 1 if a promise of docs/gateway.md is broken; the promises are printed at the end. Times are figures and break no
promise unless they are far beyond the documented limit. FOLDER keeps the configurations and logs.

The case `half-open` needs root: its peers run in network namespaces of their own, whose links are taken down.
"""

import argparse
import asyncio
import collections
import contextlib
import dataclasses
import datetime
import json
import os
import pathlib
import re
import resource
import signal
import ssl
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine

from fault_peers import (
    CHAT,
    DEADLINE_S,
    Address,
    Answer,
    Body,
    Connection,
    render_request,
    run_once,
    unverified_tls,
)
from fault_site import (
    Program,
    Report,
    Site,
    add_link,
    find_free_port,
    near_address,
    peer_command,
    plain_config,
    read_status,
    set_link,
    start_key_gateway,
    start_plain_gateway,
)

# Seconds that this machine may add to a limit before a promise counts as broken.
SLACK_S = 3.0
STREAMS = 50
TUNNEL_STREAMS = 20
SLOW_CLIENTS = 10
FLOOD_CONNECTIONS = 2_000
HONEST_ADDRESS = "127.0.0.2"
HONEST_REQUESTS = 200
RENEWALS = 3
# The shortest that the gateway allows.
KEY_VALIDITY_S = 60
KEY_VALIDITY = ["--key-validity-s", str(KEY_VALIDITY_S)]
LOAD_CLIENTS = 8
RELOAD_S, RELOAD_INTERVAL_S = 8.0, 0.3
NO_STREAM: Body = {}
# A stream that outlasts every case, one frame each 20 ms.
LONG_STREAM: Body = {"frames": 100_000, "pause_s": 0.02}
# One of 13 kB/s, as many servers write tokens.
SLOW_STREAM: Body = {**LONG_STREAM, "bytes": 256}


def main() -> int:
    """Runs the cases and prints the broken promises."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary")
    parser.add_argument("--case", choices=CASES, help="run this case only")
    parser.add_argument("--folder", type=pathlib.Path, help="keep the logs in this folder")
    settings = parser.parse_args()
    report = Report()
    with contextlib.ExitStack() as stack:
        folder = settings.folder or pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        site = Site(str(pathlib.Path(settings.binary).resolve()), folder)
        for name in [settings.case] if settings.case else CASES:
            print(f"{name}:", flush=True)
            try:
                asyncio.run(CASES[name](site, report))
            finally:
                site.kill_all()
    for promise in report.broken:
        print(f"broken: {promise}", file=sys.stderr)
    return 1 if report.broken else 0


async def measure_killed_upstream(site: Site, report: Report) -> None:
    """Kills the model server in the middle of streams of both framings."""
    model, upstream = site.start_model("a")
    tls, gateway = start_plain_gateway(site, [upstream])
    cut, answers = await cut_streams(gateway, tls, STREAMS, model.kill)
    report_cuts(report, "model server killed", cut, answers)
    site.start_model("a", upstream)
    started = time.monotonic()
    again = await request_once(gateway, tls, {})
    report.require(again.status == 200, "the gateway serves again after its model server came back")
    waited_ms = (time.monotonic() - started) * 1e3
    report.print_figure(f"model server back: next request answered in {waited_ms:.0f} ms")


async def measure_cut_tunnel(site: Site, report: Report) -> None:
    """Kills the tunnel under the streams of a verifying client."""
    _, upstream = site.start_model("a")
    _, gateway = start_key_gateway(site, upstream, [])
    allow = ["--allow", f"{gateway[0]}:{gateway[1]}"]
    tunnel, ready = site.start(["tunnel", "--listen", "127.0.0.1:0", *allow])
    _, local = site.start_connect(gateway, ["--via", f"ws://{ready['listen']}"])
    cut, answers = await cut_streams(local, None, TUNNEL_STREAMS, tunnel.kill)
    report_cuts(report, "tunnel killed", cut, answers)
    missing = await request_once(local, None, {})
    report.print_figure(f"without the tunnel: a request is answered with {missing.status}")
    report.require(missing.status == 502, "connect answers 502 while its tunnel is gone")
    site.start(["tunnel", "--listen", ready["listen"], *allow])
    started = time.monotonic()
    again = await request_once(local, None, {})
    waited_ms = (time.monotonic() - started) * 1e3
    report.print_figure(f"tunnel back: next request answered in {waited_ms:.0f} ms")
    report.require(again.status == 200, "connect works again after its tunnel came back")


async def cut_streams(
    address: Address, tls: ssl.SSLContext | None, count: int, cut: Callable[[], None]
) -> tuple[float, list[Answer]]:
    """Starts streams, cuts them once each has begun, and returns the time of the cut and the answers."""
    waiting = asyncio.Semaphore(0)
    streams = []
    for number in range(count):
        connection = await Connection.open(address, tls)
        # Every second answer has a length instead of chunks.
        body = {**LONG_STREAM, "has_length": number % 2 == 1}
        begun = run_once(waiting.release)
        streams.append(asyncio.create_task(connection.request(body, begun)))
    for _ in range(count):
        await asyncio.wait_for(waiting.acquire(), DEADLINE_S)
    cut()
    cut_at = time.monotonic()
    return cut_at, await asyncio.gather(*streams)


def report_cuts(report: Report, fault: str, cut_at: float, answers: list[Answer]) -> None:
    """Prints how many cut streams looked complete, and how soon clients noticed."""
    count, complete = len(answers), sum(looks_complete(answer) for answer in answers)
    noticed_ms = sorted((answer.ended_at - cut_at) * 1e3 for answer in answers)
    report.print_figure(f"{fault}: {complete} of {count} streams looked complete, wanted 0")
    report.print_figure(
        f"{fault}: clients saw the cut after {noticed_ms[count // 2]:.0f} ms in the median, "
        f"{noticed_ms[-1]:.0f} ms at most"
    )
    report.require(complete == 0, f"{fault}: no stream looks complete")
    report.require(noticed_ms[-1] < SLACK_S * 1e3, f"{fault}: every client sees the cut at once")


def looks_complete(answer: Answer) -> bool:
    """Whether a client could take an answer for a whole one."""
    return answer.is_complete or b"[DONE]" in answer.body


SLOW_LIMITS = {
    "handshake_s": 2,
    "first_head_s": 2,
    "idle_s": 3,
    "request_body_pause_s": 2,
    "request_body_grace_s": 4,
    "request_body_linger_s": 1,
}


async def measure_slow_clients(site: Site, report: Report) -> None:
    """Lets clients drip heads and bodies while an honest one is served."""
    _, upstream = site.start_model("a")
    tls, gateway = start_plain_gateway(site, [upstream], SLOW_LIMITS)
    before = await measure_latencies(gateway, tls, time.monotonic() + 2)
    report_latencies(report, "honest client before", before)
    start_line = f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\n".encode()
    body_head = start_line + b"content-length: 1000000\r\n\r\n"
    kinds: list[tuple[str, str, bytes, bytes, bool]] = [
        ("no handshake", "handshake_s", b"", b"", False),
        ("a dripped first head", "first_head_s", start_line, b"x", True),
        ("a dripped second head", "idle_s", render_request(None) + start_line, b"x", True),
        ("a body that pauses", "request_body_pause_s", body_head + b"{", b"", True),
        ("a dripped body", "request_body_grace_s", body_head + b"{", b" " * 50, True),
    ]
    tasks = []
    for _, _, head, piece, has_tls in kinds:
        for _ in range(SLOW_CLIENTS):
            tasks.append(asyncio.create_task(drip(gateway, tls if has_tls else None, head, piece)))
    honest = asyncio.create_task(measure_latencies(gateway, tls, time.monotonic() + 5))
    cuts = await asyncio.gather(*tasks)
    during = await honest
    for index, (kind, limit, *_) in enumerate(kinds):
        own = cuts[index * SLOW_CLIENTS : (index + 1) * SLOW_CLIENTS]
        first, last = min(cut.after_s for cut in own), max(cut.after_s for cut in own)
        statuses = ", ".join(sorted({cut.outcome for cut in own}))
        wanted = SLOW_LIMITS[limit]
        report.print_figure(
            f"{kind}: ended after {first:.1f} to {last:.1f} s, {limit} is {wanted} s ({statuses})"
        )
        kept = wanted - 0.2 <= first and last <= wanted + SLACK_S
        report.require(kept, f"{kind}: ended after {limit}")
    report_latencies(report, f"honest client next to {len(tasks)} slow ones", during)


@dataclasses.dataclass
class Cut:
    """When a slow client's connection ended, and what it was answered."""

    after_s: float
    outcome: str


async def drip(address: Address, tls: ssl.SSLContext | None, head: bytes, piece: bytes) -> Cut:
    """Sends a head and then a piece each 200 ms, until the gateway answers or closes.

    The answer to a first request within the head is read first, and the time counts from its end.
    """
    connection = await Connection.open(address, tls)
    reader, writer = connection.reader, connection.writer
    first = render_request(None)
    if head.startswith(first):
        head = head[len(first) :]
        await connection.request(None)
    started = time.monotonic()
    writer.write(head)
    reading = asyncio.create_task(reader.read(64))
    while not reading.done() and time.monotonic() < started + DEADLINE_S:
        writer.write(piece)
        await asyncio.wait([reading], timeout=0.2)
    answer = b""
    with contextlib.suppress(OSError):
        answer = await asyncio.wait_for(reading, 1)
    connection.close()
    after_s = time.monotonic() - started
    return Cut(after_s, f"status {answer[9:12].decode()}" if answer else "closed")


async def measure_flood(site: Site, report: Report) -> None:
    """Opens idle connections from one address while a client of another one is served."""
    _, upstream = site.start_model("a")
    tls, gateway = start_plain_gateway(site, [upstream])
    certificate = str(site.folder / "gateway.pem")
    alone = await measure_latencies(gateway, tls, time.monotonic() + 2, HONEST_ADDRESS)
    report_latencies(report, "honest client alone", alone)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = FLOOD_CONNECTIONS if hard == -1 else min(FLOOD_CONNECTIONS, hard - 100)
    flood = site.spawn(peer_command("flood", f"{gateway[0]}:{gateway[1]}", certificate, str(count)))
    assert flood.stdout is not None
    opened = asyncio.create_task(asyncio.to_thread(flood.stdout.readline))
    latencies: list[float | None] = []
    while not opened.done() or len(latencies) < HONEST_REQUESTS:
        latencies.append(await measure_latency(gateway, tls, HONEST_ADDRESS))
    flood_line = json.loads(await opened)
    held = read_status(site)["connections"]
    report.print_figure(
        f"{flood_line['opened']:,} idle connections of one address, opened in "
        f"{flood_line['seconds']:.1f} s: the gateway holds {held} (256 for one address)"
    )
    report.require(held <= 257, "an address holds at most connections-per-address")
    report_latencies(report, "honest client of another address meanwhile", latencies)


async def measure_renewals(site: Site, report: Report) -> None:
    """Measures at the same time what takes several lives of a key."""
    _, upstream = site.start_model("a")
    await asyncio.gather(
        measure_expiring_certificate(site, report, upstream),
        measure_stopped_gateway(site, report, upstream),
        measure_missing_collateral(site, report, upstream),
    )


async def measure_expiring_certificate(site: Site, report: Report, upstream: str) -> None:
    """Serves an open connection and new ones while the key is renewed several times."""
    _, gateway = start_key_gateway(site, upstream, KEY_VALIDITY)
    _, local = site.start_connect(gateway, [])
    tls = unverified_tls()
    kept = await Connection.open(gateway, tls)
    certificates: set[bytes] = set()
    requests: collections.Counter[str] = collections.Counter()
    failures: collections.Counter[str] = collections.Counter()
    expired, deadline = 0, time.monotonic() + (RENEWALS + 1) * KEY_VALIDITY_S

    async def count(kind: str, answering: Awaitable[Answer]) -> None:
        requests[kind] += 1
        failures[kind] += (await answering).status != 200

    while len(certificates) <= RENEWALS and time.monotonic() < deadline:
        new = await Connection.open(gateway, tls)
        certificate = new.read_certificate()
        certificates.add(certificate)
        expired += read_not_after(certificate) < time.time()
        await count("new connections", new.request({}))
        new.close()
        await count("one connection kept", kept.request({}))
        await count("a verifying client", request_once(local, None, {}))
        await asyncio.sleep(0.05)
    renewals = len(certificates) - 1
    for kind, number in requests.items():
        report.print_figure(
            f"{kind} over {renewals} renewals of the key: {failures[kind]} of {number:,} requests "
            "failed, wanted 0"
        )
        report.require(failures[kind] == 0, f"{kind}: served while the key is renewed")
    report.print_figure(f"new connections that were shown an expired certificate: {expired}")
    report.require(expired == 0 and renewals >= RENEWALS, "the key is renewed before it expires")


async def measure_stopped_gateway(site: Site, report: Report, upstream: str) -> None:
    """Stops a gateway for longer than its key is valid, as a paused machine does."""
    program, gateway = start_key_gateway(site, upstream, KEY_VALIDITY)
    _, local = site.start_connect(gateway, [])
    program.send_signal(signal.SIGSTOP)
    await asyncio.sleep(KEY_VALIDITY_S + 2)
    # Their handshakes wait in the kernel and are the first that the gateway sees.
    tls = unverified_tls()
    opening = [asyncio.create_task(Connection.open(gateway, tls)) for _ in range(5)]
    await asyncio.sleep(0.5)
    program.send_signal(signal.SIGCONT)
    started, statuses = time.monotonic(), list[int]()
    while 200 not in statuses and time.monotonic() < started + DEADLINE_S:
        statuses.append((await request_once(local, None, {})).status)
    served_ms = (time.monotonic() - started) * 1e3
    waiting = await asyncio.gather(*opening, return_exceptions=True)
    opened = [outcome for outcome in waiting if isinstance(outcome, Connection)]
    expired = sum(read_not_after(new.read_certificate()) < time.time() for new in opened)
    report.print_figure(
        f"gateway stopped for longer than its key is valid: a verifying client is served "
        f"{served_ms:.0f} ms after it goes on, with {len(statuses) - 1} errors before; "
        f"of {len(waiting)} waiting connections {len(waiting) - len(opened)} were closed and {expired} "
        "shown the expired certificate"
    )
    report.require(200 in statuses, "a gateway that stood still shows a valid key again")


async def measure_missing_collateral(site: Site, report: Report, upstream: str) -> None:
    """Starts a gateway without its collateral service, and takes the service away again later.

    The clients' policy demands the collateral of the service, which is newer than the attester's own.
    """
    policy = site.folder / "newer.toml"
    number = "tcb_evaluation_data_number_min = "
    own = (site.attester / "policy.toml").read_text()
    policy.write_text(own.replace(f"{number}20", f"{number}21"))
    service = f"127.0.0.1:{find_free_port()}"
    started = time.monotonic()
    collateral = ["--collateral-service", f"http://{service}", *KEY_VALIDITY]
    _, gateway = start_key_gateway(site, upstream, collateral)
    report.print_figure(
        f"no collateral service: the gateway starts in {time.monotonic() - started:.1f} s"
    )
    status = await try_connect(site, gateway, policy)
    report.print_figure(
        f"no collateral service: a verifying client ends with status {status}, wanted 1"
    )
    report.require(status == 1, "a client is not served without the collateral that it demands")
    serve = ["collateral", "serve", "--simulate", str(site.attester), "--listen", service]
    serving, _ = site.start([*serve, "--edition", "next-evaluation"])
    started = time.monotonic()
    while status != 0 and time.monotonic() < started + 2 * KEY_VALIDITY_S:
        status = await try_connect(site, gateway, policy)
        await asyncio.sleep(0.2)
    report.print_figure(
        f"collateral service back: new clients are served after {time.monotonic() - started:.1f} s "
        f"(a key is valid for {KEY_VALIDITY_S} s)"
    )
    report.require(
        status == 0, "clients are served once the service is back and the key is renewed"
    )
    serving.kill()
    serving.wait()
    # Over a renewal, so that new evidence is made without the service.
    started, statuses = time.monotonic(), []
    while time.monotonic() < started + KEY_VALIDITY_S * 3 / 4:
        statuses.append(await try_connect(site, gateway, policy))
        await asyncio.sleep(1)
    failed = sum(status != 0 for status in statuses)
    report.print_figure(
        f"collateral service gone for {time.monotonic() - started:.0f} s and over a renewal: {failed} "
        f"of {len(statuses)} new sessions refused, wanted 0; what the gateway holds is valid for "
        f"{read_collateral_days(site):.0f} days"
    )
    report.require(failed == 0, "sessions go on with the held collateral")


async def try_connect(site: Site, gateway: Address, policy: pathlib.Path) -> int:
    """Starts a verifying client; returns 0 if it serves, or else its exit status."""
    url = f"https://{gateway[0]}:{gateway[1]}"
    program = site.spawn([site.binary, "connect", url, "--policy", str(policy)])
    assert program.stdout is not None
    is_served = bool(await asyncio.to_thread(program.stdout.readline))
    if is_served:
        program.kill()
    status = await asyncio.to_thread(program.wait)
    return 0 if is_served else status


def read_collateral_days(site: Site) -> float:
    """Returns for how many days the simulated collateral is valid."""
    text = (site.attester / "collateral.json").read_text()
    updates = re.findall(r'nextUpdate\\?"\s*:\s*\\?"([0-9TZ:-]+)', text)
    first = min(datetime.datetime.fromisoformat(update) for update in updates)
    return (first.timestamp() - time.time()) / 86_400


async def measure_reload(site: Site, report: Report) -> None:
    """Reloads changing configurations under load, and stops the gateway under load."""
    upstreams = [site.start_model("a")[1], site.start_model("b")[1]]
    configs = [plain_config(site, [upstream], {}) for upstream in upstreams]
    program, gateway = site.start_gateway(configs[0])
    tls = unverified_tls()
    load = Load(gateway, tls, {"frames": 3, "pause_s": 0.01})
    clients = [asyncio.create_task(load.run()) for _ in range(LOAD_CLIENTS)]
    deadline, reloads = time.monotonic() + RELOAD_S, 0
    while time.monotonic() < deadline:
        reloads += 1
        (site.folder / "new.toml").write_text(configs[reloads % 2])
        os.replace(site.folder / "new.toml", site.folder / "gateway.toml")
        program.send_signal(signal.SIGHUP)
        await asyncio.sleep(RELOAD_INTERVAL_S)
    load.is_over = True
    await asyncio.gather(*clients)
    servers = ", ".join(f"{load.servers[name]:,} by {name}" for name in sorted(load.servers))
    report.print_figure(f"{reloads} SIGHUPs: {load.complete:,} requests answered ({servers})")
    lost = load.cut + len(load.unanswered)
    report.print_figure(
        f"{reloads} SIGHUPs: {lost} requests lost, wanted 0 ({load.cut} cut, {len(load.unanswered)} "
        "unanswered)"
    )
    report.require(lost == 0, "a reload loses no request")
    report.require(len(load.servers) == 2, "a reload leads requests to the new model server")
    await measure_stop(report, program, gateway, tls)
    assert program.stdout is not None
    outcomes = program.stdout.read()
    applied, refused = outcomes.count(b'"reloaded":true'), outcomes.count(b'"reloaded":false')
    report.print_figure(
        f"{reloads} SIGHUPs: {applied} reloads applied, {refused} refused, wanted 0"
    )
    report.require(applied > 1 and refused == 0, "a valid configuration is applied")


async def measure_stop(
    report: Report, program: Program, gateway: Address, tls: ssl.SSLContext
) -> None:
    """Stops the gateway with SIGTERM under load."""
    load = Load(gateway, tls, {"start_s": 0.5, "frames": 20, "pause_s": 0.05})
    clients = []
    for _ in range(LOAD_CLIENTS):
        clients.append(asyncio.create_task(load.run()))
        # So that some requests wait for their answer while others read it.
        await asyncio.sleep(0.2)
    await asyncio.sleep(1)
    before = load.complete
    program.send_signal(signal.SIGTERM)
    stopping_at = time.monotonic()
    status = await asyncio.to_thread(program.wait)
    stopped_s = time.monotonic() - stopping_at
    await asyncio.sleep(0.5)
    load.is_over = True
    await asyncio.gather(*clients)
    # A request that was sent in the same moment may not have been read.
    lost = sum(sent_at < stopping_at - 0.05 for sent_at in load.unanswered)
    running = load.complete - before + load.cut + lost
    report.print_figure(
        f"SIGTERM: of {running} running requests {load.cut} were cut and {lost} got no answer, wanted 0"
    )
    report.print_figure(
        f"SIGTERM: the gateway ended with status {status} after {stopped_s:.1f} s, drain_s is 20 s"
    )
    report.print_figure(
        f"SIGTERM: {len(load.unanswered) - lost} requests that came later on open connections got no "
        f"answer, {load.refused} new connections were refused"
    )
    report.require(load.cut + lost == 0 and status == 0, "SIGTERM lets running requests end")


class Load:
    """A number of clients that request chats until they are told to end."""

    def __init__(self, address: Address, tls: ssl.SSLContext, body: Body) -> None:
        self.address = address
        self.tls = tls
        self.body = body
        self.is_over = False
        self.servers: collections.Counter[str] = collections.Counter()
        self.complete = self.cut = self.refused = 0
        self.unanswered: list[float] = []

    async def run(self) -> None:
        """Requests chats over one connection for as long as it may be used, and then over the next."""
        while not self.is_over:
            try:
                connection = await Connection.open(self.address, self.tls)
            except OSError:
                self.refused += 1
                await asyncio.sleep(0.05)
                continue
            while not self.is_over:
                answer = await connection.request(self.body)
                self.count(answer)
                if answer.closes or not answer.is_complete:
                    break
            connection.close()

    def count(self, answer: Answer) -> None:
        """Counts an answer by its outcome."""
        if answer.status == 200 and answer.is_complete:
            self.complete += 1
            self.servers[answer.body.split(b"\n")[0].decode().removeprefix("data: ")] += 1
        elif answer.status == 200:
            self.cut += 1
        else:
            self.unanswered.append(answer.sent_at)


HALF_OPEN_LIMITS = {
    "response_body_pause_s": 2,
    "write_stall_s": 2,
    "upstream_connect_s": 1,
    "upstream_question_s": 2,
    "upstream_start_s": 3,
    "idle_s": 3,
}
# How long the end of a vanished client is waited for.
HELD_S = 40.0


async def measure_half_open(site: Site, report: Report) -> None:
    """Takes down the links of a model server and of clients, so that no end ever arrives."""
    if os.geteuid() != 0:
        report.print_figure("skipped: needs root for network namespaces")
        return
    model, _ = site.start_model("a", "0.0.0.0:8000", ("unshare", "--net"))
    upstream = f"{add_link(site, model, 0)}:8000"
    stalled = {"frames": 100_000, "pause_s": 0, "bytes": 65_536}
    vanished: list[tuple[str, str, Body]] = [
        ("is idle", "idle_s", {}),
        ("reads a fast answer", "write_stall_s", stalled),
        ("reads a stream of 13 kB/s", "write_stall_s", SLOW_STREAM),
    ]
    for number, (doing, limit, body) in enumerate(vanished, 1):
        held_s = await time_vanished_client(site, upstream, number, body)
        given_up = f"after {held_s:.1f} s" if held_s < HELD_S else f"not within {HELD_S:.0f} s"
        limit_s = HALF_OPEN_LIMITS[limit]
        report.print_figure(
            f"link of a client down that {doing}: given up {given_up}, {limit} is {limit_s} s"
        )
        report.require(held_s < limit_s + SLACK_S, f"a vanished client that {doing} is given up")
    await measure_vanished_upstream(site, report, model, upstream)


async def time_vanished_client(site: Site, upstream: str, number: int, body: Body) -> float:
    """Takes the link of a client down; returns the seconds until the gateway has given it up."""
    gateway, address = start_half_open_gateway(site, upstream)
    command = ["unshare", "--net", *peer_command("download", str(address[1]), json.dumps(body))]
    client, _ = site.start_program(command)
    add_link(site, client, number)
    assert client.stdin is not None and client.stdout is not None
    client.stdin.write(f"{near_address(number)}\n".encode())
    client.stdin.flush()
    if not await asyncio.to_thread(client.stdout.readline):
        raise SystemExit("the client in its namespace got no answer")
    set_link(client, "down")
    held_s = await wait_until_free(site)
    for program in (client, gateway):
        program.kill()
        program.wait()
    return held_s


async def measure_vanished_upstream(
    site: Site, report: Report, model: Program, upstream: str
) -> None:
    """Takes the link of a model server down in mid-answer, and before a request."""
    _, gateway = start_half_open_gateway(site, upstream)
    tls = ssl.create_default_context(cafile=str(site.folder / "gateway.pem"))
    cut, answers = await cut_streams(gateway, tls, 2, lambda: set_link(model, "down"))
    pause_s = HALF_OPEN_LIMITS["response_body_pause_s"]
    after_s = max(answer.ended_at for answer in answers) - cut
    complete = sum(looks_complete(answer) for answer in answers)
    report.print_figure(
        f"model server's link down in mid-answer: {complete} of {len(answers)} looked complete; "
        f"cut after {after_s:.1f} s, response_body_pause_s is {pause_s} s"
    )
    report.require(complete == 0, "a stream of a vanished model server does not look complete")
    report.require(after_s < pause_s + SLACK_S, "a vanished model server is given up")
    freed_s = await wait_until_free(site)
    report.print_figure(f"its running requests are free {freed_s:.1f} s after that")
    report.require(freed_s < SLACK_S, "the places of a vanished model server are free again")

    set_link(model, "up")
    kept = await retry_until_answered(gateway, tls)
    set_link(model, "down")
    # A question for the models may be repeated, so it goes over a kept connection to the model server.
    for name, limit, body in (
        ("kept", "upstream_start_s", None),
        ("new", "upstream_connect_s", NO_STREAM),
    ):
        started = time.monotonic()
        answer = await kept.request(body)
        report.print_figure(
            f"request over a {name} connection to a vanished model server: {answer.status} after "
            f"{time.monotonic() - started:.1f} s, {limit} is {HALF_OPEN_LIMITS[limit]} s"
        )
        after_s = time.monotonic() - started
        gave_up = answer.status in (502, 504) and after_s < HALF_OPEN_LIMITS[limit] + SLACK_S
        report.require(gave_up, f"a request to a vanished model server is answered after {limit}")


async def retry_until_answered(gateway: Address, tls: ssl.SSLContext) -> Connection:
    """Returns a connection on which the model server has answered."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        connection = await Connection.open(gateway, tls)
        if (await connection.request({})).status == 200:
            return connection
        connection.close()
    raise SystemExit("the model server does not answer although its link is up")


async def wait_until_free(site: Site) -> float:
    """Returns the seconds until no client is connected and no request runs, HELD_S at most."""
    started = time.monotonic()
    while time.monotonic() < started + HELD_S:
        status = await asyncio.to_thread(read_status, site)
        servers = status["listeners"][0]["servers"]
        if status["connections"] == 0 and all(server["running"] == 0 for server in servers):
            break
        await asyncio.sleep(0.05)
    return time.monotonic() - started


def start_half_open_gateway(site: Site, upstream: str) -> tuple[Program, Address]:
    """Starts a gateway with small limits that other network namespaces can reach."""
    config = plain_config(site, [upstream], HALF_OPEN_LIMITS, "0.0.0.0:0")
    program, (_, port) = site.start_gateway(config)
    return program, ("127.0.0.1", port)


async def measure_latencies(
    address: Address, tls: ssl.SSLContext, deadline: float, source: str | None = None
) -> list[float | None]:
    """Measures the latency of request after request until a time; a failure is `None`."""
    latencies = []
    while time.monotonic() < deadline:
        latencies.append(await measure_latency(address, tls, source))
    return latencies


async def measure_latency(
    address: Address, tls: ssl.SSLContext, source: str | None = None
) -> float | None:
    """Returns the milliseconds of a request over a new connection, or `None` if it failed."""
    started = time.monotonic()
    answer = await request_once(address, tls, {}, source)
    return (time.monotonic() - started) * 1e3 if answer.status == 200 else None


def report_latencies(report: Report, who: str, latencies: list[float | None]) -> None:
    """Prints failures and percentiles of an honest client's requests."""
    answered = sorted(latency for latency in latencies if latency is not None)
    failures = len(latencies) - len(answered)
    report.require(failures == 0, f"{who}: no request fails")
    if not answered:
        raise SystemExit(f"{who}: no request was answered")
    report.print_figure(
        f"{who}: {failures} of {len(latencies):,} requests failed, wanted 0; "
        f"p50 {answered[len(answered) // 2]:.0f} ms, p99 {answered[len(answered) * 99 // 100]:.0f} ms"
    )


async def request_once(
    address: Address,
    tls: ssl.SSLContext | None,
    body: Body,
    source: str | None = None,
) -> Answer:
    """Requests a chat over a new connection."""
    try:
        connection = await Connection.open(address, tls, source)
    except OSError:
        return Answer()
    answer = await connection.request(body)
    connection.close()
    return answer


def read_not_after(certificate: bytes) -> float:
    """Returns the end of a certificate's validity, the second of its two UTCTimes (RFC 5280)."""
    text = re.findall(rb"\x17\x0d([0-9]{12}Z)", certificate)[1].decode()
    time_read = datetime.datetime.strptime(text, "%y%m%d%H%M%SZ")
    return time_read.replace(tzinfo=datetime.UTC).timestamp()


CASES: dict[str, Callable[[Site, Report], Coroutine[None, None, None]]] = {
    "killed-upstream": measure_killed_upstream,
    "cut-tunnel": measure_cut_tunnel,
    "slow-clients": measure_slow_clients,
    "half-open": measure_half_open,
    "flood": measure_flood,
    "reload": measure_reload,
    "renewals": measure_renewals,
}

if __name__ == "__main__":
    sys.exit(main())
