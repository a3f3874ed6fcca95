"""PEFT's adapters, read as they come: crates/lora/src/peft, rule for rule.

What the two files say is taken only where it leads to the output that PEFT itself would give; everything else is
refused by name: a file left over, a matrix missing, a field that changes the result and is not known here. DoRA
needs the base model's weights and is left to the Rust host.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy

from .adapter_error import AdapterRefused
from .safetensors_file import read_tensors
from .sites import MODEL_PROJECTIONS, Site, module_path, source_of

CONFIG_FILE, WEIGHTS_FILE = "adapter_config.json", "adapter_model.safetensors"
CONFIG_BYTES_MAX = 1 << 20
RANK_MAX, WIDTH_MAX, LAYERS_MAX = 4096, 1 << 17, 1024
ELEMENTS_MAX = 1 << 30
PATTERNS_MAX, NAMES_MAX, PATTERN_BYTES_MAX = 2048, 1 << 14, 1 << 14
ALPHA_MAX = 1e6
_PREFIX = "base_model.model."
_STACKS = (
    "model.layers.",
    "layers.",
    "model.model.layers.",
    "model.language_model.layers.",
    "language_model.model.layers.",
)
_PICKLES = ("adapter_model.bin", "adapter_model.pt", "adapter_model.pth", "pytorch_model.bin")
# They steer the training, or say how the file came about; the output does not depend on them.
_WITHOUT_EFFECT = set(
    (
        "auto_mapping corda_config ensure_weight_tying eva_config fan_in_fan_out inference_mode "
        "loftq_config lora_dropout lora_ga_config megatron_core peft_version qalora_group_size "
        "revision runtime_config velora_config"
    ).split()
)
_KNOWN = set(
    (
        "peft_type task_type base_model_name_or_path r lora_alpha use_rslora use_dora lora_bias "
        "bias rank_pattern alpha_pattern target_modules exclude_modules layers_to_transform "
        "layers_pattern modules_to_save init_lora_weights"
    ).split()
)
_HARMLESS_STARTS = {"gaussian", "eva", "orthogonal", "mica", "true", "false"}


@dataclass(frozen=True)
class LoraPair:
    """delta(x) = scale · b · (a · x): a float32 [rank, input], b float32 [output, rank]."""

    a: numpy.ndarray
    b: numpy.ndarray
    scale: float


def load_adapter(folder: str | Path) -> tuple[str, dict[Site, LoraPair]]:
    """Reads the adapter in a folder: its name, and a pair for each (layer, projection)."""
    folder = Path(folder)
    config = _AdapterConfig(_read(folder / CONFIG_FILE, CONFIG_BYTES_MAX))
    path = folder / WEIGHTS_FILE
    pickle = next((name for name in _PICKLES if (folder / name).exists()), None)
    if not path.exists() and pickle:
        raise AdapterRefused(
            f"{folder / pickle}: wanted safetensors, got a pickle, which is never opened"
        )
    tensors = read_tensors(path)
    stack, modules = _sort_tensors(tensors)
    pairs = {}
    for site, parts in sorted(
        modules.items(), key=lambda item: (item[0][0], MODEL_PROJECTIONS.index(item[0][1]))
    ):
        pairs[site] = config.pair(stack + module_path(*site), parts)
    if not pairs:
        raise AdapterRefused(f"{WEIGHTS_FILE}: wanted at least one lora_A, got none")
    config.refuse_missing(stack, modules)
    _refuse_mixed_widths(pairs)
    if sum(pair.a.size + pair.b.size for pair in pairs.values()) > ELEMENTS_MAX:
        raise AdapterRefused(f"elements of the adapter: wanted at most {ELEMENTS_MAX}, got more")
    return folder.resolve().name, pairs


def into_final_hidden(pairs: dict[Site, LoraPair]) -> dict[Site, LoraPair]:
    """Keeps the pair of q_proj in layer 0 alone, for the last hidden state: report 003's delta, no LoRA."""
    pair = pairs.get((0, "q"))
    if pair is None or pair.a.shape[1] != pair.b.shape[0]:
        got = "no pair" if pair is None else f"{pair.b.shape[0]}x{pair.a.shape[1]}"
        raise AdapterRefused(
            f"final-hidden: wanted q_proj of layer 0 with equal input and output widths, got {got}"
        )
    return {(0, "final_hidden"): pair}


