"""Transports of httpx2 and httpx over attested connections, and clients that use them."""

from __future__ import annotations

import asyncio
import functools
import importlib
import json
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn

from confide._extension import native
from confide.errors import ReceiptError, TransportFault
from confide.verification import (
    Document,
    Verification,
    parse_document,
    read_optional,
    read_policy,
)

if TYPE_CHECKING:
    import httpx2

# What happens to receipts: `verify` those that a server gives, or `require` one of every answer to a POST.
Receipts = Literal["verify", "require"]

# What the native part calls when work in the background has ended: with its value, or with an exception.
OnEnd = Callable[[Any, BaseException | None], None]

# The longest body of a request, and of an answer whose receipt is verified.
BODY_BYTES_MAX = 64 * 1024 * 1024

# Options of the libraries that would take requests past the attested connections, or would be ignored.
_FOREIGN_OPTIONS = frozenset(
    "app cert http1 http2 limits mounts proxies proxy transport verify".split()
)


@dataclass(frozen=True)
class _ClientOptions:
    """Options of a client, as the native part reads them."""

    policy: str
    root: bytes | None
    collateral: bytes | None
    binding: str | None
    session_version: int | None
    via: str | None
    evidence_age_s: int
    max_connections: int


@dataclass(frozen=True)
class _WireRequest:
    """A request, as the native part reads it."""

    method: str
    host: str
    port: int
    target: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes
    connect_s: float | None
    pool_s: float | None
    read_s: float | None
    write_s: float | None


@dataclass
class AnswerReceipt:
    """The receipt of an answer; `verification` is set when the answer was read to its end and the receipt verified."""

    id: str
    verification: Verification | None = None


def http_client(
    *,
    policy: Document,
    root: Document | None = None,
    collateral: Document | None = None,
    binding: Literal["key", "session"] | None = None,
    session_version: Literal[1, 2, 3] | None = None,
    via: str | None = None,
    receipts: Receipts | None = None,
    evidence_age_s: int = 900,
    max_connections: int = 64,
    library: ModuleType | None = None,
    **options: Any,
) -> httpx2.Client:
    """A client that sends requests only to ends whose evidence the policy accepts.

    `policy` is the path of a policy, or its text as bytes. The other arguments are those of `confide connect`:
    `root` is trusted in addition to the policy's roots, `collateral` takes the place of the server's endorsements,
    `via` is the address of a tunnel. `options` are for the client itself, such as `timeout`.

    The client is one of `httpx2`, or of `library`, which may be `httpx`. It raises that library's exceptions where the
    network fails, `AttestationError` where evidence is refused, and `ReceiptError` where a receipt is.
    """
    client = _native_client(
        policy, root, collateral, binding, session_version, via, evidence_age_s, max_connections
    )
    bound = _bind(library or _default_library())
    transport = bound.transport(client, receipts)
    return _make_client(bound.library.Client, transport, options)


def async_http_client(
    *,
    policy: Document,
    root: Document | None = None,
    collateral: Document | None = None,
    binding: Literal["key", "session"] | None = None,
    session_version: Literal[1, 2, 3] | None = None,
    via: str | None = None,
    receipts: Receipts | None = None,
    evidence_age_s: int = 900,
    max_connections: int = 64,
    library: ModuleType | None = None,
    **options: Any,
) -> httpx2.AsyncClient:
    """The asynchronous twin of `http_client`, for asyncio."""
    client = _native_client(
        policy, root, collateral, binding, session_version, via, evidence_age_s, max_connections
    )
    bound = _bind(library or _default_library())
    transport = bound.async_transport(client, receipts)
    return _make_client(bound.library.AsyncClient, transport, options)


class _Library(NamedTuple):
    """An HTTP library with this package's transports for it."""

    library: ModuleType
    transport: Callable[[native.Client, Receipts | None], Any]
    async_transport: Callable[[native.Client, Receipts | None], Any]


