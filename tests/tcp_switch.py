"""A TCP relay whose far end can be replaced while connections are open: the network between a client and its host."""

import contextlib
import socket
import threading

PIECE_BYTES = 64 * 1024
DIAL_S = 10


class TcpSwitch:
    """Relays each connection to the address that it leads to just now."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.target = 0
        self.connections = 0
        self.links: list[Link] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def lead_to(self, port: int) -> None:
        """Leads new connections to this port of 127.0.0.1."""
        self.target = port

    def cut(self) -> None:
        """Ends the open connections, as a host does that goes away."""
        for link in self.links:
            link.close()
        self.links.clear()

    def splice(self) -> None:
        """Leads the open connections to the target as well: their clients notice nothing of it."""
        for link in self.links:
            link.replace_far_end(self.target)

    def close(self) -> None:
        """Ends everything."""
        self.listener.close()
        self.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                self.connections += 1
                with contextlib.suppress(OSError):
                    self.links.append(Link(near, self.target))


class Link:
    """One connection: the client's end, and a far end that can be replaced."""

    def __init__(self, near: socket.socket, port: int) -> None:
        self.near = near
        self.far = dial(port)
        threading.Thread(target=self._carry_requests, daemon=True).start()
        self._carry_answers_from(self.far)

    def replace_far_end(self, port: int) -> None:
        """Connects to another port in the place of the far end."""
        old, self.far = self.far, dial(port)
        end(old)
        self._carry_answers_from(self.far)

    def close(self) -> None:
        """Ends both directions."""
        end(self.near)
        end(self.far)

    def _carry_answers_from(self, far: socket.socket) -> None:
        threading.Thread(target=self._carry_answers, args=(far,), daemon=True).start()

    def _carry_requests(self) -> None:
        with contextlib.suppress(OSError):
            while piece := self.near.recv(PIECE_BYTES):
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
    """Ends a connection, also for a thread that waits on it."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