def _read(path: Path, limit: int) -> bytes:
    if not path.is_file():
        raise AdapterRefused(f"{path}: cannot be read: it is not a plain file")
    try:
        with path.open("rb") as file:
            raw = file.read(limit + 1)
    except OSError as error:
        raise AdapterRefused(f"{path}: cannot be read: {error}") from error
    if len(raw) > limit:
        raise AdapterRefused(f"{path}: wanted at most {limit} bytes, got more")
    return raw


def _field_error(name: str, wanted: str, got: Any) -> AdapterRefused:
    return AdapterRefused(f"{CONFIG_FILE}: {name}: wanted {wanted}, got {str(got)[:200]}")


def _is_disabled(value: Any) -> bool:
    return value is None or value is False or value in ("", [], {})


class _AdapterConfig:
    """adapter_config.json, as far as the output depends on it."""

    def __init__(self, raw: bytes) -> None:
        try:
            fields = json.loads(raw, object_pairs_hook=_refuse_duplicate_keys)
        except ValueError as error:
            raise AdapterRefused(f"{CONFIG_FILE}: {error}") from error
        if not isinstance(fields, dict):
            raise AdapterRefused(f"{CONFIG_FILE}: wanted an object")
        _refuse_unsupported(fields)
        self.rank = _check_rank("r", 8 if fields.get("r") is None else fields["r"])
        self.alpha = _check_alpha(
            "lora_alpha", 8.0 if fields.get("lora_alpha") is None else fields["lora_alpha"]
        )
        self.rslora = bool(fields.get("use_rslora"))
        self.ranks = _patterns("rank_pattern", fields.get("rank_pattern"), _check_rank)
        self.alphas = _patterns("alpha_pattern", fields.get("alpha_pattern"), _check_alpha)
        self.chosen = _name_matcher("target_modules", fields.get("target_modules"))
        excluded = fields.get("exclude_modules")
        self.excluded = (
            None if _is_disabled(excluded) else _name_matcher("exclude_modules", excluded)
        )
        self.layers = _layer_filter(fields)
        if self.layers and not isinstance(fields["target_modules"], list):
            raise _field_error(
                "target_modules", "a list of names where layers_to_transform is given", "a pattern"
            )

    def targets(self, path: str) -> bool:
        """Whether the module at `path` is among those that the adapter changes."""
        if (self.excluded and self.excluded(path)) or not self.chosen(path):
            return False
        return self.layers is None or self.layers(path)

    def pair(self, path: str, parts: dict[str, tuple[str, numpy.ndarray]]) -> LoraPair:
        """The pair at `path`, with its shape and scale."""
        rank = next((rank for matches, rank in self.ranks if matches(path)), self.rank)
        alpha = next((alpha for matches, alpha in self.alphas if matches(path)), self.alpha)
        for part in ("A", "B"):
            if part not in parts:
                raise AdapterRefused(
                    f"{WEIGHTS_FILE}: {_PREFIX}{path}.lora_{part}.weight is missing"
                )
        (a_name, a), (b_name, b) = parts["A"], parts["B"]
        if a.ndim != 2 or a.shape[0] != rank or not 1 <= a.shape[1] <= WIDTH_MAX:
            raise AdapterRefused(f"{a_name}: wanted shape [{rank}, input], got {list(a.shape)}")
        if b.ndim != 2 or b.shape[1] != rank or not 1 <= b.shape[0] <= WIDTH_MAX:
            raise AdapterRefused(f"{b_name}: wanted shape [output, {rank}], got {list(b.shape)}")
        for name, values in (parts["A"], parts["B"]):
            if not numpy.isfinite(values).all():
                raise AdapterRefused(f"{name}: wanted finite values, got one that is not")
        return LoraPair(a, b, alpha / math.sqrt(rank) if self.rslora else alpha / rank)

    def refuse_missing(self, stack: str, modules: dict[Site, Any]) -> None:
        """Configuration and file must name the same modules; PEFT itself only warns."""
        last = max(layer for layer, _ in modules)
        for layer in range(max(last, getattr(self.layers, "last", 0)) + 1):
            for projection in MODEL_PROJECTIONS:
                path, there = stack + module_path(layer, projection), (layer, projection) in modules
                if self.targets(path) and not there:
                    raise AdapterRefused(
                        f"{WEIGHTS_FILE}: {_PREFIX}{path}.lora_A.weight is missing"
                    )
                if there and not self.targets(path):
                    raise AdapterRefused(
                        f"{WEIGHTS_FILE}: {path} is there, but the configuration does not select it"
                    )


