"""PEFT's LoRA folders, read as crates/lora reads them: what PEFT would do, or a refusal by name."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .deltas import AdapterError, Site

CONFIG_BYTES_MAX = 1 << 20
WEIGHTS_BYTES_MAX = 4 << 30
RANK_MAX, WIDTH_MAX, LAYERS_MAX = 4096, 1 << 17, 1024
PATTERNS_MAX, NAMES_MAX, PATTERN_BYTES_MAX = 2048, 1 << 14, 1 << 14
ALPHA_MAX = 1e6
PICKLES = ("adapter_model.bin", "adapter_model.pt", "adapter_model.pth", "pytorch_model.bin")
PREFIX = "base_model.model."
STACKS = (
    "model.layers.", "layers.", "model.model.layers.", "model.language_model.layers.", "language_model.model.layers.",
)  # fmt: skip
MODULES = {
    "self_attn.q_proj": "q", "self_attn.k_proj": "k", "self_attn.v_proj": "v", "self_attn.o_proj": "o",
    "mlp.gate_proj": "gate", "mlp.up_proj": "up", "mlp.down_proj": "down",
}  # fmt: skip
# Fields that steer the training or say how the file came about.
WITHOUT_EFFECT = {
    "auto_mapping", "corda_config", "ensure_weight_tying", "eva_config", "fan_in_fan_out", "inference_mode",
    "loftq_config", "lora_dropout", "lora_ga_config", "megatron_core", "peft_version", "qalora_group_size", "revision",
    "runtime_config", "velora_config",
}  # fmt: skip
KNOWN = {
    "peft_type", "task_type", "base_model_name_or_path", "r", "lora_alpha", "use_rslora", "use_dora", "lora_bias",
    "bias",
    "rank_pattern", "alpha_pattern", "target_modules", "exclude_modules", "layers_to_transform", "layers_pattern",
    "modules_to_save", "init_lora_weights",
}  # fmt: skip
HARMLESS_STARTS = {"gaussian", "eva", "orthogonal", "mica", "true", "false"}
NAME = re.compile(r"(?P<module>.+)\.lora_(?P<part>[AB])(\.(?P<adapter>[^.]+))?\.weight")
LAYER = re.compile(r"(?P<layer>0|[1-9][0-9]{0,3})\.(?P<module>.+)")


@dataclass
class Pair:
    """One module's matrices in float32: `scale · B · (A · x)`; A [rank, in], B [out, rank]."""

    a: Tensor
    b: Tensor
    scale: float


def load(folder: Path) -> dict[Site, Pair]:
    """All pairs of the adapter in `folder`. Raises `AdapterError`."""
    config = read_config(folder)
    path = folder / "adapter_model.safetensors"
    if not path.is_file():
        for name in PICKLES:
            if (folder / name).exists():
                raise AdapterError(
                    f"{folder / name}: wanted safetensors, got a pickle, which is never opened"
                )
        raise AdapterError(f"{path}: cannot be read: no such file")
    if path.stat().st_size > WEIGHTS_BYTES_MAX:
        raise AdapterError(f"{path}: wanted at most {WEIGHTS_BYTES_MAX} bytes")
    tensors = read_tensors(path)
    stack, parts = sort(tensors)
    refuse_missing(config, stack, {site for site, _ in parts})
    pairs = {
        site: pair_of(config, stack, site, parts) for site in sorted({site for site, _ in parts})
    }
    if not pairs:
        raise AdapterError(f"{path}: any lora_A is missing")
    return pairs


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The file's tensors in float32."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors = load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise AdapterError(f"{path.name}: {error}") from error
    for name, tensor in tensors.items():
        if tensor.dtype not in (torch.float32, torch.float16, torch.bfloat16):
            raise AdapterError(f"{name}: wanted F32, F16 or BF16, got {tensor.dtype}")
        if not torch.isfinite(tensor).all():
            raise AdapterError(f"{name}: wanted finite values")
    return {name: tensor.float() for name, tensor in tensors.items()}


def read_config(folder: Path) -> dict[str, Any]:
    """`adapter_config.json`, refused where it asks for what is not done here."""
    path = folder / "adapter_config.json"
    try:
        with open(path, "rb") as file:
            text = file.read(CONFIG_BYTES_MAX + 1)
        raw = json.loads(text, object_pairs_hook=once)
    except OSError as error:
        raise AdapterError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise AdapterError(f"adapter_config.json: {error}") from error
    if len(text) > CONFIG_BYTES_MAX or not isinstance(raw, dict):
        raise AdapterError("adapter_config.json: wanted one object of at most a mebibyte")
    refuse(raw)
    return raw


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object without repeated names: of patterns the first that matches decides, so none may be lost."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice")
    return found


