"""What the transport of the Python package costs per request on a kept session, next to plain `httpx2`.

    python tests/python/transport_cost.py PATH-OF-CONFIDE

Both clients send the same requests over TLS to the same gateway with a simulated attester: `confide` verifies it,
`httpx2` verifies nothing. They take turns in blocks, in random order. Printed are the median of the blocks' medians and
the median difference of the pairs with its 95 % interval (bootstrap). The native part of the package is the library
that cargo put next to the program, or $CONFIDE_NATIVE: figures are meant for a release build.
"""

import asyncio
import contextlib
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
from checkout_package import link_package

BLOCKS = 60
REQUESTS = 40
BODY = {"model": "sim", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1}
Send = Callable[[], Awaitable[Any]]


def main() -> None:
    """Measures both forms of the client."""
    binary = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        link_package(binary, Path(folder) / "packages")
        sys.path.insert(0, str(Path(folder) / "packages"))
        url, policy = stack.enter_context(run_gateway(binary, Path(folder)))
        asyncio.run(measure(url, policy))


@contextlib.contextmanager
def run_gateway(binary: Path, folder: Path) -> Iterator[tuple[str, Path]]:
    """Runs a model and a gateway; gives the address of chats and the policy."""
    servers = []

    def start(*arguments: str) -> dict[str, Any]:
        command = [str(binary), *arguments, "--listen", "127.0.0.1:0"]
        servers.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        assert servers[-1].stdout
        return dict(json.loads(servers[-1].stdout.readline()))

    try:
        attester = folder / "attester"
        run = [str(binary), "attest", "--simulate", "tdx", "--out", str(attester)]
        subprocess.run(run, check=True, stdout=subprocess.DEVNULL)
        model = start("serve", "--engine", "sim")
        upstream = f"http://{model['listen']}"
        gateway = start("gateway", "--upstream", upstream, "--simulate", str(attester))
        policy = attester / "policy.toml"
        pin = [str(binary), "policy", "pin", str(policy), "--digest", gateway["config_digest"]]
        subprocess.run(pin, check=True, stdout=subprocess.DEVNULL)
        yield f"https://{gateway['listen']}/v1/chat/completions", policy
    finally:
        for server in servers:
            server.terminate()
            server.wait()


async def measure(url: str, policy: Path) -> None:
    """Measures the synchronous clients, then the asynchronous ones."""
    import confide

    attested, plain = confide.http_client(policy=policy), httpx2.Client(verify=False)

    async def send(client: httpx2.Client) -> Any:
        return client.post(url, json=BODY)

    await compare("sync", lambda: send(attested), lambda: send(plain))
    async with (
        confide.async_http_client(policy=policy) as attested_async,
        httpx2.AsyncClient(verify=False) as plain_async,
    ):
        await compare(
            "async",
            lambda: attested_async.post(url, json=BODY),
            lambda: plain_async.post(url, json=BODY),
        )


async def compare(name: str, attested: Send, plain: Send) -> None:
    """Prints the figures of two clients."""
    medians: dict[Send, list[float]] = {attested: [], plain: []}
    for block in range(-1, BLOCKS):
        for send in random.sample(list(medians), 2):
            median_ms = await time_block(send)
            # The first block opens the connections.
            if block >= 0:
                medians[send].append(median_ms)
    differences = [a - b for a, b in zip(medians[attested], medians[plain])]
    samples = sorted(statistics.median(random.choices(differences, k=BLOCKS)) for _ in range(2000))
    print(
        f"{name}: confide {statistics.median(medians[attested]):.3f} ms,"
        f" httpx2 {statistics.median(medians[plain]):.3f} ms,"
        f" difference {statistics.median(differences):+.3f} ms [{samples[50]:+.3f}, {samples[1949]:+.3f}]"
    )


async def time_block(send: Send) -> float:
    """The median time of a block of requests, in milliseconds."""
    times_ms = []
    for _ in range(REQUESTS):
        start_ns = time.perf_counter_ns()
        answer = await send()
        times_ms.append((time.perf_counter_ns() - start_ns) / 1e6)
        assert answer.status_code == 200, answer.status_code
    return statistics.median(times_ms)


if __name__ == "__main__":
    main()
