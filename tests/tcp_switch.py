"""A TCP relay whose far end can be replaced while connections are open: the network between a client and its host."""

import contextlib
import re
import socket
import threading

PIECE_BYTES = 64 * 1024
DIAL_S = 10
# A TLS ClientHello is shorter, and what follows it is encrypted.
OPENING_BYTES = 8 * 1024


class TcpSwitch:
    """Relays each connection to the address that it leads to just now."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.target = 0
        # Connections since the switch leads to its target.
        self.connections = 0
        self.lock = threading.Lock()
        self.links: list[Link] = []
        self.openings: list[bytearray] = []
        self.accepting = threading.Thread(target=self._accept, daemon=True)
        self.accepting.start()

    def lead_to(self, port: int) -> None:
        """Leads new connections to this port of 127.0.0.1."""
        with self.lock:
            self.target = port
            self.connections = 0
            self.openings.clear()

    def cut(self) -> None:
        """Ends the open connections, as a host does that goes away."""
        with self.lock:
            for link in self.links:
                link.close()
            self.links.clear()

    def splice(self) -> None:
        """Leads the open connections to the target as well: their clients notice nothing of it."""
        with self.lock:
            self._forget_ended()
            for link in self.links:
                link.replace_far_end(self.target)

    def read_offered_versions(self) -> list[set[int]]:
        """The versions of session binding that the client has offered in each connection to the target.

        TLS sends the names of protocols in clear in its first message.
        """
        with self.lock:
            openings = [bytes(opening) for opening in self.openings]
        found = [re.findall(rb"confide-session/([0-9])", opening) for opening in openings]
        return [{int(version) for version in versions} for versions in found]

    def close(self) -> None:
        """Ends everything."""
        end(self.listener)
        self.accepting.join(DIAL_S)
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            self._relay(near)

    def _relay(self, near: socket.socket) -> None:
        """Relays a connection, which ends at once if its target cannot be reached."""
        with self.lock:
            opening = bytearray()
            self.connections += 1
            self.openings.append(opening)
            self._forget_ended()
            try:
                self.links.append(Link(near, self.target, opening))
            except OSError:
                end(near)

    def _forget_ended(self) -> None:
        self.links = [link for link in self.links if not link.has_ended()]


class Link:
    """One connection: the client's end, and a far end that can be replaced."""

    def __init__(self, near: socket.socket, port: int, opening: bytearray) -> None:
        self.near = near
        self.near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.opening = opening
        self.far = dial(port)
        self.carrying = threading.Thread(target=self._carry_requests, daemon=True)
        self.carrying.start()
        self.answering = self._start_answers(self.far)

    def replace_far_end(self, port: int) -> None:
        """Connects to another port in the place of the far end."""
        old, self.far = self.far, dial(port)
        end(old)
        self.answering = self._start_answers(self.far)

    def has_ended(self) -> bool:
        """Whether both directions have ended; their sockets are then closed."""
        if self.carrying.is_alive() or self.answering.is_alive():
            return False
        self.close()
        return True

    def close(self) -> None:
        """Ends both directions."""
        end(self.near)
        end(self.far)

    def _start_answers(self, far: socket.socket) -> threading.Thread:
        thread = threading.Thread(target=self._carry_answers, args=(far,), daemon=True)
        thread.start()
        return thread

    def _carry_requests(self) -> None:
        with contextlib.suppress(OSError):
            while piece := self.near.recv(PIECE_BYTES):
                self.opening += piece[: max(OPENING_BYTES - len(self.opening), 0)]
                self.far.sendall(piece)
            self.far.shutdown(socket.SHUT_WR)

    def _carry_answers(self, far: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := far.recv(PIECE_BYTES):
                self.near.sendall(piece)
        if self.far is far:
            with contextlib.suppress(OSError):
                self.near.shutdown(socket.SHUT_WR)


def dial(port: int) -> socket.socket:
    """Connects to a port of 127.0.0.1."""
    far = socket.create_connection(("127.0.0.1", port), timeout=DIAL_S)
    far.settimeout(None)
    far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return far


def end(connection: socket.socket) -> None:
    """Ends a connection or a listener, also for a thread that waits on it."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