def refuse(raw: dict[str, Any]) -> None:
    """Fields whose value changes the output in a way that is not computed here."""
    start = raw.get("init_lora_weights")
    harmless = start is None or isinstance(start, bool) or str(start).lower() in HARMLESS_STARTS
    for name, holds, wanted in [
        ("peft_type", raw.get("peft_type") == "LORA", "LORA"),
        (
            "task_type",
            raw.get("task_type") in (None, "CAUSAL_LM", "FEATURE_EXTRACTION"),
            "CAUSAL_LM",
        ),
        ("bias", raw.get("bias") in (None, "none"), "none"),
        ("lora_bias", not raw.get("lora_bias"), "false"),
        ("modules_to_save", not raw.get("modules_to_save"), "no whole modules"),
        (
            "init_lora_weights",
            harmless,
            "a start that leaves the base model's weights as they were",
        ),
        (
            "use_dora",
            not raw.get("use_dora"),
            "false: magnitudes are folded by crates/lora, not here",
        ),
        ("target_modules", bool(raw.get("target_modules")), "names, a pattern or all-linear"),
    ]:
        if not holds:
            raise field(name, wanted, raw.get(name))
    for name, value in raw.items():
        if name not in KNOWN and name not in WITHOUT_EFFECT and not is_off(value):
            raise field(name, "nothing, null, false or empty", value)
    if (
        not 1 <= int(raw.get("r") or 8) <= RANK_MAX
        or abs(float(raw.get("lora_alpha") or 8)) > ALPHA_MAX
    ):
        raise field(
            "r", f"a rank from 1 to {RANK_MAX}, lora_alpha of at most a million", raw.get("r")
        )
    for name, most in (
        ("rank_pattern", PATTERNS_MAX),
        ("alpha_pattern", PATTERNS_MAX),
        ("target_modules", NAMES_MAX),
    ):
        value = raw.get(name) or {}
        if not isinstance(value, str) and len(value) > most:
            raise field(name, f"at most {most} entries", len(value))


def is_off(value: Any) -> bool:
    """null, false, or empty."""
    return value is None or value is False or value in ("", [], {})


def field(name: str, wanted: str, got: object) -> AdapterError:
    """The error for a field."""
    return AdapterError(f"adapter_config.json: {name}: wanted {wanted}, got {str(got)[:200]}")


def sort(tensors: dict[str, Tensor]) -> tuple[str, dict[tuple[Site, str], Tensor]]:
    """Each tensor at its site; all must lie in one stack of layers, under one adapter's name."""
    found: dict[tuple[Site, str], Tensor] = {}
    seen: tuple[str, str | None] | None = None
    for name in sorted(tensors):
        match = NAME.fullmatch(name.removeprefix(PREFIX)) if name.startswith(PREFIX) else None
        placed = site_of(match["module"]) if match else None
        if match is None or placed is None:
            raise AdapterError(
                f"adapter_model.safetensors: {name}: it is no part of a LoRA of a decoder's projections"
            )
        stack, site = placed
        here = (stack, match["adapter"])
        if seen not in (None, here) or (site, match["part"]) in found:
            raise AdapterError(
                f"adapter_model.safetensors: {name}: another stack or adapter, or there twice"
            )
        seen = here
        found[site, match["part"]] = tensors[name]
    return (seen or (STACKS[0], None))[0], found


def site_of(path: str) -> tuple[str, Site] | None:
    """The stack and the site of a module's path, in its one spelling."""
    for stack in STACKS:
        match = LAYER.fullmatch(path.removeprefix(stack)) if path.startswith(stack) else None
        if match and match["module"] in MODULES and int(match["layer"]) < LAYERS_MAX:
            return stack, (int(match["layer"]), MODULES[match["module"]])
    return None


def path_of(stack: str, site: Site) -> str:
    """The path of a site's module."""
    module = next(name for name, projection in MODULES.items() if projection == site[1])
    return f"{stack}{site[0]}.{module}"


