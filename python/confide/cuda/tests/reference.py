"""A decoder in numpy float64, one token at a time: what decode.py is compared with."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from confide.cuda.decode import Shape

TINY = Shape(
    hidden=64,
    layers=2,
    heads=4,
    kv_heads=2,
    head_dim=16,
    ffn=128,
    vocabulary=512,
    norm_epsilon=1e-6,
    window=None,
)


def random_weights(config: Any, seed: int, bias: bool = True) -> Any:
    """float32 weights of the shape, in the names that DecodeStep reads."""
    rng = np.random.default_rng(seed)

    def array(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)

    def norm() -> np.ndarray:
        return rng.uniform(0.5, 1.5, config.hidden).astype(np.float32)

    def matrix(out: int, columns: int, with_bias: bool = False) -> Any:
        return SimpleNamespace(weight=array(out, columns), bias=array(out) if with_bias else None)

    query, key = config.heads * config.head_dim, config.kv_heads * config.head_dim
    layers = [
        SimpleNamespace(
            attention_norm=norm(),
            qkv=matrix(query + 2 * key, config.hidden, bias),
            o=matrix(config.hidden, query),
            ffn_norm=norm(),
            gate_up=matrix(2 * config.ffn, config.hidden),
            down=matrix(config.hidden, config.ffn),
        )
        for _ in range(config.layers)
    ]
    embedding = array(config.vocabulary, config.hidden)
    return SimpleNamespace(
        embedding=embedding,
        layers=layers,
        final_norm=norm(),
        head=SimpleNamespace(weight=embedding, bias=None),
    )


def rotary(positions: int, turned: int, theta: float = 10_000.0) -> tuple[np.ndarray, np.ndarray]:
    """cosines and sines, float32 [positions, turned / 2]."""
    angles = np.arange(positions)[:, None] * theta ** (-np.arange(0, turned, 2) / turned)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


class Reference:
    """Feeds one sequence token by token; `logits(token)` is float64 [vocabulary]. `deltas` maps (layer, projection) to
    a matrix [out, in] that is added to the projection's."""

    def __init__(
        self, config: Any, weights: Any, cosines: np.ndarray, sines: np.ndarray, deltas: Any = None
    ) -> None:
        self.config, self.weights, self.cosines, self.sines = config, weights, cosines, sines
        self.deltas = deltas or {}
        self.keys: list[list[np.ndarray]] = [[] for _ in range(config.layers)]
        self.values: list[list[np.ndarray]] = [[] for _ in range(config.layers)]

    def logits(self, token: int) -> np.ndarray:
        config = self.config
        hidden = self.weights.embedding[token].astype(np.float64)
        query, key = config.heads * config.head_dim, config.kv_heads * config.head_dim
        for index, layer in enumerate(self.weights.layers):
            normed = self.norm(hidden, layer.attention_norm)
            qkv = layer.qkv.weight @ normed + (0 if layer.qkv.bias is None else layer.qkv.bias)
            parts = np.split(qkv, [query, query + key])
            for place, name in enumerate(("q", "k", "v")):
                parts[place] = parts[place] + self.delta(index, name, normed)
            attended = self.attend(index, *parts)
            hidden = hidden + layer.o.weight @ attended + self.delta(index, "o", attended)
            normed = self.norm(hidden, layer.ffn_norm)
            gate, up = np.split(layer.gate_up.weight @ normed, 2)
            gate, up = (
                gate + self.delta(index, "gate", normed),
                up + self.delta(index, "up", normed),
            )
            inner = gate / (1 + np.exp(-gate)) * up
            hidden = hidden + layer.down.weight @ inner + self.delta(index, "down", inner)
        normed = self.norm(hidden, self.weights.final_norm)
        return self.weights.head.weight @ (normed + self.delta(0, "final_hidden", normed))

    def delta(self, layer: int, projection: str, rows: np.ndarray) -> Any:
        matrix = self.deltas.get((layer, projection))
        return 0 if matrix is None else matrix @ rows

    def norm(self, hidden: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return hidden / np.sqrt((hidden**2).mean() + self.config.norm_epsilon) * weight

    def turn(self, heads: np.ndarray, position: int) -> np.ndarray:
        half = self.cosines.shape[1]
        cosine, sine = (
            self.cosines[position].astype(np.float64),
            self.sines[position].astype(np.float64),
        )
        first, second = heads[:, :half], heads[:, half : 2 * half]
        return np.concatenate(
            [first * cosine - second * sine, second * cosine + first * sine, heads[:, 2 * half :]],
            1,
        )

    def attend(
        self, index: int, query: np.ndarray, key: np.ndarray, value: np.ndarray
    ) -> np.ndarray:
        config, position = self.config, len(self.keys[index])
        self.keys[index].append(self.turn(key.reshape(config.kv_heads, -1), position))
        self.values[index].append(value.reshape(config.kv_heads, -1))
        heads = self.turn(query.reshape(config.heads, -1), position)
        begin = max(0, position + 1 - config.window) if config.window else 0
        keys, values = (
            np.stack(self.keys[index][begin:], 1),
            np.stack(self.values[index][begin:], 1),
        )
        attended = []
        for head, one in enumerate(heads):
            kv = head * config.kv_heads // config.heads
            scores = keys[kv] @ one / np.sqrt(config.head_dim)
            shares = np.exp(scores - scores.max())
            attended.append(shares / shares.sum() @ values[kv])
        return np.concatenate(attended)
