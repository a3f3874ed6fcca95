"""How matrices (gemv.cu) and contexts (attention.cu) are shared out: by shape, or as tune.py measured it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from . import cache, source

# Columns that a warp takes at a time: 32 lanes of 16 bytes.
CHUNK_COLUMNS = {"float": 128, "bf16": 256}
SPLIT_MAX, RESULTS_MAX = 8, 32
# Threads of a block of the attention; positions of a context are shared by at most so many blocks.
ATTENTION_THREADS, ATTENTION_BLOCKS_MAX = 128, 64
# Tilings that were measured on a card and came back with a record.
SHIPPED = Path(__file__).resolve().parent / "tilings"
# Staged vectors larger than the first bound leave room for too few blocks; than the second, for none.
STAGED_BYTES_USUAL, STAGED_BYTES_MAX = 48 << 10, 192 << 10


@dataclass(frozen=True)
class Product:
    """One product of a step: the weight's kind, what happens to the result, sizes in elements, vectors at once."""

    weight: str
    output: str
    normed: bool
    out: int
    columns: int
    batch: int

    @property
    def chunks(self) -> int:
        """Pieces of 32 x 16 bytes in a row of the matrix."""
        return -(-self.columns // CHUNK_COLUMNS[self.weight])


@dataclass(frozen=True)
class Tiling:
    """Rows that a warp takes, warps that share a row's columns, words of 16 bytes asked for at once, warps a block.

    `blocks` bounds the grid (blocks then go on to further rows); 0 gives each group of rows a block's place. staged:
    the vectors lie in shared memory. resident: threads that a multiprocessor should hold, which bounds the registers.
    """

    rows: int
    split: int
    unroll: int
    warps: int
    blocks: int = 0
    staged: bool = False
    resident: int = 512

    def grid(self, product: Product) -> int:
        """Gives the number of blocks to launch."""
        held, width = self.rows, product.out
        if product.output == "SWIGLU":
            held, width = held // 2, width // 2
        groups = -(-width // held)
        wanted = -(-groups // (self.warps // self.split))
        return min(wanted, self.blocks) if self.blocks else wanted

    def shared_bytes(self, product: Product) -> int:
        """Gives the bytes of dynamic shared memory."""
        return staged_bytes(product) if self.staged else 0

    def defines(self, product: Product, element: str) -> dict[str, str | int]:
        """Gives the macros of gemv.cu."""
        return {
            "WEIGHT": product.weight, "ELEMENT": element, "NORMED": str(product.normed).lower(),
            "OUTPUT": product.output, "ROWS": self.rows, "SPLIT": self.split, "UNROLL": self.unroll,
            "WARPS": self.warps, "BATCH": product.batch, "STAGED": str(self.staged).lower(),
            "RESIDENT": max(1, self.resident // (self.warps * 32)),
        }  # fmt: skip


@dataclass(frozen=True)
class AttentionShape:
    """One layer's attention for `rows` tokens: the cache's kind of element, heads, sizes in elements."""

    element: str
    heads: int
    kv_heads: int
    head_dim: int
    rows: int

    @property
    def positions_at_once(self) -> int:
        """The positions that a block has under way at a time: its teams of lanes times their depth (attention.cuh)."""
        lanes = 1
        while lanes * 8 < self.head_dim:
            lanes *= 2
        return ATTENTION_THREADS // lanes * (2 if self.heads // self.kv_heads > 4 else 4)


@dataclass(frozen=True)
class AttentionSplit:
    """How a context is shared out: the least positions of a block, and the most blocks for a row and key head."""

    least: int
    blocks_max: int

    def blocks(self, limit: int) -> int:
        """Gives the blocks to launch for a row and key head where positions are below `limit`."""
        return max(1, min(self.blocks_max, -(-limit // self.least)))


@dataclass(frozen=True)
class Tilings:
    """What was measured on a device; whatever was not is chosen by shape."""

    products: dict[Product, Tiling] = field(default_factory=dict)
    attention: dict[AttentionShape, AttentionSplit] = field(default_factory=dict)

    def of_product(self, product: Product) -> Tiling:
        """Gives the tiling of a product."""
        return self.products.get(product) or choose_by_shape(product)

    def of_attention(self, shape: AttentionShape) -> AttentionSplit:
        """Gives the split of an attention."""
        return self.attention.get(shape) or choose_split(shape)


def staged_bytes(product: Product) -> int:
    """Bytes that the vectors of a product take in shared memory."""
    return product.batch * product.columns * 4


def choose_by_shape(product: Product) -> Tiling:
    """A tiling that keeps at least 8 words of 16 bytes in flight a lane and splits columns where rows are few."""
    pairs = product.output == "SWIGLU"
    if pairs:
        rows = 2 if product.batch == 1 else 4
    elif product.out >= 16_384 or product.batch > 4:
        rows = 4
    else:
        rows = min(product.batch, 2)
    groups = product.out // rows
    split = 1
    while split < SPLIT_MAX and product.chunks > 8 * split and groups * split < 8192:
        split += 1
    deep = 12 if product.batch == 1 else 8
    unroll = max(1, min(-(-product.chunks // split), deep // rows, 8))
    staged = split == 1 and staged_bytes(product) <= STAGED_BYTES_USUAL
    # Many sums in registers: fewer threads, or they would spill.
    resident = 256 if product.batch > 4 else 384 if product.batch > 1 else 512
    return Tiling(rows, split, unroll, split if split > 2 else 4, staged=staged, resident=resident)


def candidates(product: Product) -> Iterator[Tiling]:
    """Tilings worth measuring for this product, the choice by shape first."""
    first = choose_by_shape(product)
    yield first
    pairs = product.output == "SWIGLU"
    for rows in (2, 4) if pairs else (1, 2, 4):
        if (rows // 2 if pairs else rows) * product.batch > RESULTS_MAX:
            continue
        for split in (1, 2, 4, 5, 8):
            each = -(-product.chunks // split)
            if split > 1 and each < 3:
                continue
            for words in (4, 8, 14):
                unroll = max(1, min(each, words // rows))
                for warps in (split,) if split > 2 else (4, 8):
                    for staged in (
                        (False, True) if staged_bytes(product) <= STAGED_BYTES_MAX else (False,)
                    ):
                        for resident in (512, 1024) if product.batch == 1 else (first.resident,):
                            made = Tiling(
                                rows, split, unroll, warps, staged=staged, resident=resident
                            )
                            if made != first:
                                yield made


def choose_split(shape: AttentionShape) -> AttentionSplit:
    """Chooses the split in which a block makes one round trip to memory: a short context's time is their latency."""
    return AttentionSplit(shape.positions_at_once, ATTENTION_BLOCKS_MAX)


def split_candidates(shape: AttentionShape) -> Iterator[AttentionSplit]:
    """Lists splits worth measuring, the choice by shape first."""
    first = choose_split(shape)
    yield first
    for times in (1, 2, 4, 8):
        for blocks in (16, 32, 64):
            made = AttentionSplit(shape.positions_at_once * times, blocks)
            if made != first:
                yield made


def path(device_name: str) -> Path:
    """Gives the file of what was measured on a device of this name with gemv.cu and attention.cu as they are."""
    plain = "".join(letter if letter.isalnum() else "-" for letter in device_name)
    digests = "-".join(source.read(file).digest[:8] for file in ("gemv.cu", "attention.cu"))
    return cache.kernel_cache_folder() / f"tilings-{plain}-{digests}.json"


def load_on(device: str) -> Tilings:
    """Loads what was measured on this machine's device ("cuda:N"; nothing for "cpu")."""
    if device == "cpu":
        return Tilings()
    import torch

    return load_measured(torch.cuda.get_device_name(device))


def load_measured(device_name: str) -> Tilings:
    """Loads what tune.py chose on a device of this name, here or before the package was made; nothing where it never
    ran with the kernels as they are.
    """
    own = path(device_name)
    return _override_tilings(_read(SHIPPED / own.name), _read(own))


def save_measured(device_name: str, chosen: Tilings) -> None:
    """Adds tilings to those that `load_measured` gives."""
    whole = _override_tilings(load_measured(device_name), chosen)
    kept = {
        "products": [
            {"product": asdict(product), "tiling": asdict(tiles)}
            for product, tiles in whole.products.items()
        ],
        "attention": [
            {"shape": asdict(shape), "split": asdict(split)}
            for shape, split in whole.attention.items()
        ],
    }
    cache.write_atomically(path(device_name), json.dumps(kept, indent=1).encode())


def _override_tilings(first: Tilings, second: Tilings) -> Tilings:
    return Tilings({**first.products, **second.products}, {**first.attention, **second.attention})


def _read(file: Path) -> Tilings:
    if not file.is_file():
        return Tilings()
    kept = json.loads(file.read_text())
    return Tilings(
        {Product(**row["product"]): Tiling(**row["tiling"]) for row in kept["products"]},
        {
            AttentionShape(**row["shape"]): AttentionSplit(**row["split"])
            for row in kept["attention"]
        },
    )
