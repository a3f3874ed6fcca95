"""The adapter host's end of a connection, from its first frame to its last: docs/blind-protocol.md over a socket."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading

from .._extension import native
from ..cuda import ring
from .errors import BlindError, DeadlineExceeded, ProtocolError, Refusal, StreamEnded
from .frames import (
    BLOCK_DEADLINE_S,
    HELLO_DEADLINE_S,
    IDLE_DEADLINE_S,
    FrameStream,
    Message,
    Side,
)
from .host import AdapterHost, BatchPreparation, HostSession
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
            self.host.write_counts()


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
            self.send(native.Farewell(), goodbye)
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

    def send(self, message: Message, request: int) -> None:
        """Writes a message; the preparing thread writes too."""
        with self._writing:
            self.frames.send(message, request)

    def _send_final_refusal(self, refusal: Refusal) -> None:
        # The id 0 belongs to no request: nothing comes after it.
        with contextlib.suppress(ProtocolError):
            self.send(refusal, 0)

    def _open_session(self) -> HostSession:
        request, message = self.frames.receive("hello", HELLO_DEADLINE_S)
        if isinstance(message, native.Attach):
            session, connections = self.host.attach_connection(message)
            self.send(native.AttachAnswer(connections), request)
            return session
        if not isinstance(message, native.Hello):
            raise ProtocolError(f"frame: wanted hello or attach, got {type(message).__name__}")
        session, welcome = self.host.open_session(message, self.peer)
        try:
            self.send(welcome, request)
            for index, product in enumerate(session.adapter.products):
                budget, left = self.host.budget(session, index)
                self.send(native.GroupTerms(budget, left, product.terms_bytes), request)
        except ProtocolError:
            self.host.record_disconnect(session)
            raise
        return session

    def _serve_requests(self, session: HostSession) -> int:
        """Answers requests until a goodbye; gives its id."""
        while True:
            request, message = self.frames.receive("a request", IDLE_DEADLINE_S)
            if request == 0:
                raise Refusal("malformed")
            try:
                if isinstance(message, native.MaskedRequest):
                    self._answer_masked_request(session, request, message)
                elif isinstance(message, native.PrepareRequest):
                    self._prepare(session, request, message)
                elif isinstance(message, native.CiphertextBlock):
                    self._take_block(request, message)
                elif isinstance(message, native.CiphertextRequest):
                    raise Refusal("not-offered")
                elif isinstance(message, native.Goodbye):
                    if message.session:
                        self.host.end_session(session)
                    return request
                else:
                    raise ProtocolError(f"frame: wanted a request, got {type(message).__name__}")
            except Refusal as refusal:
                if refusal.name in _ENDS:
                    raise
                self._audit_error(session, refusal)
                self.send(refusal, request)

    def _answer_masked_request(
        self, session: HostSession, request: int, asked: native.MaskedRequest
    ) -> None:
        input_index = self.host.input_index(session, asked.layer, asked.source)
        terms = session.adapter.products[input_index].terms
        words = unpack(asked.packed, terms.bits, asked.vectors, terms.columns)
        if words is None:
            raise Refusal("malformed")
        answers, left = self.host.answer_vectors(session, input_index, asked.counter, words)
        self.send(native.MaskedAnswer(left, asked.vectors, pack(answers, terms.bits)), request)

    def _prepare(self, session: HostSession, request: int, asked: native.PrepareRequest) -> None:
        if self._upload is not None and not self._upload.ended:
            raise Refusal("busy")
        input_index = self.host.input_index(session, asked.layer, asked.source)
        if not self.host.room.acquire(session.peer):
            raise Refusal("busy")
        try:
            preparing = self.host.begin_batch(session, input_index)
        except BaseException:
            self.host.room.release(session.peer)
            raise
        self._upload = BatchUpload(self, preparing, request)

    def _take_block(self, request: int, block: native.CiphertextBlock) -> None:
        if self._upload is None or self._upload.request != request:
            raise Refusal("malformed")
        self._upload.put_block(block)

    def _audit_error(self, session: HostSession, error: BlindError) -> None:
        if isinstance(error, StreamEnded):
            self.host.log("lost", session=session)
            return
        if isinstance(error, Refusal):
            name = error.name
        else:
            name = "deadline" if isinstance(error, DeadlineExceeded) else "malformed"
        # Where the session has ended, the line of its end says why.
        if name != "no-session":
            self.host.log("refused", session=session, refusal=name)


class BatchUpload:
    """A batch on its way in: blocks go through a bounded queue to a thread of their own."""

    def __init__(self, connection: Connection, preparing: BatchPreparation, request: int) -> None:
        self.connection, self.preparing, self.request = connection, preparing, request
        self.ended, self._next, self._holds_room = False, 0, True
        self._blocks: queue.Queue[native.CiphertextBlock | None] = queue.Queue(WINDOW)
        threading.Thread(target=self._run, name="confide-upload", daemon=True).start()

    def put_block(self, block: native.CiphertextBlock) -> None:
        """Hands a block in; one beyond the credit or out of order ends the connection."""
        if self.ended:
            # It was refused already, and blocks were still on their way.
            return
        if block.first != self._next:
            raise Refusal("malformed")
        self._next += block.count
        try:
            self._blocks.put_nowait(block)
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
                    self.connection.send(refusal, self.request)

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
            count, raw = block.count, block.ciphertexts
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
            rows = native.PreparedRows(first, len(part), b"".join(part))
            self.connection.send(rows, self.request)

    def _grant_credit(self, blocks: int) -> None:
        self.connection.send(native.BlockCredit(blocks, self.preparing.batch), self.request)

    def _end(self) -> None:
        """Makes room for the next preparation, once."""
        self.ended = True
        if self._holds_room:
            self._holds_room = False
            self.connection.host.room.release(self.preparing.session.peer)
