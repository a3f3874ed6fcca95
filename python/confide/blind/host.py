"""The adapter host: holds adapters and never a key, answers about vectors that it cannot read. No I/O in here.

`AdapterHost` is what all connections share: adapters, sessions, budgets, the key of the process. serving.py speaks the
blind protocol to it over sockets, ipc.py over memory that two processes share, one_graph.py calls it in place. Only the
masked scheme is offered; the direct one and attestation are `confide adapter host`'s.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import os
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy

from .. import peft
from .._extension import native
from ..cuda import arrays, online, ring
from ..cuda.arrays import Array
from ..cuda.mask_stream import TILE
from ..cuda.parameters import SECURITY_BITS_MIN, ParameterSet
from ..peft import LoraPair
from ..sites import PROJECTIONS, source_of
from . import masks
from .audit import AuditLog
from .errors import AdapterRefused, Refusal
from .peers import HostLimits, PreparationSlots, evict_for_session
from .terms import HostWeights, InputTerms, quantise_pairs

ADAPTERS_MAX, CONNECTIONS_MAX, BATCHES_MAX = 64, 64, 4
INPUTS_MAX = native.Welcome.INPUTS_MAX
SESSION_IDLE_S = 600.0
ROWS_MAX = 4096
BELOW_WIDTH = "below-width"


@dataclass
class HostOptions:
    """Configuration of an adapter host. `allowance` is the number of answers for each account, adapter and input;
    BELOW_WIDTH stands for one fewer than the input is wide.
    """

    parameters: ParameterSet
    protect: str = "a"
    allowance: int | str = BELOW_WIDTH
    noise_sigma: float = 0.0
    rank_max: int = 256
    clients: native.ClientList = field(default_factory=lambda: native.ClientList(""))
    budget_file: Path | None = None
    device: str = "cpu"
    limits: HostLimits = field(default_factory=HostLimits)

    def answer_limit(self, width: int) -> int:
        """The number of answers for an input of `width`."""
        return width - 1 if self.allowance == BELOW_WIDTH else int(self.allowance)


class InputProduct:
    """One input of one layer and all that reads it: integers, terms, and the exact product of both."""

    def __init__(self, weights: HostWeights, device: str) -> None:
        self.weights, self.terms, self.device = weights, weights.terms, device
        self.weights_digest, self.terms_bytes = weights.weights_digest, weights.terms_bytes
        self._lock = threading.Lock()

    @functools.cached_property
    def _kernel(self) -> tuple[online.OnlineKernels, online.InputTable]:
        """The launch and its table on the device, made when a vector is first answered."""
        table = online.InputTable(self.device, 1)
        table.put(0, self.terms.to_device(self.device, self.weights.matrix))
        return online.OnlineKernels(self.device, 1, 1), table

    def multiply(self, words: Array, key: bytes, first: int) -> Array:
        """Computes A·y + s mod 2^k: uint64 [vectors, columns] -> [vectors, rows], where the words are."""
        count, in_host = words.shape[0], isinstance(words, numpy.ndarray)
        jobs = numpy.zeros((count, 6), numpy.uint64)
        jobs[:, 1:5] = numpy.frombuffer(key, "<u8")
        jobs[:, 5] = numpy.arange(first, first + count)
        answers = arrays.zeros((count, self.terms.rows), "int64", self.device)
        given = arrays.upload(words, self.device) if in_host else words
        with self._lock:
            kernel, table = self._kernel
            kernel.answer(table, arrays.upload(jobs, self.device), given, None, answers)
        jobs.fill(0)
        return arrays.as_words(answers) if in_host else answers


class HostedAdapter:
    """A loaded adapter: a product for each input, in the order of layers and inputs."""

    def __init__(
        self, name: str, pairs: dict[tuple[int, str], LoraPair], options: HostOptions
    ) -> None:
        if not native.is_valid_name(name):
            raise AdapterRefused(
                f"adapter name: wanted 1 to 128 visible ASCII characters, got {name!r}"
            )
        self.name = name
        self.id = hashlib.sha256(b"confide lora adapter v1" + name.encode()).digest()
        inputs: dict[tuple[int, int], list[tuple[str, LoraPair]]] = {}
        for (layer, projection), pair in sorted(
            pairs.items(), key=lambda item: (item[0][0], PROJECTIONS.index(item[0][1]))
        ):
            if pair.a.shape[0] > options.rank_max:
                raise AdapterRefused(
                    f"rank: wanted at most {options.rank_max}, got {pair.a.shape[0]}"
                )
            inputs.setdefault((layer, source_of(projection)), []).append((projection, pair))
        if not 1 <= len(inputs) <= INPUTS_MAX:
            raise AdapterRefused(f"adapted inputs: wanted 1 to {INPUTS_MAX}, got {len(inputs)}")
        self.products: list[InputProduct] = []
        self.by_input: dict[tuple[int, int], int] = {}
        for place in sorted(inputs):
            weights = quantise_pairs(
                place[0], inputs[place], options.protect, options.parameters, options.noise_sigma
            )
            if weights.terms.norm_limit == 0:
                raise AdapterRefused(f"layer {place[0]}: the noise is too large for any answer")
            if weights.terms.rows > ROWS_MAX:
                raise AdapterRefused(
                    f"layer {place[0]}: wanted at most {ROWS_MAX} rows, got {weights.terms.rows}"
                )
            self.by_input[place] = len(self.products)
            self.products.append(InputProduct(weights, options.device))


class CounterSequence:
    """The counters of one session for one input: batches are prepared once each, in order, counters answered once."""

    def __init__(self, tokens: int) -> None:
        self.tokens, self.nonce, self.next_batch = tokens, os.urandom(16), 0
        self.lock = threading.Lock()
        self._live: dict[int, tuple[bytes, numpy.ndarray]] = {}

    def begin(self) -> int:
        """Gives the next batch's number, which is spent from here on, whatever follows."""
        with self.lock:
            if len(self._live) >= BATCHES_MAX:
                raise Refusal("busy")
            self.next_batch += 1
            return self.next_batch - 1

    def finish(self, batch: int, key: bytes) -> None:
        """Notes that all rows are answered: the batch's counters can be used."""
        with self.lock:
            self._live[batch] = (key, numpy.zeros(self.tokens, numpy.bool_))

    def use_counters(self, counter: int, vectors: int) -> tuple[bytes, int]:
        """Marks counters of one batch as used; gives the key of its masks and the first token. A refusal drops it."""
        batch, first = divmod(counter, self.tokens)
        with self.lock:
            if batch not in self._live:
                raise Refusal("not-prepared")
            key, used = self._live[batch]
            beyond = first + vectors > self.tokens
            if beyond or used[first : first + vectors].any():
                del self._live[batch]
                raise Refusal(
                    "counter-used" if used[first : first + vectors].any() else "not-prepared"
                )
            used[first : first + vectors] = True
            if used.all():
                del self._live[batch]
        return key, first

    def drop_batch(self, counter: int) -> None:
        """Drops the batch of a counter, after a request that could not be read."""
        with self.lock:
            self._live.pop(counter // self.tokens, None)


@dataclass
class HostSession:
    """A key holder's session, opened by its hello."""

    client: bytes
    token: bytes
    adapter: HostedAdapter
    account_id: bytes
    account_name: str
    public_key: Any
    sequences: list[CounterSequence]
    connections: int = 1
    # When it was opened, attached to, or asked something, or lost a connection.
    last_used: float = 0.0
    # A batch was begun or a vector answered.
    is_used: bool = False
    peer: str = ""
    tally: native.AuditTally = field(default_factory=native.AuditTally)

    def record_use(self) -> None:
        """Notes that the session was used just now."""
        self.last_used, self.is_used = time.monotonic(), True


class BatchPreparation:
    """A batch whose ciphertexts are arriving."""

    def __init__(
        self, host: AdapterHost, session: HostSession, input_index: int, batch: int
    ) -> None:
        self.host, self.session, self.index, self.batch = host, session, input_index, batch
        self.product = session.adapter.products[input_index]
        self.pushed = 0
        self._products = ring.ScalarProducts(host.context, self.product.weights.matrix)

    def push(self, seeded: Any, count: int) -> None:
        """Takes the ciphertexts of the next `count` columns. Raises `Refusal` beyond the last."""
        if self.pushed + count > self.product.terms.columns:
            raise Refusal("malformed")
        self._products.add_seeded(self.pushed, seeded)
        self.pushed += count

    def finish(self) -> Any:
        """Gives Enc(A·r − s) of [rows], fresh under the key holder's public key. The counters can be used."""
        if self.pushed != self.product.terms.columns:
            raise Refusal("malformed")
        key = self.host.answer_key(self.session, self.index, self.batch)
        answers = answer_products(self._products, self.session.public_key, key, self.product.terms)
        self.host.check_session(self.session)
        self.session.sequences[self.index].finish(self.batch, key)
        return answers


def answer_products(
    products: ring.ScalarProducts, public_key: ring.PublicKey, key: bytes, terms: InputTerms
) -> ring.SmallCiphertexts:
    """Computes Enc(A·r − s) of every row, fresh under the key holder's public key; `key` makes the masks s."""
    context = products.context
    stream = ring.MaskStream(key, context.device)
    # What is encrypted is −s, [rows, tokens].
    tiles = -(-terms.rows // TILE)
    shares = stream.draw_columns(0, 0, context.n, terms.bits, negated=True, tiles=tiles)
    answers = products.answers(public_key, shares[: terms.rows])
    arrays.wipe(shares)
    stream.wipe()
    return answers


class AdapterHost:
    """Answers key holders about its adapters. Keys, masks and counters live in memory only."""

    def __init__(self, options: HostOptions, log: AuditLog | None = None) -> None:
        if not options.parameters.flood_bits:
            raise AdapterRefused(
                f"{options.parameters.name}: wanted a set whose answers are flooded"
            )
        self.options, self.log = options, log or AuditLog()
        self.context = ring.Context(options.parameters, options.device)
        self._key, self.epoch = os.urandom(32), os.urandom(16)
        self.adapters: dict[str, HostedAdapter] = {}
        self.ledger = native.AnswerLedger(options.budget_file)
        self._sessions: dict[bytes, HostSession] = {}
        self._lock = threading.Lock()
        self.room = PreparationSlots(options.limits)
        # One preparation computes at a time: the others' tokens come first.
        self.turn = threading.Lock()

    def load(
        self, folder: str | Path, final_hidden: bool = False, name: str | None = None
    ) -> HostedAdapter:
        """Quantises the adapter in a PEFT folder and offers it under the folder's name, or another."""
        found, pairs = peft.load_adapter(folder, final_hidden)
        return self.add_adapter(name or found, pairs)

    def add_adapter(self, name: str, pairs: dict[tuple[int, str], LoraPair]) -> HostedAdapter:
        """Offers an adapter as `load` does, from pairs."""
        hosted = HostedAdapter(name, pairs, self.options)
        if len(self.adapters) >= ADAPTERS_MAX or name in self.adapters:
            raise AdapterRefused(
                f"adapters: wanted at most {ADAPTERS_MAX} with different names, got {name} too"
            )
        self.adapters[name] = hosted
        return hosted

    def guarantee(self) -> str:
        """Who is protected from whom, for every key holder that may come."""
        chosen = self.options.parameters
        # This host accepts no attestation, and no budget keeps an adapter from a key holder without one.
        return native.describe_guarantee(
            host_is_blind=chosen.security_bits >= SECURITY_BITS_MIN,
            adapter_stays=chosen.flood_bits > 0,
            b_is_handed_over=self.options.protect == "a",
            adapter_can_be_learned=True,
        )

    def open_session(
        self, hello: native.Hello, peer: str = ""
    ) -> tuple[HostSession, native.Welcome]:
        """Opens a session with its first connection, which came from `peer`."""
        account_id, account_name = self.options.clients.find_account(hello.credential)
        adapter = self.adapters.get(hello.adapter)
        if adapter is None:
            raise Refusal("unknown-adapter")
        options = self.options
        if (
            hello.parameters != options.parameters.name
            or hello.protect not in (None, options.protect)
            or hello.scheme != "masked"
        ):
            raise Refusal("not-offered")
        try:
            public_key = ring.PublicKey.from_bytes(self.context, hello.public_key)
        except ValueError as error:
            raise Refusal("malformed") from error
        sequences = [CounterSequence(self.context.n) for _ in adapter.products]
        session = HostSession(
            hello.client,
            os.urandom(32),
            adapter,
            account_id,
            account_name,
            public_key,
            sequences,
            last_used=time.monotonic(),
            peer=peer,
        )
        with self._lock:
            # A client id names shares: the same one twice would have two sessions share them.
            if hello.client in self._sessions:
                raise Refusal("busy")
            evicted = evict_for_session(self._sessions, peer, options.limits)
            self._sessions[hello.client] = session
        if evicted is not None:
            self.log("evicted", session=evicted)
        self.log("hello", session=session, scheme="masked", attested=False, simulated=False)
        return session, native.Welcome(
            self.epoch, session.token, False, False, True, options.protect, len(adapter.products)
        )

    def attach_connection(self, attach: native.Attach) -> tuple[HostSession, int]:
        """Adds a connection to a session; gives the session and its connections. One refusal covers every fault."""
        with self._lock:
            session = self._sessions.get(attach.client)
            if (
                session is None
                or not hmac.compare_digest(attach.token, session.token)
                or attach.epoch != self.epoch
                or self._is_expired(session)
            ):
                raise Refusal("no-session")
            if session.connections >= CONNECTIONS_MAX:
                raise Refusal("busy")
            session.connections += 1
            session.last_used = time.monotonic()
            return session, session.connections

    def record_disconnect(self, session: HostSession) -> None:
        """Notes that a connection ended; the session lives on."""
        with self._lock:
            session.connections -= 1
            session.last_used = time.monotonic()

    def end_session(self, session: HostSession) -> None:
        """Forgets a session with its batches; none of its connections is answered any more."""
        with self._lock:
            # Another session may have the id of one that has ended.
            if self._sessions.get(session.client) is not session:
                return
            del self._sessions[session.client]
        self.log("goodbye", session=session)

    def check_session(self, session: HostSession) -> None:
        """Raises `Refusal` where the session has ended."""
        if session.tally.is_closed:
            raise Refusal("no-session")

    def forget_expired_sessions(self) -> None:
        """Forgets sessions that nobody has come back to."""
        with self._lock:
            expired = self._pop_expired_locked()
        for session in expired:
            self.log("expired", session=session)

    def write_counts(self) -> None:
        """Writes to the audit log what was counted since its last lines."""
        with self._lock:
            sessions = list(self._sessions.values())
        for session in sessions:
            self.log.write_counts(session)

    def input_index(self, session: HostSession, layer: int, source: int) -> int:
        """Gives the index of an input among the adapter's. Raises `Refusal` where the adapter does not read it."""
        found = session.adapter.by_input.get((layer, source))
        if found is None:
            raise Refusal("not-offered")
        return found

    def budget(self, session: HostSession, input_index: int) -> tuple[int, int]:
        """Gives the budget of an input, and how much of it is left."""
        limit = self.options.answer_limit(session.adapter.products[input_index].terms.columns)
        left = self.ledger.count_left(*self._count_key(session, input_index), limit)
        return limit, 0 if left is None else left

    def begin_batch(self, session: HostSession, input_index: int) -> BatchPreparation:
        """Begins the next batch of an input. The caller holds a place of `room` until it is answered."""
        self.check_session(session)
        session.record_use()
        return BatchPreparation(self, session, input_index, session.sequences[input_index].begin())

    def answer_vectors(
        self, session: HostSession, input_index: int, counter: int, words: Any
    ) -> tuple[Any, int | None]:
        """Answers masked vectors, uint64 [vectors, columns] below 2^k: gives [vectors, rows], and the budget left.

        Counted first: what the masked scheme then refuses was asked against the rules. The tally has what is answered
        before it is given.
        """
        self.check_session(session)
        session.record_use()
        terms = session.adapter.products[input_index].terms
        limit = self.options.answer_limit(terms.columns)
        slot = self._count_key(session, input_index)
        try:
            left = self.ledger.count_answers(*slot, limit, words.shape[0])
        except OSError as error:
            print(f"adapter host: the budget file cannot be written: {error}", file=sys.stderr)
            raise Refusal("internal") from error
        key, first = session.sequences[input_index].use_counters(counter, words.shape[0])
        answers = session.adapter.products[input_index].multiply(words, key, first)
        session.tally.count_answers(terms.layer, terms.source, words.shape[0])
        return _add_noise(answers, terms.noise_sigma, terms.bits), left

    def answer_key(self, session: HostSession, input_index: int, batch: int) -> bytes:
        """Derives the key of one batch's answer masks: bound to the client id, not to the account."""
        terms = session.adapter.products[input_index].terms
        return masks.answer_key(
            self._key,
            self.epoch,
            session.client,
            session.adapter.id,
            terms.layer,
            terms.source,
            session.sequences[input_index].nonce,
            batch,
        )

    @property
    def session_count(self) -> int:
        """The number of open sessions."""
        return len(self._sessions)

    def _count_key(self, session: HostSession, input_index: int) -> tuple[bytes, bytes, int, int]:
        """Gives the key under which answers are counted: account, digest of the weights, layer and input."""
        product = session.adapter.products[input_index]
        place = product.terms.layer, product.terms.source
        return session.account_id, product.weights_digest, *place

    def _is_expired(self, session: HostSession) -> bool:
        return session.connections == 0 and time.monotonic() - session.last_used >= SESSION_IDLE_S

    def _pop_expired_locked(self) -> list[HostSession]:
        expired = [session for session in self._sessions.values() if self._is_expired(session)]
        for session in expired:
            del self._sessions[session.client]
        return expired


def _add_noise(answers: Any, sigma: float, bits: int) -> Any:
    """Adds rounded Gaussian noise to answers mod 2^k, cut at the headroom of the norm limit."""
    if sigma == 0.0:
        return answers
    words = arrays.as_words(answers)
    most = native.noise_headroom(sigma)
    unit = numpy.frombuffer(os.urandom(16 * words.size), "<u8").reshape(2, *words.shape)
    first, second = ((half >> numpy.uint64(11)).astype(numpy.float64) for half in unit)
    radius = numpy.sqrt(-2.0 * numpy.log((first + 1.0) / float(1 << 53)))
    normal = radius * numpy.cos(2.0 * numpy.pi * second / float(1 << 53))
    noise = (
        numpy.clip(numpy.rint(normal * sigma), -most, most).astype(numpy.int64).astype(numpy.uint64)
    )
    noised = (words + noise) & numpy.uint64((1 << bits) - 1)
    return (
        noised if isinstance(answers, numpy.ndarray) else arrays.upload(noised, str(answers.device))
    )
