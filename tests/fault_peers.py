#!/usr/bin/env python3
"""The peers of the gateway in gateway_faults.py, and the client of HTTP/1.1 that both scripts use.

usage: fault_peers.py model ADDRESS:PORT NAME | flood ADDRESS:PORT CERTIFICATE COUNT | download PORT BODY
Each peer is a process of its own, which can be killed and can have a network namespace of its own. It prints a line
when it is ready, and runs until it is killed.
"""

import asyncio
import contextlib
import dataclasses
import json
import re
import resource
import ssl
import sys
import time
from collections.abc import Callable, Coroutine, Mapping

# Nothing takes this long unless it hangs.
DEADLINE_S = 60.0
FLOOD_ADDRESS = "127.0.0.3"
CHAT = "/v1/chat/completions"

Address = tuple[str, int]
# The members of a chat's body.
Body = Mapping[str, object]


@dataclasses.dataclass
class Answer:
    """What arrived of an answer, and whether its own framing says that it is complete."""

    status: int = 0
    body: bytes = b""
    is_complete: bool = False
    closes: bool = False
    sent_at: float = 0.0
    ended_at: float = 0.0


class Connection:
    """One HTTP/1.1 connection of a client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @staticmethod
    async def open(
        address: Address, tls: ssl.SSLContext | None, source: str | None = None
    ) -> "Connection":
        """Connects, from the address `source` if there is one."""
        local = (source, 0) if source else None
        name = "localhost" if tls else None
        opening = asyncio.open_connection(*address, ssl=tls, server_hostname=name, local_addr=local)
        return Connection(*await asyncio.wait_for(opening, DEADLINE_S))

    def close(self) -> None:
        """Drops the connection."""
        self.writer.transport.abort()

    def read_certificate(self) -> bytes:
        """Returns the server's certificate."""
        certificate: bytes = self.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return certificate

    async def request(
        self, body: Body | None, on_piece: Callable[[], None] = lambda: None
    ) -> Answer:
        """Sends a chat, or without a body the request for the models, and reads the answer."""
        answer = Answer(sent_at=time.monotonic())
        # What has arrived until a failure is the answer.
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.TimeoutError):
            self.writer.write(render_request(body))
            await asyncio.wait_for(self.read_answer(answer, on_piece), DEADLINE_S)
        answer.ended_at = time.monotonic()
        return answer

    async def read_answer(self, answer: Answer, on_piece: Callable[[], None]) -> None:
        """Reads an answer to the end that its framing tells."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().lower()
        answer.status = int(head.split(" ")[1])
        answer.closes = "\r\nconnection: close\r\n" in head
        length = re.search(r"\r\ncontent-length: *([0-9]+)\r\n", head)
        missing = int(length[1]) if length else 0
        while True:
            if not length:
                missing = int(await self.reader.readuntil(b"\r\n"), 16) + 2
                if missing == 2:
                    await self.reader.readexactly(2)
                    break
            while missing > 0:
                piece = await self.reader.read(min(missing, 65_536))
                if not piece:
                    raise asyncio.IncompleteReadError(piece, missing)
                missing -= len(piece)
                answer.body += piece
                on_piece()
            if length:
                break
        answer.is_complete = True


def main() -> None:
    """Runs the peer that the arguments name."""
    peers: dict[str, Callable[..., Coroutine[None, None, None]]] = {
        "model": serve_model,
        "flood": flood_gateway,
        "download": download_answer,
    }
    asyncio.run(peers[sys.argv[1]](*sys.argv[2:]))


async def serve_model(listen: str, name: str) -> None:
    """Answers chats as their bodies demand."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                await answer_request(reader, writer, name)

    server = await asyncio.start_server(serve, *parse_address(listen))
    host, port = server.sockets[0].getsockname()[:2]
    print(json.dumps({"listen": f"{host}:{port}"}), flush=True)
    await server.serve_forever()


async def answer_request(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, name: str
) -> None:
    """Answers one request after `start_s`, with `frames` of `bytes` each `pause_s`, in chunks or with a length."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = re.search(r"\r\ncontent-length: *([0-9]+)\r\n", head)
    request = json.loads(await reader.readexactly(int(length[1]))) if length else {}
    await asyncio.sleep(request.get("start_s", 0))
    frames = request.get("frames", 0)
    if frames == 0:
        body = json.dumps({"object": "list", "data": [{"id": name, "object": "model"}]})
        writer.write(f"HTTP/1.1 200 OK\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode())
        await writer.drain()
        return
    frame = f"data: {name}\n".encode().ljust(request.get("bytes", 32), b" ") + b"\n\n"
    end = b"data: [DONE]\n\n"
    has_length = request.get("has_length", False)
    framing = f"content-length: {frames * len(frame) + len(end)}"
    writer.write(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
        + (framing if has_length else "transfer-encoding: chunked").encode()
        + b"\r\n\r\n"
    )
    for piece in [*[frame] * frames, end]:
        writer.write(piece if has_length else b"%x\r\n%b\r\n" % (len(piece), piece))
        await writer.drain()
        await asyncio.sleep(request["pause_s"])
    writer.write(b"" if has_length else b"0\r\n\r\n")
    await writer.drain()


async def flood_gateway(address: str, certificate: str, count: str) -> None:
    """Opens idle connections from one address, says so, and keeps them."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    tls = ssl.create_default_context(cafile=certificate)
    started, opened = time.monotonic(), []
    for _ in range(int(count)):
        opened.append(await Connection.open(parse_address(address), tls, FLOOD_ADDRESS))
    line = {"opened": len(opened), "seconds": time.monotonic() - started}
    print(json.dumps(line), flush=True)
    await asyncio.Event().wait()


async def download_answer(port: str, body: str) -> None:
    """Reads an answer of the gateway at the address that standard input names; says when it has begun."""
    print("{}", flush=True)
    host = (await asyncio.to_thread(sys.stdin.readline)).strip()
    connection = await Connection.open((host, int(port)), unverified_tls())
    begun = run_once(lambda: print("begun", flush=True))
    await connection.request(json.loads(body), begun)
    await asyncio.Event().wait()


def render_request(body: Body | None) -> bytes:
    """Returns the bytes of a chat, or without a body of the request for the models."""
    if body is None:
        return b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n"
    text = json.dumps(body)
    head = f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(text)}\r\n\r\n{text}".encode()


def unverified_tls() -> ssl.SSLContext:
    """Returns a client that accepts any certificate."""
    tls = ssl.create_default_context()
    tls.check_hostname = False
    tls.verify_mode = ssl.CERT_NONE
    return tls


def parse_address(text: str) -> Address:
    """Reads HOST:PORT."""
    host, port = text.rsplit(":", 1)
    return host, int(port)


def run_once(function: Callable[[], None]) -> Callable[[], None]:
    """Returns a function that calls another one the first time."""
    calls = iter([function])
    return lambda: next(calls, lambda: None)()


if __name__ == "__main__":
    main()
