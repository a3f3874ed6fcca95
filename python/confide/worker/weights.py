"""Weights of a decoder on their device: from safetensors, or random from a seed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .config import ModelConfig
from .linear import Matrix, PlainMatrix, quantise

INDEX_BYTES_MAX = 16 << 20
# Standard deviation of random matrices; that of Hugging Face's own initialisers.
SPREAD = 0.02


class WeightsError(Exception):
    """The weights cannot be loaded."""


@dataclass
class Layer:
    """One layer. q, k and v are one matrix, in this order; so are gate and up."""

    attention_norm: Tensor
    qkv: Matrix
    o: Matrix
    ffn_norm: Tensor
    gate_up: Matrix
    down: Matrix

    def matrices(self) -> tuple[Matrix, Matrix, Matrix, Matrix]:
        """Gives the layer's four matrices."""
        return self.qkv, self.o, self.gate_up, self.down


@dataclass
class Weights:
    """All weights; `label` says where they came from, in words that every report repeats."""

    embedding: Tensor
    layers: list[Layer]
    final_norm: Tensor
    head: Matrix
    label: str
    bits: int = 0

    def bytes(self) -> int:
        """Gives the bytes that the weights take; a head that is the embedding counts once."""
        matrices = sum(matrix.bytes() for layer in self.layers for matrix in layer.matrices())
        norms = sum(layer.attention_norm.nbytes + layer.ffn_norm.nbytes for layer in self.layers)
        tied = isinstance(self.head, PlainMatrix) and self.head.weight is self.embedding
        return (
            matrices
            + norms
            + self.final_norm.nbytes
            + self.embedding.nbytes
            + (0 if tied else self.head.bytes())
        )

    def bytes_per_token(self) -> int:
        """Gives the bytes that one decode step reads: all but the embedding's rows that are not looked up."""
        tied = isinstance(self.head, PlainMatrix) and self.head.weight is self.embedding
        return self.bytes() - (0 if tied else self.embedding.nbytes)


# Gives the part called `name` of a decoder, or of one layer, in the fused layout: [out, in] or [size].
Source = Callable[[str, tuple[int, ...]], Tensor]


def assemble(config: ModelConfig, source: Source, label: str, bits: int = 0) -> Weights:
    """Asks `source` for each part, layer by layer; with `bits` 4 each matrix of a layer is quantised at once, so that
    no more than one layer is held unquantised.
    """
    if bits not in (0, 4):
        raise WeightsError(f"weight bits: wanted 4 or none, got {bits}")

    def matrix(name: str, out: int, width: int, bias: Tensor | None = None) -> Matrix:
        weight = source(f"{name}.weight", (out, width))
        if not bits:
            return PlainMatrix(weight, bias)
        small = quantise(weight, bias)
        small.pack()
        return small

    hidden, qkv = config.hidden, config.query_width + 2 * config.key_width
    embedding = source("embedding.weight", (config.vocabulary, hidden))
    layers = []
    for index in range(config.layers):
        at = f"layers.{index}"
        bias = source(f"{at}.qkv.bias", (qkv,)) if config.bias else None
        layers.append(
            Layer(
                source(f"{at}.attention_norm.weight", (hidden,)),
                matrix(f"{at}.qkv", qkv, hidden, bias),
                matrix(f"{at}.o", hidden, config.query_width),
                source(f"{at}.ffn_norm.weight", (hidden,)),
                matrix(f"{at}.gate_up", 2 * config.ffn, hidden),
                matrix(f"{at}.down", hidden, config.ffn),
            )
        )
    if embedding.device.type == "cuda":
        # What quantising and loading took is given back before the cache is sized.
        torch.cuda.empty_cache()
    head = PlainMatrix(
        embedding if config.tied else source("head.weight", (config.vocabulary, hidden))
    )
    final = source("final_norm.weight", (hidden,))
    note = f"{label}, 4 bits in groups" if bits else label
    return Weights(embedding, layers, final, head, note, bits)


def random(
    config: ModelConfig, seed: int, device: torch.device, dtype: torch.dtype, bits: int = 0
) -> Weights:
    """Random weights of the true shape. Each tensor has its own stream, so that fewer layers are a beginning of more.

    They depend on the kind of device: torch's generators for CPU and CUDA differ.
    """

    def source(name: str, shape: tuple[int, ...]) -> Tensor:
        if name.endswith("norm.weight"):
            return torch.ones(shape, device=device, dtype=dtype)
        digest = hashlib.sha256(f"{seed} {name}".encode()).digest()
        generator = torch.Generator(device=device).manual_seed(
            int.from_bytes(digest[:8], "little") >> 1
        )
        return torch.empty(shape, device=device, dtype=dtype).normal_(
            0.0, SPREAD, generator=generator
        )

    return assemble(config, source, f"random from seed {seed}", bits)


