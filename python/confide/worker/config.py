"""The shape of a decoder, read from a `config.json` of Hugging Face (Qwen2, Llama, Phi-3), or a built-in one."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..sites import Site, Width

CONFIG_BYTES_MAX = 1 << 20
DIMENSION_MAX = 1 << 20
LAYERS_MAX = 512
FAMILIES = ("qwen2", "llama", "phi3")


class ConfigError(Exception):
    """The model's shape is not one that this worker computes."""


@dataclass(frozen=True)
class Rope:
    """Rotary positions. `rotary` elements of each head turn, the rest stay.

    `kind` is default, linear (`factor`), llama3 (four numbers) or longrope (`short`; `scale` multiplies cos and sin).
    """

    theta: float
    rotary: int
    kind: str = "default"
    factor: float = 1.0
    low: float = 1.0
    high: float = 4.0
    original_context: int = 0
    short: tuple[float, ...] = ()
    scale: float = 1.0


@dataclass(frozen=True)
class ModelConfig:
    """Sizes in elements; `window` is the length of sliding attention in tokens, None for all."""

    family: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocabulary: int
    context: int
    norm_epsilon: float
    rope: Rope
    bias: bool = False
    tied: bool = False
    window: int | None = None
    end_of_text: tuple[int, ...] = field(default=())

    @property
    def query_width(self) -> int:
        """Elements of all query heads."""
        return self.heads * self.head_dim

    @property
    def key_width(self) -> int:
        """Elements of all key heads."""
        return self.kv_heads * self.head_dim

    def widths(self) -> dict[str, Width]:
        """Gives the input and output width of each projection."""
        hidden, ffn = self.hidden, self.ffn
        query, key = self.query_width, self.key_width
        return {
            "q": (hidden, query), "k": (hidden, key), "v": (hidden, key), "o": (query, hidden),
            "gate": (hidden, ffn), "up": (hidden, ffn), "down": (ffn, hidden), "final_hidden": (hidden, hidden),
        }  # fmt: skip

    def width(self, site: Site) -> Width | None:
        """Gives the widths at a site; None if the model has no such layer."""
        layer, projection = site
        layers = 1 if projection == "final_hidden" else self.layers
        return self.widths().get(projection) if 0 <= layer < layers else None

    def parameters(self) -> int:
        """Gives the number of weights."""
        query, key = self.query_width, self.key_width
        attention = self.hidden * (2 * query + 2 * key) + (query + 2 * key if self.bias else 0)
        layer = attention + 3 * self.hidden * self.ffn + 2 * self.hidden
        return self.layers * layer + self.hidden * (1 + self.vocabulary * (1 if self.tied else 2))


