"""From options to a scheduler: shape, weights, cache, recorded steps. Used by the program, the tests and bench/gpu."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from . import config as shapes
from . import protocol, weights
from .cache import SPARE, Cache, CacheSize, free_bytes, require_cache_fits
from .config import ConfigError, ModelConfig
from .generation import Generation
from .graphs import Stepper
from .model import Model
from .prefill import Limits
from .rows import Rows
from .schedule import Scheduler
from .status import versions

DTYPES = {"bf16": torch.bfloat16, "f32": torch.float32}
SLOTS = 32
CONTEXT_TOKENS = 4096


class RecordingListener:
    """A listener that keeps what it is told; for tests and measurements."""

    def __init__(self) -> None:
        self.said: dict[int, list[int]] = {}
        self.over: dict[int, Generation] = {}

    def emit_tokens(self, told: list[tuple[int, int]]) -> None:
        """Keeps tokens by their generation's number."""
        for number, token in told:
            self.said.setdefault(number, []).append(token)

    def emit_end(self, generation: Generation) -> None:
        """Keeps a generation that ended by its number."""
        self.over[generation.request.number] = generation


@dataclass
class BuiltWorker:
    """A worker without its socket."""

    config: ModelConfig
    model: Model
    scheduler: Scheduler
    welcome: dict[str, Any]


@dataclass
class Options:
    """What `build_worker` reads of the command line, for those who have none. `model` is a folder or a shape's name."""

    model: str
    device: str = "cpu"
    dtype: str = "f32"
    slots: int = 4
    context: int = CONTEXT_TOKENS
    queue: int = 64
    random_weights: int | None = None
    layers: int | None = None
    weight_bits: int | None = None
    chunk: int = 512
    cache_bytes: int = 0
    prefill_bytes: int = 0
    decoder: str = "auto"
    no_graphs: bool = False
    no_warm: bool = False
    name: str | None = None


def build_worker(options: argparse.Namespace | Options) -> BuiltWorker:
    """Loads everything that a worker needs. Errors say what is wrong in one line."""
    device, dtype = resolve_device(options.device), DTYPES[options.dtype]
    config, folder = load_model_config(options.model)
    whole = config.layers
    if options.layers is not None:
        config = replace(config, layers=min(max(options.layers, 1), whole))
    context = min(options.context, config.context) // 8 * 8
    if (
        context < 8
        or not 1 <= options.slots <= 256
        or not 0 <= options.queue <= 4096
        or options.chunk < 1
    ):
        raise ConfigError(
            "wanted --context of at least 8, --slots 1 to 256, --queue up to 4096, --chunk at least 1"
        )
    if config.window is not None and config.window >= context:
        config = replace(config, window=None)
    size = CacheSize(options.slots, context)
    room = free_bytes(device)
    if device.type == "cuda" and not options.weight_bits:
        room -= config.parameters() * dtype.itemsize
    # Before minutes of loading: a cache that cannot fit next to the weights is refused at once.
    require_cache_fits(
        config, dtype, size, min(room, options.cache_bytes) if options.cache_bytes else room
    )
    with torch.inference_mode():
        loaded = load_model_weights(options, config, folder, device, dtype)
        if config.layers < whole:
            loaded.label += f", {config.layers} layers only"
        model = Model(config, loaded, context + SPARE)
        cache = Cache(config, size, device, dtype, options.cache_bytes)
        rows = Rows(options.slots, context, config.vocabulary, cache.idle_position, device)
        stepper = Stepper(
            model,
            cache,
            rows,
            not options.no_graphs,
            resolve_decoder(options.decoder, config, device),
        )
        if not options.no_warm:
            stepper.record_without_adapters()
    limits = Limits(options.queue, options.chunk, options.prefill_bytes)
    scheduler = Scheduler(model, cache, rows, stepper, RecordingListener(), limits)
    name = options.name or (folder.resolve().name if folder else options.model)
    return BuiltWorker(config, model, scheduler, welcome(name, scheduler, options))


def resolve_device(name: str) -> torch.device:
    """Gives the device and makes it current. Raises `ConfigError`."""
    device = torch.device(name)
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise ConfigError(f"device {name}: torch finds no CUDA device; hint: use --device cpu")
        device = torch.device("cuda", device.index or 0)
        torch.cuda.set_device(device)
    elif device.type != "cpu":
        raise ConfigError(f"device: wanted cuda:N or cpu, got {name}")
    return device


def load_model_config(model: str) -> tuple[ModelConfig, Path | None]:
    """Gives the shape and the folder; a built-in shape has none."""
    if model in shapes.SHAPES and not Path(model).is_dir():
        return shapes.SHAPES[model], None
    return shapes.read(Path(model)), Path(model)


def load_model_weights(
    options: Any, config: ModelConfig, folder: Path | None, device: torch.device, dtype: torch.dtype
) -> weights.Weights:
    """Loads weights from the folder, or makes random ones where they are asked for."""
    bits = options.weight_bits or 0
    if options.random_weights is not None:
        return weights.random(config, options.random_weights, device, dtype, bits)
    if folder is None:
        raise ConfigError(
            f"model {options.model}: a built-in shape has no weights; hint: give --random-weights SEED"
        )
    return weights.load(config, folder, device, dtype, bits)


def resolve_decoder(name: str, config: ModelConfig, device: torch.device) -> str:
    """`auto` is the kernels on a CUDA device, where they are there."""
    if name != "auto":
        return name
    try:
        from . import kernels
    except ImportError:
        return "torch"
    return "kernels" if device.type == "cuda" and kernels.is_supported(config) else "torch"


def welcome(name: str, scheduler: Scheduler, options: Any) -> dict[str, Any]:
    """Gives the welcome frame's object."""
    model, cache = scheduler.model, scheduler.cache
    sites = {name: list(width) for name, width in model.config.widths().items()}
    return {
        "protocol": protocol.PROTOCOL,
        "model": name,
        "context_tokens": cache.size.context,
        "slots": cache.size.slots,
        "queue": scheduler.limits.queue,
        "device": device_name(model.device),
        "dtype": options.dtype,
        "weights": model.weights.label,
        "vocabulary": model.config.vocabulary,
        "sites": {"layers": model.config.layers, "widths": sites},
        "versions": versions(),
    }


def device_name(device: torch.device) -> str:
    """Describes the device."""
    return (
        f"{device} ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else str(device)
    )
