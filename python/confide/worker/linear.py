"""Matrices of a decoder: plain ones, and 4-bit ones in groups."""

from __future__ import annotations

from typing import Protocol

import torch
import torch.nn.functional as functional
from torch import Tensor

# Inputs that share one scale and one offset. torch's own 4-bit product takes 32, 64, 128 and 256.
GROUP = 128
# Layout of torch's 4-bit product on CUDA: eight tiles of 16 inputs each belong together.
INNER_TILES = 8
# Rows that are quantised together: their float32 copies are all the memory that it takes beyond the matrix.
ROWS_AT_ONCE = 4096


class Matrix(Protocol):
    """`x -> x · Wᵀ (+ bias)`; x [T, in], result [T, out]."""

    out: int

    def __call__(self, rows: Tensor) -> Tensor:
        """Returns the product [T, out] with rows [T, in], bias added."""

    def add_to(self, target: Tensor, rows: Tensor) -> None:
        """Adds the product to `target` [T, out] in place."""

    def bytes(self) -> int:
        """Returns the bytes of device memory that the matrix takes."""


class PlainMatrix:
    """A weight [out, in] in the model's type, and a bias [out] or None."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.weight, self.bias = weight, bias
        self.out = weight.shape[0]

    def __call__(self, rows: Tensor) -> Tensor:
        """Returns the product [T, out] with rows [T, in], bias added."""
        return functional.linear(rows, self.weight, self.bias)

    def add_to(self, target: Tensor, rows: Tensor) -> None:
        """Adds the product to `target` [T, out] in place."""
        # One kernel: the product's own epilogue adds. No matrix that is used so has a bias.
        target.addmm_(rows, self.weight.t())

    def bytes(self) -> int:
        """Returns the bytes of device memory that the matrix takes."""
        bias = 0 if self.bias is None else self.bias.nbytes
        return self.weight.nbytes + bias


class FourBitMatrix:
    """A weight [out, in] in 4 bits: `(q − 8) · scale + offset` for each group of inputs, scale and offset in bfloat16.

    `codes` [out, in] hold q in 0..15, two to a byte, the even input in the high half: what torch's CUDA product wants.
    """

    def __init__(
        self,
        codes: Tensor,
        scales: Tensor,
        bias: Tensor | None = None,
        dtype: torch.dtype = torch.bfloat16,
    ) -> None:
        self.codes, self.scales, self.bias, self.dtype = codes, scales, bias, dtype
        self.out, self.width = codes.shape[0], codes.shape[1] * 2
        self.packed: Tensor | None = None
        self.form = "dequantised at each product"

    def __call__(self, rows: Tensor) -> Tensor:
        """Returns the product [T, out] with rows [T, in], bias added."""
        if self.packed is None:
            return functional.linear(rows, self.dequantise(), self.bias)
        product = torch.ops.aten._weight_int4pack_mm(rows, self.packed, GROUP, self.scales)
        return product if self.bias is None else product.add_(self.bias)

    def add_to(self, target: Tensor, rows: Tensor) -> None:
        """Adds the product to `target` [T, out] in place."""
        target.add_(self(rows))

    def dequantise(self) -> Tensor:
        """The weight as the product takes it, [out, in] in the model's type."""
        high, low = self.codes >> 4, self.codes & 15
        values = torch.stack((high, low), dim=-1).reshape(self.out, self.width // GROUP, GROUP)
        scale, offset = self.scales.transpose(0, 1).float().unsqueeze(-1).unbind(2)
        return (
            ((values.float() - 8.0) * scale + offset).reshape(self.out, self.width).to(self.dtype)
        )

    def bytes(self) -> int:
        """Returns the bytes of device memory that the matrix takes."""
        kept = self.codes if self.packed is None else self.packed
        return kept.nbytes + self.scales.nbytes + (0 if self.bias is None else self.bias.nbytes)

    def pack(self) -> None:
        """Changes to torch's own product where that gives what the dequantised weight gives; else stays as it is."""
        if self.codes.device.type != "cuda" or self.dtype != torch.bfloat16 or self.out % 8:
            return
        try:
            packed = torch.ops.aten._convert_weight_to_int4pack(self.codes, INNER_TILES)
            rows = torch.linspace(
                -1, 1, self.width, device=packed.device, dtype=self.dtype
            ).unsqueeze(0)
            got = torch.ops.aten._weight_int4pack_mm(rows, packed, GROUP, self.scales).float()
            wanted = rows.float() @ self.dequantise().float().t()
            if (got - wanted).norm() > 0.02 * wanted.norm():
                return
        except RuntimeError:
            return
        self.packed, self.form = packed, "torch's 4-bit product"
        self.codes = self.codes[:, :0]


def quantise(weight: Tensor, bias: Tensor | None = None) -> FourBitMatrix:
    """Makes a 4-bit matrix of a plain one, on the device where it lies. The inputs must be a multiple of the group."""
    width = weight.shape[1]
    if width % GROUP:
        raise ValueError(f"4-bit weights: wanted inputs in groups of {GROUP}, got {width}")
    parts = [quantise_rows(rows) for rows in weight.split(ROWS_AT_ONCE)]
    codes, scales = (torch.cat(part) for part in zip(*parts))
    return FourBitMatrix(codes, scales.transpose(0, 1).contiguous(), bias, weight.dtype)


def quantise_rows(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Makes codes of some rows, two to a byte [rows, in / 2], with scales and offsets [rows, groups, 2]."""
    out, width = weight.shape
    groups = weight.float().reshape(out, width // GROUP, GROUP)
    least, most = groups.amin(-1), groups.amax(-1)
    scale = ((most - least) / 15.0).clamp(min=1e-6).to(torch.bfloat16)
    # The offset is the value of code 8, rounded first so that codes are chosen for what is kept.
    offset = (least + 8.0 * scale.float()).to(torch.bfloat16)
    codes = (groups - offset.float().unsqueeze(-1)) / scale.float().unsqueeze(-1) + 8.0
    codes = codes.round_().clamp_(0, 15).to(torch.uint8).reshape(out, width)
    return codes[:, 0::2] << 4 | codes[:, 1::2], torch.stack((scale, offset), dim=-1)