def read(folder: Path) -> ModelConfig:
    """Reads the shape of the model in `folder`."""
    path = folder / "config.json"
    try:
        with open(path, "rb") as file:
            text = file.read(CONFIG_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    if len(text) > CONFIG_BYTES_MAX:
        raise ConfigError(f"{path}: wanted at most {CONFIG_BYTES_MAX} bytes, got more")
    try:
        raw = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{path}: not JSON: {error}") from error
    if not isinstance(raw, dict):
        raise ConfigError(f"{path}: wanted an object")
    return parse(raw)


def parse(raw: dict[str, Any]) -> ModelConfig:
    """Reads the shape that a `config.json` describes, in the layout of transformers 4 or 5."""
    family = raw.get("model_type")
    if family not in FAMILIES:
        raise field_error("model_type", " or ".join(FAMILIES), family)
    refuse_unsupported(raw, family)
    heads = parse_whole_number(raw, "num_attention_heads", LAYERS_MAX)
    hidden = parse_whole_number(raw, "hidden_size", DIMENSION_MAX)
    head_dim = raw.get("head_dim") or hidden // heads
    window = raw.get("sliding_window") if family == "phi3" else None
    ends = raw.get("eos_token_id")
    config = ModelConfig(
        family=family,
        hidden=hidden,
        layers=parse_whole_number(raw, "num_hidden_layers", LAYERS_MAX),
        heads=heads,
        kv_heads=raw.get("num_key_value_heads") or heads,
        head_dim=head_dim,
        ffn=parse_whole_number(raw, "intermediate_size", DIMENSION_MAX),
        vocabulary=parse_whole_number(raw, "vocab_size", DIMENSION_MAX),
        context=parse_whole_number(raw, "max_position_embeddings", 1 << 24),
        norm_epsilon=float(raw.get("rms_norm_eps", 1e-6)),
        rope=parse_rope(raw, head_dim),
        bias=family == "qwen2",
        tied=bool(raw.get("tie_word_embeddings", False)),
        window=window,
        end_of_text=tuple(ends) if isinstance(ends, list) else () if ends is None else (ends,),
    )
    if config.heads % config.kv_heads or config.head_dim % 2 or config.rope.rotary % 2:
        raise ConfigError("config: heads must be a multiple of key heads, and head widths even")
    return with_exact_longrope(config)


def refuse_unsupported(raw: dict[str, Any], family: str) -> None:
    """Refuses by name what the three families allow and this worker does not compute."""
    flags = ["mlp_bias", "use_sliding_window"] + ([] if family == "qwen2" else ["attention_bias"])
    for flag in flags:
        if raw.get(flag):
            raise field_error(flag, "false", raw[flag])
    if raw.get("hidden_act", "silu") not in ("silu", "swish"):
        raise field_error("hidden_act", "silu", raw["hidden_act"])
    if raw.get("quantization_config"):
        raise field_error("quantization_config", "plain weights", "quantised ones")


def parse_rope(raw: dict[str, Any], head_dim: int) -> Rope:
    """Reads rotary positions from `rope_parameters` (transformers 5) or `rope_scaling` and `rope_theta` (4)."""
    given = dict(raw.get("rope_parameters") or raw.get("rope_scaling") or {})
    kind = given.get("rope_type") or given.get("type") or "default"
    theta = float(given.get("rope_theta") or raw.get("rope_theta") or 10_000.0)
    partial = given.get("partial_rotary_factor") or raw.get("partial_rotary_factor") or 1.0
    plain = Rope(theta=theta, rotary=int(head_dim * partial))
    if kind == "default":
        return plain
    if kind == "linear":
        return replace(plain, kind=kind, factor=float(given["factor"]))
    original: Any = given.get("original_max_position_embeddings") or raw.get(
        "original_max_position_embeddings"
    )
    try:
        if kind == "llama3":
            low, high = float(given["low_freq_factor"]), float(given["high_freq_factor"])
            factor = float(given["factor"])
            return replace(
                plain, kind=kind, factor=factor, low=low, high=high, original_context=int(original)
            )
        if kind in ("longrope", "su"):
            return parse_longrope(
                plain,
                given,
                int(original),
                parse_whole_number(raw, "max_position_embeddings", 1 << 24),
            )
    except (KeyError, TypeError) as error:
        raise ConfigError(f"config.json: rope_scaling: {kind}: {error} is missing") from error
    raise field_error("rope_type", "default, linear, llama3 or longrope", kind)


def parse_longrope(plain: Rope, given: dict[str, Any], original: int, context: int) -> Rope:
    """Phi-3's stretched positions, of which only those within the original context are exact for a cache."""
    from math import log, sqrt

    short = tuple(float(value) for value in given["short_factor"])
    if len(short) != plain.rotary // 2:
        raise field_error("short_factor", f"{plain.rotary // 2} numbers", len(short))
    factor = given.get("factor") or context / original
    scale = given.get("attention_factor")
    if scale is None:
        scale = 1.0 if factor <= 1 else sqrt(1 + log(factor) / log(original))
    return replace(
        plain, kind="longrope", original_context=original, short=short, scale=float(scale)
    )


def with_exact_longrope(config: ModelConfig) -> ModelConfig:
    """Longrope turns all positions otherwise once a text is longer than the original context, which keys in a cache
    cannot follow. So the context ends there, where the short factors are exact.
    """
    if config.rope.kind != "longrope":
        return config
    return replace(config, context=min(config.context, config.rope.original_context))


def parse_whole_number(raw: dict[str, Any], name: str, most: int) -> int:
    """Reads a whole number from 1 to `most`."""
    value = raw.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise field_error(name, f"a whole number from 1 to {most}", value)
    return value


def field_error(name: str, wanted: str, got: object) -> ConfigError:
    """Makes the error for a field of config.json."""
    return ConfigError(f"config.json: {name}: wanted {wanted}, got {got!r}")


def _llama(hidden: int, layers: int, heads: int, ffn: int) -> ModelConfig:
    scaled = Rope(500_000.0, 128, "llama3", factor=8.0, low=1.0, high=4.0, original_context=8192)
    return ModelConfig(
        "llama", hidden, layers, heads, 8, 128, ffn, 128_256, 131_072, 1e-5, scaled, end_of_text=(128_001, 128_009)
    )  # fmt: skip


SHAPES: dict[str, ModelConfig] = {
    "tiny": ModelConfig("qwen2", 64, 2, 4, 2, 16, 128, 512, 512, 1e-6, Rope(10_000.0, 16), bias=True, tied=True),
    "qwen2.5-1.5b": ModelConfig(
        "qwen2", 1536, 28, 12, 2, 128, 8960, 151_936, 32_768, 1e-6, Rope(1e6, 128), bias=True, tied=True,
        end_of_text=(151_643, 151_645),
    ),
    "qwen2.5-14b": ModelConfig(
        "qwen2", 5120, 48, 40, 8, 128, 13_824, 152_064, 32_768, 1e-6, Rope(1e6, 128), bias=True,
        end_of_text=(151_643, 151_645),
    ),
    "phi-3-medium-14b": ModelConfig(
        "phi3", 5120, 40, 40, 10, 128, 17_920, 32_064, 4096, 1e-5, Rope(10_000.0, 128), window=2047,
        end_of_text=(32_000, 32_007),
    ),
    "llama-3.1-8b": _llama(4096, 32, 32, 14_336),
    "llama-3.1-70b": _llama(8192, 80, 64, 28_672),
}  # fmt: skip
