"""Batches of masks at the key holder: made, encrypted, answered, and used up one counter after the other."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Generator
from dataclasses import dataclass

import numpy

from .._extension import native
from ..cuda import arrays, ring
from ..cuda.arrays import Array
from ..cuda.mask_stream import TILE
from .channel import Channel
from .errors import ProtocolError
from .frames import STEP_DEADLINE_S
from .terms import InputTerms


class MaskBatch:
    """N tokens of one input: the mask key, and what was decrypted for each, uint64 [tokens, rows]."""

    def __init__(self, device: str, number: int, key: bytes, prepared: Array) -> None:
        self.device, self.number, self.key, self.prepared = device, number, key, prepared
        self.tokens, self.rows = prepared.shape
        self.next = 0
        # Lines for the kernels, made once: a step then takes a view and copies nothing to the device.
        counts = numpy.arange(self.tokens, dtype=numpy.uint64)
        lines = numpy.empty((self.tokens, 5), numpy.uint64)
        lines[:, :4], lines[:, 4] = numpy.frombuffer(key, "<u8"), counts
        self.lines = lines if device == "cpu" else arrays.upload(lines, device)
        places = numpy.uint64(arrays.address(prepared)) + counts * numpy.uint64(8 * self.rows)
        self.places = places if device == "cpu" else arrays.upload(places, device)

    @property
    def remaining(self) -> int:
        """The number of tokens that can still be masked."""
        return self.tokens - self.next

    def wipe(self) -> None:
        """Forgets masks and answers: nothing can be masked any more."""
        self.next, self.key = self.tokens, bytes(32)
        # What was launched on this stream may still read them.
        for words in (self.prepared, self.lines, self.places):
            arrays.wipe_in_stream_order(words)


@dataclass(frozen=True)
class CounterRange:
    """A run of counters of one batch, which are spent from here on, even if the request is lost."""

    batch: MaskBatch
    first: int
    count: int

    @property
    def counter(self) -> int:
        """The first counter as the host numbers it."""
        return self.batch.number * self.batch.tokens + self.first


class MaskPool:
    """The masks prepared for one input and not yet used: each counter leaves the pool once and never comes back."""

    def __init__(self) -> None:
        self._batches: deque[MaskBatch] = deque()
        self.preparing = False
        self.lock = threading.Lock()

    @property
    def remaining(self) -> int:
        """The number of vectors that the host can still be asked about."""
        return sum(batch.remaining for batch in self._batches)

    @property
    def batches(self) -> int:
        """The number of batches with counters left."""
        return len(self._batches)

    def add_batch(self, batch: MaskBatch) -> None:
        """Takes a batch whose preparation has ended."""
        with self.lock:
            self._batches.append(batch)

    def take_counters(self, vectors: int) -> CounterRange | None:
        """Takes as many counters as the oldest batch has, at most `vectors`; None if nothing is prepared."""
        with self.lock:
            while self._batches:
                batch = self._batches[0]
                count = min(vectors, batch.remaining)
                if count:
                    taken = CounterRange(batch, batch.next, count)
                    batch.next += count
                    return taken
                # Its last answers may still be on their way through the device: the wiping comes after them there.
                self._batches.popleft().wipe()
        return None

    def wipe(self) -> None:
        """Wipes every batch."""
        with self.lock:
            while self._batches:
                self._batches.popleft().wipe()


def encrypted_masks(
    context: ring.Context, secret: ring.SecretKey, terms: InputTerms, key: bytes, tiles: int = 1
) -> Generator[tuple[int, int, ring.SeededCiphertexts], None, None]:
    """Yields (first column, count, `ring.SeededCiphertexts`) of a batch's masks, `tiles` tiles of 32 columns at once.

    A block of the protocol is one tile. More at once take fewer launches, and `limbs` times 2 · 256 KiB · tiles at
    n = 4096 while they are multiplied.
    """
    device = context.device
    stream, encryptor = ring.MaskStream(key, device), ring.Encryptor(secret)
    try:
        for tile in range(0, -(-terms.columns // TILE), tiles):
            first = tile * TILE
            count = min(TILE * tiles, terms.columns - first)
            columns = stream.draw_columns(tile, 0, context.n, terms.bits, tiles=-(-count // TILE))
            seeded = encryptor.encrypt(columns[:count])
            arrays.wipe(columns)
            yield first, count, seeded
    finally:
        stream.wipe()
        encryptor.wipe()


def prepare_batch(
    channel: Channel, context: ring.Context, secret: ring.SecretKey, terms: InputTerms
) -> MaskBatch:
    """Has the host prepare the next batch of an input."""
    request = channel.begin_request(native.PrepareRequest(terms.layer, terms.source))
    credit = channel.expect(request, native.BlockCredit, STEP_DEADLINE_S)
    blocks, number = credit.blocks, credit.batch
    key = os.urandom(32)
    for first, count, seeded in encrypted_masks(context, secret, terms, key):
        raw = b"".join(seeded.to_wire_forms())
        while blocks == 0:
            blocks = channel.expect(request, native.BlockCredit, STEP_DEADLINE_S).blocks
        blocks -= 1
        channel.send(native.CiphertextBlock(first, count, raw), request)
    rows: list[Array] = []
    done = 0
    while done < terms.rows:
        part = channel.receive(request, "a prepared batch", STEP_DEADLINE_S)
        if isinstance(part, native.BlockCredit):
            continue
        if not isinstance(part, native.PreparedRows):
            raise ProtocolError(f"frame: wanted a prepared batch, got {type(part).__name__}")
        first, count, raw = part.first, part.count, part.ciphertexts
        if first != done or count > terms.rows - done:
            raise ProtocolError("prepared: ciphertexts: wanted the next rows, each whole")
        length = len(raw) // count
        try:
            answers = ring.SmallCiphertexts.from_bytes(
                context, [raw[at * length : (at + 1) * length] for at in range(count)]
            )
        except ValueError as error:
            raise ProtocolError(f"prepared: ciphertexts: {error}") from error
        rows.append(secret.decrypt(answers))
        done += count
    whole = arrays.concatenate(rows)
    for piece in rows:
        arrays.wipe(piece)
    if whole.shape[1] != context.n:
        raise ProtocolError(
            f"prepared: wanted all {context.n} messages of a row, got {whole.shape[1]}"
        )
    return MaskBatch(context.device, number, key, arrays.transpose_and_wipe(whole))