class _Exchange:
    """A request that was sent, and the parts of its answer that are kept until the receipt is verified."""

    def __init__(
        self, library: Any, client: native.Client, request: _WireRequest, receipts: Receipts | None
    ) -> None:
        self.library = library
        self.client = client
        self.request = request
        self.receipts = receipts
        self.answer: native.Answer | None = None
        self.receipt: AnswerReceipt | None = None
        self.body = bytearray()
        self.is_closed = False

    def take_answer(self, answer: native.Answer) -> dict[str, Any]:
        """Keeps the answer; gives the arguments of the library's response."""
        self.answer = answer
        headers = answer.headers()
        extensions: dict[str, Any] = {
            "http_version": b"HTTP/1.1",
            "attestation": parse_document(answer.attestation),
        }
        receipt_id = next((value for name, value in headers if name == b"x-receipt-id"), None)
        if self.receipts and receipt_id is not None:
            self.receipt = AnswerReceipt(receipt_id.decode("latin-1"))
            extensions["receipt"] = self.receipt
        elif self.receipts == "require" and self.request.method == "POST" and answer.status < 400:
            answer.close()
            _refuse_receipt("the answer has no X-Receipt-Id: the gateway needs --receipts")
        return {"status_code": answer.status, "headers": headers, "extensions": extensions}

    def keep(self, piece: bytes) -> bytes:
        """Keeps a piece of the answer where its receipt is to be verified."""
        if self.receipt:
            self.body += piece
            if len(self.body) > BODY_BYTES_MAX:
                _refuse_receipt(
                    f"the answer is too long to verify: wanted at most {BODY_BYTES_MAX} bytes"
                )
        return piece

    def raise_fault(self, fault: TransportFault) -> NoReturn:
        """Raises the library's exception for a failure of the network."""
        raise getattr(self.library, fault.exception)(str(fault)) from fault


class _Pieces:
    """The body of an answer, read when it is asked for; the base of a library's `SyncByteStream`."""

    def __init__(self, exchange: _Exchange, answer: native.Answer) -> None:
        self._exchange = exchange
        self._answer = answer

    def __iter__(self) -> Iterator[bytes]:
        exchange = self._exchange
        try:
            while (piece := self._answer.read()) is not None:
                yield exchange.keep(piece)
        except TransportFault as fault:
            exchange.raise_fault(fault)
        self._verify_receipt()

    def close(self) -> None:
        exchange = self._exchange
        if exchange.is_closed:
            return
        exchange.is_closed = True
        try:
            rest = self._answer.read_rest()
        except TransportFault:
            rest = None
        self._answer.close()
        if rest is not None:
            exchange.keep(rest)
            self._verify_receipt()

    def _verify_receipt(self) -> None:
        exchange = self._exchange
        exchange.is_closed = True
        receipt = exchange.receipt
        if receipt is None or receipt.verification:
            return
        try:
            verdict = exchange.client.check_receipt(
                exchange.request, receipt.id, bytes(exchange.body)
            )
        except TransportFault as fault:
            exchange.raise_fault(fault)
        receipt.verification = parse_document(verdict)


class _AsyncPieces:
    """The body of an answer, read when it is asked for; the base of a library's `AsyncByteStream`."""

    def __init__(self, exchange: _Exchange, answer: native.Answer) -> None:
        self._exchange = exchange
        self._answer = answer

    async def __aiter__(self) -> AsyncIterator[bytes]:
        exchange = self._exchange
        try:
            while (piece := await _await_operation(self._answer.start_read)) is not None:
                yield exchange.keep(piece)
            receipt = exchange.receipt
            if receipt is not None:
                start = functools.partial(
                    exchange.client.start_check_receipt,
                    exchange.request,
                    receipt.id,
                    bytes(exchange.body),
                )
                receipt.verification = parse_document(await _await_operation(start))
        except TransportFault as fault:
            exchange.raise_fault(fault)

    async def aclose(self) -> None:
        self._answer.close()


class _Transport:
    """Sends requests over attested connections; the base of a library's `BaseTransport`."""

    library: Any
    pieces: Callable[[_Exchange, native.Answer], Any]

    def __init__(self, client: native.Client, receipts: Receipts | None) -> None:
        self._client = client
        self._receipts = receipts

    def handle_request(self, request: Any) -> Any:
        body = bytearray()
        for piece in request.stream:
            _append(body, piece)
        wire = _to_wire(self.library, request, bytes(body))
        exchange = _Exchange(self.library, self._client, wire, self._receipts)
        try:
            answer = self._client.send(wire)
        except TransportFault as fault:
            exchange.raise_fault(fault)
        head = exchange.take_answer(answer)
        return self.library.Response(stream=self.pieces(exchange, answer), **head)

    def close(self) -> None:
        self._client.close()


