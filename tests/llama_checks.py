#!/usr/bin/env python3
"""Measured weights and receipts in front of a real llama.cpp server, over real sockets.

usage: llama_checks.py BINARY
Every promise is printed with what came out; status 1 if one is broken. All evidence is simulated.
"""

import contextlib
import hashlib
import http.client
import json
import pathlib
import re
import shutil
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import IO, Any

HERE = pathlib.Path(__file__).resolve().parent
DEADLINE_S = 60
ANY_PORT = "127.0.0.1:0"


def main() -> int:
    """Runs all checks; the last one swaps the weights, after which nothing is served."""
    broken = 0
    with tempfile.TemporaryDirectory() as folder, Site(sys.argv[1], pathlib.Path(folder)) as site:
        for check in (
            check_answer,
            check_stream,
            check_changed_receipt,
            check_other_session,
            check_other_weights,
            check_replayed_body,
            check_cut_stream,
            check_swapped_file,
        ):
            outcome = check(site)
            broken += outcome is not None
            print(
                f"{'broken' if outcome else 'held'}: {check.__doc__}{f': {outcome}' if outcome else ''}"
            )
    return 1 if broken else 0


class Site(contextlib.ExitStack):
    """A model, llama.cpp's server, a gateway that measures the weights, and an attested client."""

    def __init__(self, binary: str, folder: pathlib.Path) -> None:
        super().__init__()
        self.binary, self.folder = binary, folder
        self.weights = folder / "random.gguf"
        make_model(self.weights, 1)
        self.run("attest", "--simulate", "tdx", "--out", folder / "tee")
        self.policy = folder / "policy.toml"
        self.llama, self.upstream = self.start_llama()
        self.gateway, self.connect = self.start_gateway()

    def start_llama(self) -> tuple[subprocess.Popen[str], str]:
        command = [sys.executable, str(HERE / "llama_server.py"), "serve", str(self.weights)]
        with open(self.folder / "llama.log", "a") as log:
            server = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        self.callback(end, server)
        assert server.stdout is not None
        # llama.cpp may write to the standard output as well.
        address = next(line.strip() for line in server.stdout if line.startswith("http://"))
        return server, address

    def start_gateway(self) -> tuple[str, str]:
        """Returns the addresses of a new gateway and of a client whose policy demands these weights."""
        ready = self.start(
            "gateway", "--listen", ANY_PORT, "--upstream", self.upstream, "--weights", self.weights,
            "--simulate", self.folder / "tee", "--receipts",
            "--encrypted-bodies",
        )  # fmt: skip
        self.digest = hashlib.sha256(self.weights.read_bytes()).hexdigest()
        assert ready["weights"] == {"sha256": self.digest, "source": "hashed at start"}, ready
        self.write_policy(self.policy, self.digest)
        self.run("policy", "pin", self.policy, "--digest", ready["config_digest"])
        gateway = f"https://{ready['listen']}"
        connect = self.start("connect", gateway, "--policy", self.policy, "--listen", ANY_PORT)
        return gateway, connect["listen"]

    def write_policy(self, path: pathlib.Path, digest: str) -> None:
        source = self.policy if self.policy.exists() else self.folder / "tee" / "policy.toml"
        lines = source.read_text().splitlines()
        others = [line for line in lines if not line.startswith("weights =")]
        path.write_text("\n".join([f'weights = "{digest}"', *others]) + "\n")

    def start(self, *arguments: object) -> Any:
        log = self.enter_context(open(self.folder / "log", "a"))
        command = [self.binary, *map(str, arguments)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        self.callback(end, process)
        assert process.stdout is not None
        return json.loads(process.stdout.readline())

    def try_run(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        command = [self.binary, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)

    def run(self, *arguments: object) -> None:
        done = self.try_run(*arguments)
        assert done.returncode == 0, done.stderr

    def ask(self, **members: object) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection(self.connect, timeout=DEADLINE_S)
        self.callback(connection.close)
        self.body = json.dumps(
            {"model": "random", "messages": [{"role": "user", "content": "hi"}], **members}
        )
        connection.request(
            "POST", "/v1/chat/completions", self.body, {"Content-Type": "application/json"}
        )
        return connection.getresponse()

    def get(self, path: str) -> bytes:
        connection = http.client.HTTPConnection(self.connect, timeout=DEADLINE_S)
        with contextlib.closing(connection):
            connection.request("GET", path)
            answer = connection.getresponse()
            document = answer.read()
            assert answer.status == 200, (path, document)
            return document

    def save(self, name: str, content: bytes) -> pathlib.Path:
        path = self.folder / name
        path.write_bytes(content)
        return path

    def keep_receipt(self, answer: http.client.HTTPResponse, body: bytes) -> None:
        """Fetches receipt and report of an answer, and keeps them with the texts."""
        identifier = answer.headers["X-Receipt-Id"]
        self.save("receipt", self.get(f"/v1/aci/receipts/{identifier}"))
        self.save("report", self.get("/v1/aci/attestation"))
        self.save("request", self.body.encode())
        self.save("response", body)

    def judge(self, policy: pathlib.Path | None = None) -> Any:
        done = self.try_run(
            "verify", "receipt", self.folder / "receipt", "--report", self.folder / "report", "--json",
            "--policy", policy or self.policy, "--request", self.folder / "request",
            "--response", self.folder / "response",
        )  # fmt: skip
        return json.loads(done.stdout)


def make_model(path: pathlib.Path, seed: int) -> None:
    script = HERE / "llama_server.py"
    subprocess.run([sys.executable, script, "make", path, str(seed)], check=True)


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    for stream in streams(process):
        stream.close()


def streams(process: subprocess.Popen[str]) -> Iterator[IO[str]]:
    yield from (stream for stream in (process.stdin, process.stdout) if stream is not None)


def expect(verdict: Any, refused: str | None) -> str | None:
    return None if verdict["refused"] == refused else f"{verdict['refused']}: {verdict['reason']}"


def check_answer(site: Site) -> str | None:
    """an answer's receipt names the measured weights"""
    answer = site.ask(max_tokens=4)
    body = answer.read()
    site.keep_receipt(answer, body)
    verdict = site.judge()
    weights = [check for check in verdict["checks"] if check["name"] == "weights"]
    if [check["outcome"] for check in weights] != ["passed"]:
        return f"{answer.status} {weights}"
    return expect(verdict, None)


def check_stream(site: Site) -> str | None:
    """so does the receipt of a stream"""
    answer = site.ask(max_tokens=32, stream=True)
    body = answer.read()
    if not body.rstrip().endswith(b"data: [DONE]"):
        return repr(body[-200:])
    site.keep_receipt(answer, body)
    return expect(site.judge(), None)


def check_changed_receipt(site: Site) -> str | None:
    """a receipt with one byte changed is refused as `signature`"""
    receipt = (site.folder / "receipt").read_bytes()
    site.save("receipt", receipt.replace(b'"model":"', b'"model":"X', 1))
    outcome = expect(site.judge(), "signature")
    site.save("receipt", receipt)
    return outcome


def check_other_session(site: Site) -> str | None:
    """a receipt of another gateway's session is refused as `other_keyset`"""
    before = site.connect
    _, site.connect = site.start_gateway()
    site.save("report", site.get("/v1/aci/attestation"))
    site.connect = before
    return expect(site.judge(), "other_keyset")


def check_other_weights(site: Site) -> str | None:
    """a policy with the digest of other weights opens no connection"""
    other = site.folder / "other.toml"
    site.write_policy(other, "ab" * 32)
    refused = site.try_run("connect", site.gateway, "--policy", other, "--listen", ANY_PORT)
    is_named = refused.returncode == 1 and "weights does not match" in refused.stderr
    return None if is_named else f"{refused.returncode} {refused.stderr}"


def check_replayed_body(site: Site) -> str | None:
    """an encrypted body that a proxy sends again is refused as `encrypted_body_replayed`"""
    proxy = RecordingProxy(site.connect)
    site.callback(proxy.shutdown)
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    roots = site.folder / "proxy.pem"
    front = site.start(
        "gateway", "--listen", ANY_PORT, "--upstream", proxy.url, "--binding", "none",
        "--certificate-out", roots, "--route", "/v1/aci/**", "--upstream-wait-s", "0",
    )  # fmt: skip
    behind, encrypted = site.connect, site.start(
        "connect", f"https://{front['listen']}", "--encrypted-bodies", "--policy", site.policy,
        "--dangerous-visible-heads", "--tls-ca", roots, "--listen", ANY_PORT,
    )  # fmt: skip
    site.connect = encrypted["listen"]
    answer = site.ask(max_tokens=4)
    body = answer.read()
    site.connect = behind
    if answer.status != 200 or b"choices" not in body:
        return f"{answer.status} {body!r}"
    [request] = [request for request in proxy.requests if request.startswith(b"POST ")]
    if site.body.encode() in request:
        return "the proxy can read the request"
    again = forward(site.connect, request)
    is_refused = again.startswith(b"HTTP/1.1 400 ") and b"encrypted_body_replayed" in again
    return None if is_refused else repr(again[:500])


class RecordingProxy(socketserver.ThreadingTCPServer):
    """Passes requests to an address, each on a connection of its own, and keeps their bytes."""

    daemon_threads = True

    def __init__(self, upstream: str) -> None:
        self.upstream = upstream
        self.requests: list[bytes] = []
        super().__init__(("127.0.0.1", 0), RecordingHandler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class RecordingHandler(socketserver.StreamRequestHandler):
    server: RecordingProxy

    def handle(self) -> None:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            line = self.rfile.readline(65_536)
            if not line:
                return
            head += line
        # The front would pin the model, and ask for it on each connection.
        if head.startswith(b"GET /v1/models"):
            self.wfile.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
            return
        body = b""
        if b"\r\ntransfer-encoding: chunked" in head.lower():
            while not body.endswith(b"0\r\n\r\n"):
                body += self.rfile.read1(65_536)
        elif length := re.search(rb"(?i)\r\ncontent-length: *(\d+)", head):
            body = self.rfile.read(int(length[1]))
        self.server.requests.append(head + body)
        self.wfile.write(forward(self.server.upstream, head + body))


def forward(address: str, request: bytes) -> bytes:
    """Sends a request on a connection of its own, and reads the answer to the end of the connection."""
    line, rest = request.split(b"\r\n", 1)
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=DEADLINE_S) as stream:
        stream.sendall(line + b"\r\nconnection: close\r\n" + rest)
        answer = b""
        while piece := stream.recv(65_536):
            answer += piece
        return answer


def check_cut_stream(site: Site) -> str | None:
    """a stream that llama.cpp did not end is no whole answer, and its receipt says that it was cut"""
    answer = site.ask(max_tokens=1500, stream=True)
    body = answer.read1(65_536)
    site.llama.kill()
    try:
        while piece := answer.read1(65_536):
            body += piece
        return f"it ended like a whole answer: {body[-100:]!r}"
    except (http.client.IncompleteRead, ConnectionError):
        pass
    site.llama.wait()
    # A server on the same port again, with the same file.
    for _ in range(3):
        time.sleep(0.2)
    site.keep_receipt(answer, body)
    verdict = site.judge()
    if verdict["answer_cut"] is not True:
        return f"answer_cut is {verdict['answer_cut']}, refused {verdict['refused']}"
    return None


def check_swapped_file(site: Site) -> str | None:
    """a swapped weight file closes every session, and the log names the file"""
    site.llama, site.upstream = site.start_llama()
    site.gateway, site.connect = site.start_gateway()
    if site.ask(max_tokens=4).read() == b"":
        return "no answer before the swap"
    other = site.folder / "other.gguf"
    make_model(other, 2)
    shutil.copyfile(other, site.weights)
    until = time.monotonic() + DEADLINE_S
    while time.monotonic() < until:
        try:
            if site.ask(max_tokens=4).status != 200:
                break
        except (ConnectionError, http.client.HTTPException):
            break
        time.sleep(0.1)
    else:
        return "it still answers"
    log = (site.folder / "log").read_text()
    is_named = "random.gguf has changed" in log
    return None if is_named else log[-500:]


if __name__ == "__main__":
    sys.exit(main())
