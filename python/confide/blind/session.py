"""A key holder's session with a host: keys, terms and prepared masks, and the meter of what a generation takes."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field

from .._extension import native
from ..cuda import parameters, ring
from .batches import MaskPool
from .channel import Channel
from .errors import HostRefused
from .terms import InputTerms


@dataclass
class HolderOptions:
    """Options of a key holder. `low_water` None means a quarter of a batch."""

    adapter: str
    parameters: str = parameters.DEFAULT
    protect: str | None = None
    credential: bytes = b""
    device: str = "cpu"
    low_water: int | None = None
    mask_deadline_s: float = 300.0
    dangerous_parameters: bool = False


class HolderSession:
    """The key holder's state of one session: all of it is worthless once the host is restarted."""

    def __init__(self, channel: Channel, options: HolderOptions) -> None:
        self.parameters = parameters.find_set(options.parameters, options.dangerous_parameters)
        self.context = ring.Context(self.parameters, options.device)
        self.secret = ring.SecretKey.random(self.context)
        client = os.urandom(32)
        hello = native.Hello(
            options.adapter,
            "masked",
            options.parameters,
            options.protect,
            client,
            options.credential,
            self.secret.public_key().to_bytes(),
        )
        request = channel.begin_request(hello)
        self.welcome = channel.expect(request, native.Welcome)
        self.terms: list[InputTerms] = []
        self.budgets: list[int | None] = []
        self.budget_left: list[int | None] = []
        for _ in range(self.welcome.groups):
            group = channel.expect(request, native.GroupTerms)
            self.terms.append(InputTerms.decode(group.terms))
            self.budgets.append(group.budget)
            self.budget_left.append(group.budget_left)
        self.attach = native.Attach(client, self.welcome.epoch, self.welcome.token)
        self.pools = [MaskPool() for _ in self.terms]
        self.by_input = {
            (terms.layer, terms.source): index for index, terms in enumerate(self.terms)
        }
        self.dead = False
        self._check(channel.name, options)

    def _check(self, host: str, options: HolderOptions) -> None:
        """Raises `HostRefused` where the offer is inconsistent or is not what was asked for."""

        def refusal(wanted: str, got: str) -> HostRefused:
            return HostRefused(f"adapter host {host} offers {got}, wanted {wanted}")

        if options.protect not in (None, self.welcome.protect):
            raise refusal(f"protect = {options.protect}", f"protect = {self.welcome.protect}")
        if len(self.by_input) != len(self.terms):
            raise refusal("each input once", "one twice")
        for terms in self.terms:
            if terms.bits != self.parameters.plaintext_bits:
                raise refusal(
                    f"words of {self.parameters.plaintext_bits} bits", f"words of {terms.bits}"
                )
            if terms.is_merged != (self.welcome.protect == "ba"):
                raise refusal(f"terms of protect = {self.welcome.protect}", "others")

    def wipe(self) -> None:
        """Wipes keys and masks; nothing more can be asked."""
        self.dead = True
        for pool in self.pools:
            pool.wipe()
        self.secret.wipe()


@dataclass
class Meter:
    """The meter of a generation: counts, bytes and milliseconds by step."""

    answered_vectors: int = 0
    round_trips: int = 0
    online_bytes: int = 0
    he_operations: int = 0
    budget_left: int | None = None
    steps_ms: dict[str, float] = field(default_factory=dict)

    def add_share(self, other: Meter, among: int) -> None:
        """Adds one generation's share of what several took together."""
        self.answered_vectors += other.answered_vectors // among
        self.round_trips += other.round_trips
        self.online_bytes += other.online_bytes // among
        self.he_operations += -(-other.he_operations // among)
        if other.budget_left is not None:
            self.budget_left = (
                other.budget_left
                if self.budget_left is None
                else min(self.budget_left, other.budget_left)
            )
        for step, spent in other.steps_ms.items():
            self.steps_ms[step] = self.steps_ms.get(step, 0.0) + spent / among

    def add_ms(self, step: str, began: float) -> None:
        """Counts the time since `began` (perf_counter) for a step."""
        self.steps_ms[step] = self.steps_ms.get(step, 0.0) + (time.perf_counter() - began) * 1e3
