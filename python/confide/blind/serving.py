"""The adapter host's end of a connection, from its first frame to its last: docs/blind-protocol.md over a socket."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading

from ..cuda import ring
from .errors import BlindError, DeadlineExceeded, FieldError, ProtocolError, Refusal, StreamEnded
from .frames import (
    BLOCK_DEADLINE_S,
    HELLO_DEADLINE_S,
    IDLE_DEADLINE_S,
    FrameKind,
    FrameStream,
    Side,
)
from .host import AdapterHost, BatchPreparation, HostSession
from .messages import (
    Attach,
    Hello,
    decode_apply,
    decode_part,
    decode_prepare,
    encode_error,
    encode_input_terms,
    encode_part,
    encode_products,
)
from .pack import pack, unpack
from .peers import peer_address_block

CONNECTIONS_OF_PROGRAM_MAX = 1024
WINDOW = 4
ANSWER_BYTES = 512 * 1024
_ENDS = {"malformed", "stopping", "no-session"}
_EXPIRE_EVERY_S = 10.0


class Server:
    """Accepts key holders on a listening socket; a thread for each connection."""

    def __init__(self, host: AdapterHost, listener: socket.socket) -> None:
        self.host, self.listener = host, listener
        self._room = threading.BoundedSemaphore(CONNECTIONS_OF_PROGRAM_MAX)
        self._open: set[Connection] = set()
        self._lock, self.stopping = threading.Lock(), threading.Event()
        self._sweeper = threading.Thread(
            target=self._forget_expired_until_stop, name="confide-expire", daemon=True
        )

    def run(self) -> None:
        """Serves until `stop` is called."""
        self._sweeper.start()
        self.listener.settimeout(0.5)
        while not self.stopping.is_set():
            try:
                stream, address = self.listener.accept()
            except TimeoutError:
                continue
            except OSError:
                break
            if not self._room.acquire(blocking=False):
                stream.close()
                continue
            connection = Connection(
                self, stream, peer_address_block(address[0] if isinstance(address, tuple) else "")
            )
            with self._lock:
                self._open.add(connection)
            threading.Thread(
                target=self._serve, args=(connection,), name="confide-blind", daemon=True
            ).start()

    def stop(self) -> None:
        """Ends every connection."""
        self.stopping.set()
        self.listener.close()
        with self._lock:
            for connection in self._open:
                connection.stop()

    def _serve(self, connection: Connection) -> None:
        try:
            connection.run()
        finally:
            with self._lock:
                self._open.discard(connection)
            self._room.release()

    def _forget_expired_until_stop(self) -> None:
        while not self.stopping.wait(_EXPIRE_EVERY_S):
            self.host.forget_expired_sessions()
            getattr(self.host.log, "flush", lambda: None)()


class Connection:
    """One key holder's connection."""

    def __init__(self, server: Server, stream: socket.socket, peer: str) -> None:
        self.host, self.server, self.peer = server.host, server, peer
        self.frames = FrameStream(stream, Side.HOST)
        self._writing = threading.Lock()
        self._upload: BatchUpload | None = None

    def run(self) -> None:
        """Serves until either side ends it."""
        goodbye = None
        try:
            session = self._open_session()
            try:
                goodbye = self._serve_requests(session)
            except BlindError as error:
                self._audit_error(session, error)
                raise
            finally:
                if self._upload is not None:
                    self._upload.abandon()
                self.host.record_disconnect(session)
            self.send(FrameKind.FAREWELL, goodbye)
        except StreamEnded:
            pass
        except Refusal as refusal:
            self._send_final_refusal(refusal)
        except DeadlineExceeded:
            self._send_final_refusal(Refusal("deadline"))
        except ProtocolError as error:
            if not str(error).startswith("stream:"):
                self._send_final_refusal(Refusal("malformed"))
        except Exception:
            self._send_final_refusal(Refusal("internal"))
            raise
        finally:
            self.frames.close()

    def stop(self) -> None:
        """Ends the connection from another thread."""
        self._send_final_refusal(Refusal("stopping"))
        self.frames.close()

    def send(self, kind: FrameKind, request: int, payload: bytes = b"") -> None:
        """Writes a frame; the preparing thread writes too."""
        with self._writing:
            self.frames.send(kind, request, payload)

    def _send_final_refusal(self, refusal: Refusal) -> None:
        # The id 0 belongs to no request: nothing comes after it.
        with contextlib.suppress(ProtocolError):
            self.send(FrameKind.ERROR, 0, encode_error(refusal))

    def _open_session(self) -> HostSession:
        frame = self.frames.receive("hello", HELLO_DEADLINE_S)
        if frame.kind is FrameKind.ATTACH:
            session, connections = self.host.attach_connection(Attach.decode(frame.payload))
            self.send(FrameKind.ATTACHED, frame.id, connections.to_bytes(2, "little"))
            return session
        if frame.kind is not FrameKind.HELLO:
            raise ProtocolError(f"frame: wanted hello or attach, got {frame.kind.name.lower()}")
        session, welcome = self.host.open_session(Hello.decode(frame.payload), self.peer)
        try:
            self.send(FrameKind.WELCOME, frame.id, welcome.encode())
            for index, product in enumerate(session.adapter.products):
                budget, left = self.host.budget(session, index)
                self.send(
                    FrameKind.TERMS, frame.id, encode_input_terms(budget, left, product.terms_bytes)
                )
        except ProtocolError:
            self.host.record_disconnect(session)
            raise
        return session

    def _serve_requests(self, session: HostSession) -> int:
        """Answers requests until a goodbye; gives its id."""
        while True:
            frame = self.frames.receive("a request", IDLE_DEADLINE_S)
            if frame.id == 0:
                raise Refusal("malformed")
            try:
                if frame.kind is FrameKind.APPLY:
                    self._answer_apply(session, frame.id, frame.payload)
                elif frame.kind is FrameKind.PREPARE:
                    self._prepare(session, frame.id, frame.payload)
                elif frame.kind is FrameKind.BLOCK:
                    self._take_block(frame.id, frame.payload)
                elif frame.kind is FrameKind.DIRECT:
                    raise Refusal("not-offered")
                elif frame.kind is FrameKind.GOODBYE:
                    if len(frame.payload) != 1 or frame.payload[0] > 1:
                        raise FieldError("goodbye", "session", "0 or 1")
                    if frame.payload[0]:
                        self.host.end_session(session)
                    return frame.id
                else:
                    raise ProtocolError(f"frame: wanted a request, got {frame.kind.name.lower()}")
            except Refusal as refusal:
                if refusal.name in _ENDS:
                    raise
                self._audit_error(session, refusal)
                self.send(FrameKind.ERROR, frame.id, encode_error(refusal))

    def _answer_apply(self, session: HostSession, request: int, payload: bytes) -> None:
        layer, source, counter, vectors, packed = decode_apply(payload)
        input_index = self.host.input_index(session, layer, source)
        terms = session.adapter.products[input_index].terms
        words = unpack(packed, terms.bits, vectors, terms.columns)
        if words is None:
            raise Refusal("malformed")
        answers, left = self.host.answer_vectors(session, input_index, counter, words)
        self.send(
            FrameKind.PRODUCTS, request, encode_products(left, vectors, pack(answers, terms.bits))
        )
        self.host.log("answered", session=session, layer=layer, source=source, vectors=vectors)

    def _prepare(self, session: HostSession, request: int, payload: bytes) -> None:
        if self._upload is not None and not self._upload.ended:
            raise Refusal("busy")
        input_index = self.host.input_index(session, *decode_prepare(payload))
        if not self.host.room.acquire(session.peer):
            raise Refusal("busy")
        try:
            preparing = self.host.begin_batch(session, input_index)
        except BaseException:
            self.host.room.release(session.peer)
            raise
        self._upload = BatchUpload(self, preparing, request)

    def _take_block(self, request: int, payload: bytes) -> None:
        first, count, ciphertexts = decode_part("block", payload)
        if self._upload is None or self._upload.request != request:
            raise Refusal("malformed")
        self._upload.put_block(first, count, ciphertexts)

    def _audit_error(self, session: HostSession, error: BlindError) -> None:
        if isinstance(error, StreamEnded):
            self.host.log("lost", session=session)
        elif isinstance(error, Refusal):
            self.host.log("refused", session=session, refusal=error.name)
        else:
            self.host.log(
                "refused",
                session=session,
                refusal="deadline" if isinstance(error, DeadlineExceeded) else "malformed",
            )