class _AsyncTransport:
    """Sends requests over attested connections; the base of a library's `AsyncBaseTransport`."""

    library: Any
    pieces: Callable[[_Exchange, native.Answer], Any]

    def __init__(self, client: native.Client, receipts: Receipts | None) -> None:
        self._client = client
        self._receipts = receipts

    async def handle_async_request(self, request: Any) -> Any:
        body = bytearray()
        async for piece in request.stream:
            _append(body, piece)
        wire = _to_wire(self.library, request, bytes(body))
        exchange = _Exchange(self.library, self._client, wire, self._receipts)
        try:
            answer = await _await_operation(functools.partial(self._client.start_send, wire))
        except TransportFault as fault:
            exchange.raise_fault(fault)
        head = exchange.take_answer(answer)
        return self.library.Response(stream=self.pieces(exchange, answer), **head)

    async def aclose(self) -> None:
        self._client.close()


async def _await_operation(start: Callable[[OnEnd], native.Operation]) -> Any:
    """Waits for work in the background; it is stopped where the task is cancelled."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def settle(value: Any, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)

    def on_end(value: Any, error: BaseException | None) -> None:
        loop.call_soon_threadsafe(settle, value, error)

    operation = start(on_end)
    try:
        return await future
    finally:
        operation.cancel()


def _native_client(
    policy: Document,
    root: Document | None,
    collateral: Document | None,
    binding: str | None,
    session_version: int | None,
    via: str | None,
    evidence_age_s: int,
    max_connections: int,
) -> native.Client:
    options = _ClientOptions(
        policy=read_policy(policy),
        root=read_optional(root),
        collateral=read_optional(collateral),
        binding=binding,
        session_version=session_version,
        via=via,
        evidence_age_s=evidence_age_s,
        max_connections=max_connections,
    )
    return native.Client(options)


def _make_client(client: Any, transport: Any, options: dict[str, Any]) -> Any:
    """A client that sends everything through the transport."""
    for name in options:
        if name in _FOREIGN_OPTIONS:
            raise TypeError(
                f"{name} does not apply to an attested client, which has connections of its own"
            )
    return client(transport=transport, **{"trust_env": False, **options})


def _default_library() -> ModuleType:
    """The library that `openai` uses since version 3, else the one before it."""
    try:
        return importlib.import_module("httpx2")
    except ImportError:
        return importlib.import_module("httpx")


@functools.cache
def _bind(library: ModuleType) -> _Library:
    """The transports as classes of a library, which checks what they are."""
    pieces = type("Pieces", (_Pieces, library.SyncByteStream), {})
    async_pieces = type("AsyncPieces", (_AsyncPieces, library.AsyncByteStream), {})
    transport = type(
        "AttestedTransport",
        (_Transport, library.BaseTransport),
        {"library": library, "pieces": pieces},
    )
    async_transport = type(
        "AsyncAttestedTransport",
        (_AsyncTransport, library.AsyncBaseTransport),
        {"library": library, "pieces": async_pieces},
    )
    return _Library(library, transport, async_transport)


def _to_wire(library: Any, request: Any, body: bytes) -> _WireRequest:
    url = request.url
    if url.scheme != "https":
        raise library.UnsupportedProtocol(
            f"an attested end has an address with https://, got {url.scheme}://", request=request
        )
    timeout = request.extensions.get("timeout") or {}
    return _WireRequest(
        method=request.method,
        host=url.raw_host.decode("ascii"),
        port=url.port or 443,
        target=url.raw_path,
        headers=list(request.headers.raw),
        body=body,
        connect_s=timeout.get("connect"),
        pool_s=timeout.get("pool"),
        read_s=timeout.get("read"),
        write_s=timeout.get("write"),
    )


def _append(body: bytearray, piece: bytes) -> None:
    body += piece
    if len(body) > BODY_BYTES_MAX:
        raise ValueError(f"the request is too long: wanted at most {BODY_BYTES_MAX} bytes")


def _refuse_receipt(reason: str) -> NoReturn:
    document = {"outcome": "error", "scope": "platform", "reason": reason, "checks": []}
    raise ReceiptError(reason, check="receipt", hint=None, document=json.dumps(document))
