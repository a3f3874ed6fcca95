"""Small random models of the three families, as transformers makes them, for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

FAMILIES = ("qwen2", "llama", "phi3")
SMALL = {
    "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 96, "vocab_size": 160, "max_position_embeddings": 256, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip


def peer(family: str, seed: int = 1, **changes: Any) -> Any:
    """A transformers model with random weights, in float32 and evaluation mode."""
    import torch
    import transformers

    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    kinds: dict[str, tuple[Any, Any, dict[str, Any]]] = {
        "qwen2": (
            transformers.Qwen2Config,
            transformers.Qwen2ForCausalLM,
            {"tie_word_embeddings": True},
        ),
        "llama": (
            transformers.LlamaConfig,
            transformers.LlamaForCausalLM,
            {"rope_parameters": dict(LLAMA3)},
        ),
        "phi3": (transformers.Phi3Config, transformers.Phi3ForCausalLM, {}),
    }
    config_kind, model_kind, own = kinds[family]
    torch.manual_seed(seed)
    config = config_kind(**{**SMALL, **own, **changes})
    model = model_kind(config).eval()
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            # Initialisers leave biases and norms at 0 and 1, which would hide their misuse; and wider spread keeps
            # the logits of different tokens apart.
            spread = 0.3 if "bias" in name or "norm" in name else 0.35
            tensor.add_(torch.randn_like(tensor) * spread)
    return model


def save(model: Any, folder: Path, shard: str = "5GB") -> Path:
    """Writes config.json and safetensors."""
    model.save_pretrained(folder, max_shard_size=shard)
    return folder
