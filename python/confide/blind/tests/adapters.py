"""Small PEFT folders for tests, and what they add in plain float64."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy

from confide.sites import module_path

RANK, ALPHA = 4, 8.0
WIDTHS = {
    "q": (64, 64),
    "k": (64, 32),
    "v": (64, 32),
    "o": (64, 64),
    "gate": (64, 96),
    "up": (64, 96),
    "down": (96, 64),
}


def write_safetensors(path: Path, tensors: dict[str, numpy.ndarray]) -> None:
    header, body = {}, b""
    for name, values in tensors.items():
        raw = values.astype("<f4").tobytes()
        header[name] = {
            "dtype": "F32",
            "shape": list(values.shape),
            "data_offsets": [len(body), len(body) + len(raw)],
        }
        body += raw
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)


# A [rank, columns] and B [outputs, rank] by layer and projection.
Pairs = dict[tuple[int, str], tuple[numpy.ndarray, numpy.ndarray]]


def write_adapter(
    folder: Path, layers: int = 2, projections: str = "q v o", seed: int = 1, **config: Any
) -> Pairs:
    """Writes a folder; gives {(layer, projection): (a, b)}."""
    rng = numpy.random.default_rng(seed)
    pairs: Pairs = {}
    tensors: dict[str, numpy.ndarray] = {}
    for layer in range(layers):
        for projection in projections.split():
            columns, outputs = WIDTHS[projection]
            a = rng.normal(0, 0.1, (RANK, columns)).astype(numpy.float32)
            b = rng.normal(0, 0.1, (outputs, RANK)).astype(numpy.float32)
            pairs[(layer, projection)] = (a, b)
            path = f"base_model.model.model.layers.{module_path(layer, projection)}"
            tensors[f"{path}.lora_A.weight"], tensors[f"{path}.lora_B.weight"] = a, b
    folder.mkdir(parents=True, exist_ok=True)
    write_safetensors(folder / "adapter_model.safetensors", tensors)
    names = [f"{projection}_proj" for projection in projections.split()]
    settings: dict[str, Any] = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": RANK,
        "lora_alpha": ALPHA,
        "bias": "none",
        "target_modules": names,
        "lora_dropout": 0.0,
    } | config
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    return pairs


def plain(pairs: Pairs, layer: int, projection: str, rows: numpy.ndarray) -> numpy.ndarray:
    """scale · B · A · x in float64."""
    a, b = (each.astype(numpy.float64) for each in pairs[(layer, projection)])
    return ALPHA / RANK * (rows.astype(numpy.float64) @ a.T) @ b.T
