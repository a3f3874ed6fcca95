"""The kernels of a decode step and of the masked step as torch operators, for engines that are not this project's.

    from confide.cuda import operators                     # registers torch.ops.confide
    normed = torch.ops.confide.rms_norm(hidden, weight, 1e-6)
    torch.ops.confide.add_private_deltas(table.words, adapter_of, offset_of, normed, [q, k, v], status, rows_max)

Each operator has a fake implementation, so that torch.compile, CUDA graphs and profilers treat it like one of torch's
own, and none has a gradient. Activations are float32 [B, width], weights bf16 or float32, B is 1 to 8 for `gemv` and
`gemv_add`: larger batches want tensor cores. All tensors of a call are on one device, but for the status words. On
"cpu" the operators run the kernels' CPU form, a test tool of the checkout.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from . import decode, online, runtime, tiling
from .tiling import Product

_ELEMENTS = {torch.bfloat16: "bf16", torch.float32: "float"}
_THREADS = 256


@torch.library.custom_op("confide::gemv", mutates_args=())
def gemv(
    weight: Tensor,
    bias: Tensor | None,
    rows: Tensor,
    norm: Tensor | None,
    epsilon: float,
    gated: bool,
) -> Tensor:
    """Computes rows [B, columns] times weight [out, columns], plus `bias` [out]: float32 [B, out].

    norm [columns]: the gains of an RMS norm of the rows with `epsilon`, which then costs no pass of its own. gated: the
    weight stacks gate on up, and the result is silu(gate) · up, [B, out / 2].
    """
    out = weight.shape[0]
    result = rows.new_empty(rows.shape[0], out // 2 if gated else out)
    _launch_gemv(weight, bias, rows, norm, epsilon, "SWIGLU" if gated else "STORE", result)
    return result


@gemv.register_fake
def _(
    weight: Tensor,
    bias: Tensor | None,
    rows: Tensor,
    norm: Tensor | None,
    epsilon: float,
    gated: bool,
) -> Tensor:
    out = weight.shape[0]
    return rows.new_empty(rows.shape[0], out // 2 if gated else out)


@torch.library.custom_op("confide::gemv_add", mutates_args=("output",))
def gemv_add(output: Tensor, weight: Tensor, bias: Tensor | None, rows: Tensor) -> None:
    """Adds rows [B, columns] times weight [out, columns], plus `bias`, to `output` float32 [B, out]."""
    _launch_gemv(weight, bias, rows, None, 0.0, "ADD", output)


@torch.library.custom_op("confide::rms_norm", mutates_args=())
def rms_norm(rows: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """Norms each of `rows` [B, width]: row · weight / sqrt(mean of squares + epsilon)."""
    result = torch.empty_like(rows)
    kernel = _kernel("norm.cu", "rms_norm", rows, ELEMENT=_element(weight))
    kernel(rows.shape[0], _THREADS, rows, weight, result, rows.shape[1], epsilon)
    return result


@rms_norm.register_fake
def _(rows: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    return torch.empty_like(rows)


@torch.library.custom_op("confide::swiglu", mutates_args=())
def swiglu(both: Tensor) -> Tensor:
    """Gives silu(gate) · up, [B, width], of rows [B, 2 · width] that hold gate, then up."""
    width = both.shape[1] // 2
    result = both.new_empty(both.shape[0], width)
    kernel = _kernel("norm.cu", "swiglu", both, ELEMENT="bf16")
    kernel((-(-width // _THREADS), both.shape[0]), _THREADS, both, result, width)
    return result


@swiglu.register_fake
def _(both: Tensor) -> Tensor:
    return both.new_empty(both.shape[0], both.shape[1] // 2)


@torch.library.custom_op("confide::embed", mutates_args=())
def embed(table: Tensor, tokens: Tensor) -> Tensor:
    """Gives the rows of `table` [vocabulary, width] of `tokens` int64 [B], as float32."""
    result = table.new_empty((tokens.shape[0], table.shape[1]), dtype=torch.float32)
    kernel = _kernel("embed.cu", "embed", table, WEIGHT=_element(table))
    kernel(tokens.shape[0], _THREADS, table, tokens, result, table.shape[1], table.shape[0])
    return result


@embed.register_fake
def _(table: Tensor, tokens: Tensor) -> Tensor:
    return table.new_empty((tokens.shape[0], table.shape[1]), dtype=torch.float32)


@torch.library.custom_op("confide::attend", mutates_args=("keys", "values", "counters"))
def attend(
    qkv: Tensor,
    keys: Tensor,
    values: Tensor,
    positions: Tensor,
    cosines: Tensor,
    sines: Tensor,
    counters: Tensor,
    limit: int,
    window: int,
    scale: float,
) -> Tensor:
    """Turns queries and keys, appends to the cache, and attends: float32 [B, heads · head_dim].

    qkv [B, (heads + 2 · kv_heads) · head_dim]: the heads of q, then k, then v. keys, values [slots, kv_heads, length,
    head_dim]: one layer's cache; row b is slot b. positions int64 [B]; a row whose position is not below `limit` is
    idle and gives zeros. cosines, sines [positions, turned elements / 2]. counters int32 [B, kv_heads]: zeros, and left
    so; of one stream at a time. window: how many positions count, 0 for all.
    """
    rows, (_, kv_heads, length, head_dim) = qkv.shape[0], keys.shape
    width = qkv.shape[1] - 2 * kv_heads * head_dim
    group = width // head_dim // kv_heads
    result = qkv.new_empty(rows, width)
    heads = tiling.AttentionShape(_element(keys), kv_heads * group, kv_heads, head_dim, rows)
    split = _tilings(_device_of(qkv)).of_attention(heads)
    splits = split.blocks(limit)
    partials = qkv.new_empty(rows, kv_heads, splits, group, head_dim + 2)
    kernel = _kernel(
        "attention.cu", "attention", qkv, ELEMENT=_element(keys), GROUP=group, HEAD_DIM=head_dim
    )
    kernel(
        (splits, kv_heads, rows), tiling.ATTENTION_THREADS, qkv, keys, values, positions, cosines, sines, result,
        partials, counters, length, limit, cosines.shape[1], window, split.least, scale,
    )  # fmt: skip
    return result


@attend.register_fake
def _(
    qkv: Tensor,
    keys: Tensor,
    values: Tensor,
    positions: Tensor,
    cosines: Tensor,
    sines: Tensor,
    counters: Tensor,
    limit: int,
    window: int,
    scale: float,
) -> Tensor:
    return qkv.new_empty(qkv.shape[0], qkv.shape[1] - 2 * keys.shape[1] * keys.shape[3])


@torch.library.custom_op("confide::add_private_deltas", mutates_args=("table", "outputs", "status"))
def add_private_deltas(
    table: Tensor,
    adapter_of: Tensor,
    offset_of: Tensor,
    rows: Tensor,
    outputs: Sequence[Tensor],
    status: Tensor,
    rows_max: int,
) -> None:
    """Runs both roles of the masked step at one input and adds what the adapters make of `rows` to `outputs`.

    table: `online.InputTable.words`, whose batches of masks are used up. adapter_of int32 [B]: which adapter a row
    meets, -1 for none. offset_of int32 [B]: how many of that adapter's rows stand before it. rows [B, width], outputs
    [B, width of each] of the projections that read this input, in the order of `confide.sites.READERS` (width 0 for one
    that the engine has not), float32 or bfloat16. status: int32 [B] in pinned host memory
    (`online.StatusWords.to_tensor`), written where a row is refused. rows_max: `online.InputTable.rows_max`, the most
    products that an adapter has at this input.
    """
    real = rows.new_empty((rows.shape[0], max(rows_max, 1)), dtype=torch.float32)
    used = rows.new_empty(rows.shape[0], dtype=torch.int32)
    online.launch_fused(
        _device_of(rows),
        table,
        rows_max,
        adapter_of,
        offset_of,
        rows,
        outputs,
        status.data_ptr(),
        real,
        used,
    )


@functools.cache
def _tilings(device: str) -> tiling.Tilings:
    return tiling.load_on(device)


def _launch_gemv(
    weight: Tensor,
    bias: Tensor | None,
    rows: Tensor,
    norm: Tensor | None,
    epsilon: float,
    kind: str,
    output: Tensor,
) -> None:
    batch, (out, columns) = rows.shape[0], weight.shape
    if not 1 <= batch <= decode.ROWS_MAX:
        raise ValueError(f"gemv: wanted 1 to {decode.ROWS_MAX} rows, got {batch}")
    element = _element(weight)
    product = Product(element, kind, norm is not None, out, columns, batch)
    chosen = _tilings(_device_of(rows)).of_product(product)
    kernel = _kernel("gemv.cu", "gemv", rows, **chosen.defines(product, element))
    kernel(chosen.grid(product), chosen.warps * 32, weight, bias, rows, norm, output, out, columns, epsilon,
           shared=chosen.shared_bytes(product))  # fmt: skip


def _kernel(file: str, name: str, like: Tensor, **defines: str | int) -> runtime.Kernel:
    return runtime.Module(file, _device_of(like), defines).kernel(name)


def _device_of(tensor: Tensor) -> str:
    return "cpu" if tensor.device.type == "cpu" else f"cuda:{tensor.device.index or 0}"


def _element(weight: Tensor) -> str:
    if weight.dtype not in _ELEMENTS:
        raise TypeError(f"weights: wanted bfloat16 or float32, got {weight.dtype}")
    return _ELEMENTS[weight.dtype]


# By the name under which torch has them.
OPERATORS: dict[str, Callable[..., Any]] = {
    "confide::gemv": gemv,
    "confide::gemv_add": gemv_add,
    "confide::rms_norm": rms_norm,
    "confide::swiglu": swiglu,
    "confide::embed": embed,
    "confide::attend": attend,
    "confide::add_private_deltas": add_private_deltas,
}
