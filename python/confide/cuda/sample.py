"""The greedy choice of a decode step in one launch: Python face of sample.cu."""

from __future__ import annotations

from typing import Any

from . import arrays, runtime

THREADS, LOADS = 256, 4
_LOGITS = {"float32": "float", "bfloat16": "bf16"}


class GreedyChoice:
    """Chooses the likeliest token of up to `rows_max` rows; for one stream at a time, whose graphs find its buffers."""

    def __init__(self, device: str, rows_max: int, vocabulary: int) -> None:
        self.device, self.rows_max, self.vocabulary = device, rows_max, vocabulary
        # Each thread loads a few logits once: more blocks would only wait for each other.
        self.blocks = -(-vocabulary // (THREADS * LOADS))
        self.values = arrays.zeros((rows_max, self.blocks), "float32", device)
        self.tokens = arrays.zeros((rows_max, self.blocks), "int32", device)
        self.counters = arrays.zeros(rows_max, "int32", device)

    def __call__(self, logits: Any, forbidden: Any, best: Any, token: Any) -> None:
        """Writes `best` float32 [B] and `token` int64 [B] from logits [B, vocabulary], float32 or bfloat16, without the
        `forbidden` bool [B, vocabulary]: the first of the likeliest; NaN where a logit is not a number.
        """
        rows, dtype = logits.shape[0], str(logits.dtype).removeprefix("torch.")
        if dtype not in _LOGITS or rows > self.rows_max or logits.shape[1] != self.vocabulary:
            wanted = f"at most {self.rows_max} rows of {self.vocabulary} in float32 or bfloat16"
            raise ValueError(f"logits: wanted {wanted}, got {tuple(logits.shape)} of {dtype}")
        module = runtime.Module("sample.cu", self.device, {"LOGIT": _LOGITS[dtype]})
        module.kernel("choose_greedy")(
            (self.blocks, rows), THREADS, logits, forbidden, best, token, self.values, self.tokens, self.counters,
            self.vocabulary, forbidden.shape[1],
        )  # fmt: skip
