#!/usr/bin/env python3
"""Guesses another tenant's prompt from the time to the first token, without and with a cache salt.

usage: cache_attack.py BINARY [--trials N] [--record FILE] [--folder FOLDER] | cache_attack.py serve
In each trial a victim asks with a new secret, and an attacker with another API key times two guesses, one of which is
right. The model server is this script's own: it has a prefix cache by vLLM's rule (the hash of a block covers the block
before, and in the first block the request's `cache_salt`), and spends real work on each block that it has not cached.

Status 1 if the attack fails without a salt (area under the curve below 0.9), or succeeds with one (its 95 % interval
excludes 0.5). Such an interval misses one time in twenty, so that a second set of trials is then taken.
"""

import argparse
import asyncio
import contextlib
import hashlib
import json
import pathlib
import random
import re
import statistics
import sys
import tempfile
import time

from fault_peers import DEADLINE_S, Address, parse_address, unverified_tls
from fault_site import Site
from traffic_attack import area_under_curve, bootstrap, includes_half

BLOCK_BYTES = 16
# Rounds of PBKDF2 for a block that is not cached: some ten milliseconds, as the prefill of 16 tokens takes on a busy
# machine.
BLOCK_WORK = 20_000
# What all prompts begin with, and the length of the secret after it, in blocks.
PREAMBLE = "You are an assistant of the bank. The customer's number is this:".ljust(4 * BLOCK_BYTES)
SECRET_BLOCKS = 2


def main() -> None:
    """Runs the attack, or the model server that it needs."""
    if sys.argv[1:] == ["serve"]:
        asyncio.run(serve_model())
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary")
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--record", type=pathlib.Path)
    parser.add_argument("--folder", type=pathlib.Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or pathlib.Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        site = Site(arguments.binary, folder)
        try:
            figures = asyncio.run(attack(site, arguments.trials))
        finally:
            site.kill_all()
    if arguments.record:
        arguments.record.write_text(json.dumps(figures, indent=2) + "\n")
    broken = []
    if figures["without a salt"][-1]["auc"] < 0.9:
        broken.append("the attack finds the prompt without a salt")
    if not includes_half(figures["with a salt"][-1]):
        broken.append("a salt hides the prompt")
    for line in broken:
        print(f"broken: {line}")
    sys.exit(1 if broken else 0)


async def serve_model() -> None:
    """Serves completions that take as long as their prompts have blocks that are not cached."""
    cached: set[bytes] = set()

    def read_prompt(prompt: str, salt: str) -> None:
        parent = hashlib.sha256(salt.encode()).digest()
        for start in range(0, len(prompt) - BLOCK_BYTES + 1, BLOCK_BYTES):
            block = prompt[start : start + BLOCK_BYTES].encode()
            parent = hashlib.sha256(parent + block).digest()
            if parent not in cached:
                hashlib.pbkdf2_hmac("sha256", block, parent, BLOCK_WORK)
                cached.add(parent)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                length = re.search(r"\r\ncontent-length: *([0-9]+)\r\n", head)
                body = json.loads(await reader.readexactly(int(length[1]))) if length else {}
                if "prompt" in body:
                    read_prompt(body["prompt"], body.get("cache_salt", ""))
                text = json.dumps({"object": "list", "data": []})
                fields = f"content-type: application/json\r\ncontent-length: {len(text)}"
                writer.write(f"HTTP/1.1 200 OK\r\n{fields}\r\n\r\n{text}".encode())
                await writer.drain()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    print(json.dumps({"listen": f"{host}:{port}"}), flush=True)
    await server.serve_forever()


async def attack(site: Site, trials: int) -> dict[str, list[dict[str, float]]]:
    """Attacks a gateway without and with a cache salt."""
    keys = site.folder / "keys.toml"
    keys.touch(mode=0o600)
    tables = [
        f'[[key]]\nname = "{name}"\nsha256 = "{hashlib.sha256(name.encode()).hexdigest()}"\n'
        for name in ("victim", "attacker")
    ]
    keys.write_text("".join(tables))
    figures: dict[str, list[dict[str, float]]] = {}
    for name, more, is_hidden in (
        ("without a salt", [], False),
        ("with a salt", ["--cache-salt"], True),
    ):
        _, model = site.start_program([sys.executable, __file__, "serve"])
        arguments = [
            "gateway",
            "--listen",
            "127.0.0.1:0",
            "--upstream",
            f"http://{model['listen']}",
        ]
        arguments += ["--binding", "none", "--api-keys", str(keys), *more]
        _, ready = site.start(arguments)
        figures[name] = []
        for attempt in range(2):
            figure = await measure(parse_address(ready["listen"]), trials, random.Random(attempt))
            figures[name].append(figure)
            print(f"{name}: {figure}", flush=True)
            if not is_hidden or includes_half(figure):
                break
    return figures


async def measure(gateway: Address, trials: int, chance: random.Random) -> dict[str, float]:
    """Times a right and a wrong guess in each trial."""
    scored: list[list[tuple[float, bool]]] = []
    for _ in range(trials):
        secret, wrong = (
            "".join(chance.choices("0123456789", k=SECRET_BLOCKS * BLOCK_BYTES)) for _ in range(2)
        )
        await ask(gateway, "victim", PREAMBLE + secret)
        guesses = [(secret, True), (wrong, False)]
        chance.shuffle(guesses)
        for guess, is_right in guesses:
            took_s = await ask(gateway, "attacker", PREAMBLE + guess)
            scored.append([(-took_s, is_right)])
    auc = area_under_curve([one[0] for one in scored])
    low, high = bootstrap(scored, chance)

    def median_ms(kind: bool) -> float:
        took = [-score for one in scored for score, is_right in one if is_right == kind]
        return round(statistics.median(took) * 1e3, 2)

    return {
        "trials": trials,
        "auc": round(auc, 4),
        "auc_low": round(low, 4),
        "auc_high": round(high, 4),
        "right_guess_ms_median": median_ms(True),
        "wrong_guess_ms_median": median_ms(False),
    }


async def ask(gateway: Address, key: str, prompt: str) -> float:
    """Sends a completion over a new connection, and returns the seconds from the request to the answer."""
    opening = asyncio.open_connection(*gateway, ssl=unverified_tls(), server_hostname="localhost")
    reader, writer = await asyncio.wait_for(opening, DEADLINE_S)
    # An attacker may send a salt of its own, such as the one that it sent before.
    text = json.dumps({"model": "m", "prompt": prompt, "cache_salt": "mine"})
    fields = f"host: localhost\r\nauthorization: Bearer {key}\r\ncontent-type: application/json"
    head = f"POST /v1/completions HTTP/1.1\r\n{fields}\r\ncontent-length: {len(text)}\r\n\r\n"
    began = time.monotonic()
    writer.write((head + text).encode())
    answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), DEADLINE_S)
    took_s = time.monotonic() - began
    writer.transport.abort()
    if not answer.startswith(b"HTTP/1.1 200 "):
        raise SystemExit(f"{answer!r}")
    return took_s


if __name__ == "__main__":
    main()
