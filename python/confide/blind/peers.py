"""The peers to which limits apply, and the limits for each peer and in all, as in crates/lora/src/host/peers.rs."""

from __future__ import annotations

import ipaddress
import threading
from collections import Counter
from dataclasses import dataclass
from typing import Any

from .errors import Refusal


@dataclass(frozen=True)
class HostLimits:
    """The most that a host holds at once, in all and for one peer."""

    sessions: int = 256
    sessions_per_peer: int = 64
    preparations: int = 4
    preparations_per_peer: int = 3


def peer_address_block(address: str) -> str:
    """Gives an IPv4 address, or the /64 network of an IPv6 one, all of whose addresses one peer has. An empty text
    where there is no address, as on a Unix socket.
    """
    if not address:
        return ""
    found = ipaddress.ip_address(address.partition("%")[0])
    mapped = getattr(found, "ipv4_mapped", None) or found
    return (
        str(mapped)
        if mapped.version == 4
        else str(ipaddress.ip_network((mapped, 64), strict=False))
    )


class PreparationSlots:
    """The batches that are being prepared, by peer."""

    def __init__(self, limits: HostLimits) -> None:
        self._limits, self._lock = limits, threading.Lock()
        self._running: Counter[str] = Counter()

    def acquire(self, peer: str) -> bool:
        """Takes room for one more batch of a peer. The last room is kept for a peer that has none yet."""
        with self._lock:
            own, running = self._running[peer], self._running.total()
            last = running + 1 >= self._limits.preparations
            if (
                running >= self._limits.preparations
                or own >= self._limits.preparations_per_peer
                or (last and own)
            ):
                return False
            self._running[peer] += 1
            return True

    def release(self, peer: str) -> None:
        """Gives the room back."""
        with self._lock:
            self._running[peer] -= 1
            if self._running[peer] <= 0:
                del self._running[peer]


def evict_for_session(sessions: dict[bytes, Any], peer: str, limits: HostLimits) -> Any:
    """Makes room for a session of `peer`; gives the one that was evicted for it, or None.

    Only sessions without a connection give way here: those that were never used first, then those of the peer
    that holds most, the longest idle one of each kind. A peer that has its share takes the place of its own.
    """
    held = Counter(session.peer for session in sessions.values())
    idle = [session for session in sessions.values() if session.connections == 0]
    if held[peer] >= limits.sessions_per_peer:
        idle = [session for session in idle if session.peer == peer]
    elif len(sessions) < limits.sessions:
        return None
    if not idle:
        raise Refusal("busy")
    victim = min(
        idle,
        key=lambda session: (
            session.is_used,
            session.is_used and -held[session.peer],
            session.last_used,
        ),
    )
    del sessions[victim.client]
    return victim