class BatchUpload:
    """A batch on its way in: blocks go through a bounded queue to a thread of their own."""

    def __init__(self, connection: Connection, preparing: BatchPreparation, request: int) -> None:
        self.connection, self.preparing, self.request = connection, preparing, request
        self.ended, self._next, self._holds_room = False, 0, True
        self._blocks: queue.Queue[tuple[int, bytes] | None] = queue.Queue(WINDOW)
        threading.Thread(target=self._run, name="confide-upload", daemon=True).start()

    def put_block(self, first: int, count: int, ciphertexts: bytes) -> None:
        """Hands a block in; one beyond the credit or out of order ends the connection."""
        if self.ended:
            # It was refused already, and blocks were still on their way.
            return
        if first != self._next:
            raise Refusal("malformed")
        self._next += count
        try:
            self._blocks.put_nowait((count, ciphertexts))
        except queue.Full:
            raise Refusal("malformed") from None

    def abandon(self) -> None:
        """Gives up a batch that is not whole, since the connection ended."""
        self.ended = True
        with contextlib.suppress(queue.Full):
            self._blocks.put_nowait(None)

    def _run(self) -> None:
        refusal = None
        try:
            self._work()
        except Refusal as error:
            refusal = error
        except ProtocolError:
            pass
        except Exception:
            refusal = Refusal("internal")
            raise
        finally:
            self._end()
            if refusal is not None:
                self.connection._audit_error(self.preparing.session, refusal)
                with contextlib.suppress(ProtocolError):
                    self.connection.send(FrameKind.ERROR, self.request, encode_error(refusal))

    def _work(self) -> None:
        host, columns = self.connection.host, self.preparing.product.terms.columns
        self._grant_credit(WINDOW)
        while self.preparing.pushed < columns:
            try:
                block = self._blocks.get(timeout=BLOCK_DEADLINE_S)
            except queue.Empty:
                raise Refusal("deadline") from None
            if block is None or self.ended:
                return
            count, raw = block
            length = len(raw) // count
            try:
                forms = [raw[at * length : (at + 1) * length] for at in range(count)]
                with host.turn:
                    self.preparing.push(
                        ring.SeededCiphertexts.from_bytes(host.context, forms), count
                    )
            except ValueError as error:
                raise Refusal("malformed") from error
            if self.preparing.pushed < columns:
                self._grant_credit(1)
        with host.turn:
            answers = self.preparing.finish().to_wire_forms()
        terms = self.preparing.product.terms
        host.log(
            "prepared",
            session=self.preparing.session,
            layer=terms.layer,
            source=terms.source,
            batch=self.preparing.batch,
            vectors=host.context.n,
        )
        at_once = max(ANSWER_BYTES // len(answers[0]), 1)
        for first in range(0, len(answers), at_once):
            part = answers[first : first + at_once]
            if first + at_once >= len(answers):
                # Before the last frame: the key holder that reads it may ask for the next batch at once.
                self._end()
            self.connection.send(
                FrameKind.PREPARED, self.request, encode_part(first, len(part), b"".join(part))
            )

    def _grant_credit(self, blocks: int) -> None:
        credit = blocks.to_bytes(2, "little") + self.preparing.batch.to_bytes(8, "little")
        self.connection.send(FrameKind.CREDIT, self.request, credit)

    def _end(self) -> None:
        """Makes room for the next preparation, once."""
        self.ended = True
        if self._holds_room:
            self._holds_room = False
            self.connection.host.room.release(self.preparing.session.peer)