def _refuse_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("wanted each key once, got one twice")
    return found


def _refuse_unsupported(fields: dict[str, Any]) -> None:
    if fields.get("peft_type") != "LORA":
        raise _field_error("peft_type", "LORA", fields.get("peft_type", "nothing"))
    if fields.get("task_type") not in (None, "CAUSAL_LM", "FEATURE_EXTRACTION"):
        raise _field_error("task_type", "CAUSAL_LM or FEATURE_EXTRACTION", fields["task_type"])
    if fields.get("bias") not in (None, "none"):
        raise _field_error("bias", "none", fields["bias"])
    if fields.get("lora_bias"):
        raise _field_error("lora_bias", "false", "true")
    if fields.get("use_dora"):
        raise _field_error(
            "use_dora", "false: the Rust host folds DoRA with the base model's weights", "true"
        )
    if not _is_disabled(fields.get("modules_to_save")):
        raise _field_error("modules_to_save", "null or an empty list", fields["modules_to_save"])
    start = fields.get("init_lora_weights")
    if not (start is None or isinstance(start, bool) or str(start).lower() in _HARMLESS_STARTS):
        raise _field_error(
            "init_lora_weights",
            "an initialisation that does not change the base model's weights",
            start,
        )
    for name, value in fields.items():
        if name not in _KNOWN and name not in _WITHOUT_EFFECT and not _is_disabled(value):
            raise _field_error(name, "an absent, null, false or empty field", value)


def _check_rank(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= RANK_MAX:
        raise _field_error(name, "a rank from 1 to 4096", value)
    return value


def _check_alpha(name: str, value: Any) -> float:
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not abs(value) <= ALPHA_MAX
    ):
        raise _field_error(name, "a number of at most a million", value)
    return float(value)


def _compile_pattern(name: str, pattern: str, whole: str) -> re.Pattern[str]:
    try:
        length = len(pattern.encode())
    except UnicodeEncodeError as error:
        raise _field_error(name, "patterns of Unicode text", repr(pattern)) from error
    if length > PATTERN_BYTES_MAX:
        raise _field_error(name, f"patterns of at most {PATTERN_BYTES_MAX} bytes", length)
    try:
        return re.compile(whole)
    except re.error as error:
        raise _field_error(
            name, "a pattern that is a regular expression", f"{pattern!r}: {error}"
        ) from error


def _patterns(name: str, value: Any, check: Any) -> list[tuple[Any, Any]]:
    if value is None:
        return []
    if not isinstance(value, dict) or len(value) > PATTERNS_MAX:
        raise _field_error(name, f"at most {PATTERNS_MAX} patterns", type(value).__name__)
    return [
        (_compile_pattern(name, key, rf"(.*\.)?({key})$").match, check(name, entry))
        for key, entry in value.items()
    ]


def _name_matcher(name: str, value: Any) -> Any:
    """A predicate on paths, by PEFT's rule (check_target_module_exists)."""
    if isinstance(value, str) and value.lower() == "all-linear":
        return lambda path: True
    if isinstance(value, str):
        return _compile_pattern(name, value, value).fullmatch
    if (
        not isinstance(value, list)
        or len(value) > NAMES_MAX
        or not all(isinstance(each, str) for each in value)
    ):
        raise _field_error(
            name, "names, a pattern or all-linear", "nothing" if value is None else value
        )
    wanted = set(value)
    return lambda path: (
        path in wanted or any(path[dot.end() :] in wanted for dot in re.finditer(r"\.", path))
    )


