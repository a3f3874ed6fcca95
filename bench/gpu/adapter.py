"""PEFT adapters of a model's shape with random values, because speed does not depend on them."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from confide.worker.config import ModelConfig
from safetensors.torch import save_file

RANK, ALPHA = 32, 64
MODULES = {
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "o": "self_attn.o_proj",
}


def write_random_adapter(
    folder: Path, config: ModelConfig, seed: int = 11, layers: int | None = None, rank: int = RANK
) -> Path:
    """Writes q, k, v, o of the first `layers` layers (None: all), with A and B from N(0, 0.02²); gives the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(seed)
    widths, tensors = config.widths(), {}
    for layer in range(layers or config.layers):
        for projection, module in MODULES.items():
            width, out = widths[projection]
            at = f"base_model.model.model.layers.{layer}.{module}"
            tensors[f"{at}.lora_A.weight"] = torch.randn(rank, width, generator=generator) * 0.02
            tensors[f"{at}.lora_B.weight"] = torch.randn(out, rank, generator=generator) * 0.02
    save_file(tensors, folder / "adapter_model.safetensors")
    fields = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": None,
        "r": rank,
        "lora_alpha": ALPHA,
        "bias": "none",
        "target_modules": [module.split(".")[1] for module in MODULES.values()],
    }
    (folder / "adapter_config.json").write_text(
        json.dumps(fields, indent=2) + "\n", encoding="utf-8"
    )
    return folder