def refuse_missing(config: dict[str, Any], stack: str, sites: set[Site]) -> None:
    """The configuration and the file must name the same modules; PEFT itself only warns."""
    listed = config.get("layers_to_transform") or []
    listed = listed if isinstance(listed, list) else [listed]
    last = max([layer for layer, _ in sites] + [int(layer) for layer in listed], default=-1)
    if last >= LAYERS_MAX:
        raise field("layers_to_transform", f"layers below {LAYERS_MAX}", last)
    for layer in range(last + 1):
        for projection in MODULES.values():
            path = path_of(stack, (layer, projection))
            wanted, there = chooses(config, path), (layer, projection) in sites
            if wanted and not there:
                raise AdapterError(
                    f"adapter_model.safetensors: {PREFIX}{path}.lora_A.weight is missing"
                )
            if there and not wanted:
                reason = "is there, but the configuration does not choose it"
                raise AdapterError(f"adapter_model.safetensors: {path} {reason}")


def chooses(config: dict[str, Any], path: str) -> bool:
    """Whether PEFT would give the module at `path` an adapter (check_target_module_exists, PEFT 0.21)."""
    excluded = config.get("exclude_modules")
    if excluded and named("exclude_modules", excluded, path):
        return False
    if not named("target_modules", config["target_modules"], path):
        return False
    indices, patterns = config.get("layers_to_transform"), config.get("layers_pattern")
    if indices is None or indices == []:
        return True
    patterns = [patterns] if isinstance(patterns, str) else patterns or []
    wholes = [rf"(?:^|.*?\.){pattern}\.(\d+)\." for pattern in patterns] or [r".*?\.[^.]*\.(\d+)\."]
    for whole in wholes:
        match = compiled("layers_pattern", whole).match(path)
        if match:
            return int(match[1]) in (indices if isinstance(indices, list) else [indices])
    return False


def named(name: str, wanted: str | list[str], path: str) -> bool:
    """A string is a pattern for the whole path, `all-linear` everything; a list names ends."""
    if isinstance(wanted, str):
        return wanted.lower() == "all-linear" or compiled(name, wanted).fullmatch(path) is not None
    return any(path == end or path.endswith("." + end) for end in wanted)


def compiled(name: str, pattern: str) -> re.Pattern[str]:
    """A regular expression from the file. Its owner is whoever may load adapters, who can stop the worker anyway."""
    if len(pattern) > PATTERN_BYTES_MAX:
        raise field(name, f"patterns of at most {PATTERN_BYTES_MAX} characters", len(pattern))
    try:
        return re.compile(pattern)
    except re.error as error:
        raise AdapterError(
            f"adapter_config.json: {name}: pattern {pattern[:200]!r}: {error}"
        ) from error


def by_pattern(config: dict[str, Any], name: str, path: str, otherwise: float) -> float:
    """The value of the first key that matches the path's end, as PEFT matches it."""
    for key, value in (config.get(name) or {}).items():
        if compiled(name, rf"(.*\.)?({key})$").match(path):
            return value
    return otherwise


def pair_of(
    config: dict[str, Any], stack: str, site: Site, parts: dict[tuple[Site, str], Tensor]
) -> Pair:
    """A site's matrices with their scale."""
    path = path_of(stack, site)
    rank = int(by_pattern(config, "rank_pattern", path, config.get("r") or 8))
    otherwise = 8 if config.get("lora_alpha") is None else config["lora_alpha"]
    alpha = float(by_pattern(config, "alpha_pattern", path, otherwise))
    for part in "AB":
        if (site, part) not in parts:
            raise AdapterError(
                f"adapter_model.safetensors: {PREFIX}{path}.lora_{part}.weight is missing"
            )
    a, b = parts[site, "A"], parts[site, "B"]
    if a.dim() != 2 or b.dim() != 2 or a.shape[0] != rank or b.shape[1] != rank:
        raise AdapterError(
            f"{path}: wanted A [{rank}, in] and B [out, {rank}], got {list(a.shape)}, {list(b.shape)}"
        )
    if not 0 < a.shape[1] <= WIDTH_MAX or not 0 < b.shape[0] <= WIDTH_MAX or abs(alpha) > ALPHA_MAX:
        raise AdapterError(
            f"{path}: wanted widths of at most {WIDTH_MAX}, got {a.shape[1]} and {b.shape[0]}"
        )
    return Pair(a, b, alpha / math.sqrt(rank) if config.get("use_rslora") else alpha / rank)