class _LayerFilter:
    def __init__(self, indices: set[int], patterns: list[re.Pattern[str]]) -> None:
        self.indices, self.patterns, self.last = indices, patterns, max(indices)

    def __call__(self, path: str) -> bool:
        for pattern in self.patterns:
            if found := pattern.match(path):
                return int(found.group("idx")) in self.indices
        return False


def _layer_filter(fields: dict[str, Any]) -> _LayerFilter | None:
    listed, patterns = fields.get("layers_to_transform"), fields.get("layers_pattern") or []
    patterns = [patterns] if isinstance(patterns, str) else patterns
    if listed is None or listed == []:
        if listed is None and patterns:
            raise _field_error("layers_pattern", "layers_to_transform to be set too", patterns[0])
        return None
    indices = listed if isinstance(listed, list) else [listed]
    if not all(isinstance(index, int) and 0 <= index < LAYERS_MAX for index in indices):
        raise _field_error("layers_to_transform", "layers from 0 to 1023", listed)
    if len(patterns) > PATTERNS_MAX:
        raise _field_error("layers_pattern", f"at most {PATTERNS_MAX} patterns", len(patterns))
    forms = [rf"(?:^|.*?\.){pattern}\.(?P<idx>\d+)\." for pattern in patterns] or [
        r".*?\.[^.]*\.(?P<idx>\d+)\."
    ]
    return _LayerFilter(
        set(indices), [_compile_pattern("layers_pattern", form, form) for form in forms]
    )


def _sort_tensors(
    tensors: dict[str, numpy.ndarray],
) -> tuple[str, dict[Site, dict[str, tuple[str, numpy.ndarray]]]]:
    """Puts every tensor at its site; all in one stack of layers, under one adapter's name."""
    modules: dict[Site, dict[str, tuple[str, numpy.ndarray]]] = {}
    one: tuple[str, str] | None = None
    for name in sorted(tensors):
        stack, site, part, adapter = _parse_tensor_name(name)
        if (one := one or (stack, adapter)) != (stack, adapter):
            raise AdapterRefused(
                f"{WEIGHTS_FILE}: {name}: it belongs to another stack of layers or another adapter"
            )
        if part in modules.setdefault(site, {}):
            raise AdapterRefused(f"{WEIGHTS_FILE}: {name}: it is in the file twice")
        modules[site][part] = (name, tensors[name])
    return (one or (_STACKS[0], ""))[0], modules


def _parse_tensor_name(name: str) -> tuple[str, Site, str, str]:
    found = re.fullmatch(
        r"base_model\.model\.(?P<module>.+)\.lora_(?P<part>[AB])(\.(?P<adapter>[^.]+))?\.weight",
        name,
    )
    if found:
        for stack in _STACKS:
            rest = found["module"].removeprefix(stack)
            place = re.fullmatch(r"(0|[1-9]\d{0,3})\.(self_attn|mlp)\.(\w+)_proj", rest)
            if found["module"].startswith(stack) and place and place[3] in MODEL_PROJECTIONS:
                layer, projection = int(place[1]), place[3]
                if layer < LAYERS_MAX and module_path(layer, projection) == rest:
                    return stack, (layer, projection), found["part"], found["adapter"] or ""
    raise AdapterRefused(
        f"{WEIGHTS_FILE}: {name}: wanted lora_A and lora_B of q, k, v, o, gate, up or down_proj of a decoder layer"
    )


def _refuse_mixed_widths(pairs: dict[Site, LoraPair]) -> None:
    widths: dict[tuple[int, int], int] = {}
    for (layer, projection), pair in pairs.items():
        wanted = widths.setdefault((layer, source_of(projection)), pair.a.shape[1])
        if wanted != pair.a.shape[1]:
            raise AdapterRefused(
                f"layer {layer}: wanted one width for all projections of one input, "
                f"got {pair.a.shape[1]} and {wanted}"
            )