def load(
    config: ModelConfig, folder: Path, device: torch.device, dtype: torch.dtype, bits: int = 0
) -> Weights:
    """Loads the weights in `folder`: model.safetensors, or several with an index."""
    from safetensors import SafetensorError, safe_open

    names = map_tensor_files(folder)
    opened: dict[str, Any] = {}
    used: set[str] = set()

    def tensor(name: str) -> Tensor:
        file = names.get(name)
        if file is None:
            raise WeightsError(f"{folder}: tensor {name} is missing")
        try:
            if file not in opened:
                opened[file] = safe_open(folder / file, framework="pt", device="cpu")
            found = opened[file].get_tensor(name)
        except (SafetensorError, OSError) as error:
            raise WeightsError(f"{folder / file}: {name}: {error}") from error
        used.add(name)
        return found

    def source(name: str, shape: tuple[int, ...]) -> Tensor:
        whole = torch.empty(shape, device=device, dtype=dtype)
        filled = 0
        for part in tensor_parts(config, name, names):
            found = tensor(part)
            if tuple(found.shape[1:]) != shape[1:] or filled + found.shape[0] > shape[0]:
                raise WeightsError(
                    f"{part}: wanted rows of {list(shape)}, got shape {list(found.shape)}"
                )
            if not found.is_floating_point():
                raise WeightsError(f"{part}: wanted floating point, got {found.dtype}")
            whole[filled : filled + found.shape[0]].copy_(found)
            filled += found.shape[0]
        if filled != shape[0]:
            raise WeightsError(f"{name}: wanted {shape[0]} rows, got {filled}")
        return whole

    weights = assemble(config, source, f"safetensors in {folder.name}", bits)
    refuse_unused_tensors(config, names, used)
    return weights


def map_tensor_files(folder: Path) -> dict[str, str]:
    """Gives each tensor's file by the tensor's name."""
    from safetensors import SafetensorError, safe_open

    single, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if index.is_file():
        if index.stat().st_size > INDEX_BYTES_MAX:
            raise WeightsError(f"{index}: wanted at most {INDEX_BYTES_MAX} bytes")
        files = json.loads(index.read_bytes()).get("weight_map", {})
        if any(
            "/" in str(file) or not str(file).endswith(".safetensors") for file in files.values()
        ):
            raise WeightsError(f"{index}: wanted only safetensors files of the same folder")
        return files
    if not single.is_file():
        raise WeightsError(
            f"{folder}: no safetensors; hint: --random-weights SEED serves the shape with random weights"
        )
    try:
        with safe_open(single, framework="pt", device="cpu") as file:
            return dict.fromkeys(file.keys(), single.name)
    except (SafetensorError, OSError) as error:
        raise WeightsError(f"{single}: {error}") from error


def tensor_parts(config: ModelConfig, name: str, names: dict[str, str]) -> Iterator[str]:
    """Gives Hugging Face's names of the tensors that make up one fused part, in order."""
    whole = {"embedding": "model.embed_tokens", "final_norm": "model.norm", "head": "lm_head"}
    module, kind = name.rsplit(".", 1)
    if module in whole:
        yield f"{whole[module]}.{kind}"
        return
    _, index, part = module.split(".")
    at = f"model.layers.{index}"
    split = {
        "attention_norm": ["input_layernorm"],
        "ffn_norm": ["post_attention_layernorm"],
        "qkv": [f"self_attn.{one}_proj" for one in ("q", "k", "v")],
        "o": ["self_attn.o_proj"],
        "gate_up": ["mlp.gate_proj", "mlp.up_proj"],
        "down": ["mlp.down_proj"],
    }
    fused = {"qkv": "self_attn.qkv_proj", "gate_up": "mlp.gate_up_proj"}
    if part in fused and f"{at}.{fused[part]}.{kind}" in names:
        yield f"{at}.{fused[part]}.{kind}"
        return
    for one in split[part]:
        yield f"{at}.{one}.{kind}"


def refuse_unused_tensors(config: ModelConfig, names: dict[str, str], used: set[str]) -> None:
    """Refuses a tensor without a place, which would change the output; cut-off layers and tables are none."""
    for name in sorted(set(names) - used):
        parts = name.split(".")
        cut = (
            parts[:2] == ["model", "layers"]
            and parts[2].isdigit()
            and int(parts[2]) >= config.layers
        )
        if (
            cut
            or name.endswith("rotary_emb.inv_freq")
            or (config.tied and name == "lm_head.weight")
        ):
            continue
        raise WeightsError(f"tensor {name} does not belong to this shape")
