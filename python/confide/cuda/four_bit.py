"""4-bit matrices as gemv.cu reads them: tiles of 1,024 columns, a lane's sixteen bytes spread over its eight groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

GROUP = 128
TILE = 1024


@dataclass(frozen=True)
class FourBitTiles:
    """`(code - 8) * scale + offset` for each group of 128 columns.

    tiles: uint8 [out, chunks, 32 lanes, 16], two codes to a byte, the lower first: code 4·q + i of lane l is column
    128·q + 4·l + i of the chunk. scales: bf16 [out, chunks, 8, 2], scale and offset. bias [out] or None.
    Arrays are torch tensors on a device, or numpy arrays (bf16 as uint16 bits).
    """

    tiles: Any
    scales: Any
    out: int
    columns: int
    bias: Any = None


def from_codes(codes: Any, scales: Any, bias: Any = None) -> FourBitTiles:
    """codes: uint8 [out, columns], one code of 0..15 each; scales: bf16 [out, columns / 128, 2]; torch or numpy.

    Columns are filled up to whole tiles with codes whose scale and offset are zero.
    """
    out, columns = codes.shape
    if columns % GROUP:
        raise ValueError(f"4-bit matrix: wanted columns in groups of {GROUP}, got {columns}")
    chunks = -(-columns // TILE)
    codes = _padded(codes, chunks * TILE).reshape(out, chunks, 8, 32, 2, 2)
    # [out, chunk, q, lane, pair, low or high] -> bytes in the order lane, q, pair.
    packed = codes[..., 0] | codes[..., 1] << 4
    packed = (
        packed.permute(0, 1, 3, 2, 4)
        if hasattr(packed, "permute")
        else packed.transpose(0, 1, 3, 2, 4)
    )
    tiles = packed.reshape(out, chunks, 32, 16)
    pairs = _padded(scales.reshape(out, -1), chunks * 16).reshape(out, chunks, 8, 2)
    if isinstance(tiles, np.ndarray):
        return FourBitTiles(
            np.ascontiguousarray(tiles), np.ascontiguousarray(pairs), out, columns, bias
        )
    return FourBitTiles(tiles.contiguous(), pairs.contiguous(), out, columns, bias)


def _padded(rows: Any, width: int) -> Any:
    missing = width - rows.shape[1]
    if missing == 0:
        return rows
    if isinstance(rows, np.ndarray):
        return np.pad(rows, ((0, 0), (0, missing)))
    return rows.new_zeros((rows.shape[0], width)).index_copy_(1, _range(rows), rows)


def _range(rows: Any) -> Any:
    import torch

    return torch.arange(rows.shape[1], device=rows.device)
