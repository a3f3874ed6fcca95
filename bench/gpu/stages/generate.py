"""The peer that everybody has: transformers' generate() on the same card, the same shape and type, random weights."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from blocks import Arm, ArmFailed, Measurement, StageSession, one_line
from decode_loop import DecodeLoop, model_config
from device import Device
from probe import choose_decoder
from variants import MODEL

PROMPT, TOKENS = 16, 64
# Compiling takes a minute: without that much left it is not begun.
COMPILE_S = 40.0


def run(session: StageSession) -> None:
    device, tokens = Device(session.cpu), 8 if session.cpu else TOKENS
    import transformers

    loop = DecodeLoop(device, slots=1, context=PROMPT + TOKENS + 1)
    choose_decoder(session, loop)
    peer = make_transformers_model(device, session.cpu)
    version = f"transformers {transformers.__version__}, torch {torch.__version__}"

    def base(seed: int) -> Measurement:
        took_s = loop.time_generation_s(PROMPT, tokens, seed)
        return Measurement([{"tokens_per_s": tokens / took_s}], floor=loop.weight_read_floor(1))

    def generate(**more: Any) -> Callable[[int], Measurement]:
        def measure(seed: int) -> Measurement:
            generator = torch.Generator().manual_seed(seed)
            prompt = torch.randint(0, peer.config.vocab_size, (1, PROMPT), generator=generator).to(
                device.torch_device
            )
            device.synchronize()
            began = time.perf_counter()
            out = peer.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=tokens,
                                min_new_tokens=tokens, pad_token_id=0, **more)  # fmt: skip
            device.synchronize()
            took_s = time.perf_counter() - began
            if out.shape[1] != PROMPT + tokens:
                raise ArmFailed(f"wanted {tokens} tokens, got {out.shape[1] - PROMPT}")
            return Measurement([{"tokens_per_s": tokens / took_s}], floor=loop.weight_read_floor(1))

        return measure

    def peer_arm(name: str, work: Callable[[int], Measurement]) -> Arm:
        return Arm(name, work, says=type(peer).__name__, version=version, guarantee="none")

    def base_arms() -> list[Arm]:
        return Arm("base", base, says=loop.says, guarantee="none").with_twin()

    params = {"model": MODEL, "batch": 1}
    # Eager first: torch's compiler leaves hooks and caches behind that the eager calls would go through.
    session.run_case_blocks(
        "generate", params, [*base_arms(), peer_arm("transformers", generate())]
    )
    bench, name = "generate-compiled", "transformers-compiled"
    compiled = generate(cache_implementation="static")
    left_out = session.facts.get("left_out", {}).get(f"{bench}/{name}")
    if reason := left_out or try_to_compile(session, bench, name, compiled):
        session.leave_out(bench, name, reason)
    else:
        session.run_case_blocks(bench, params, [*base_arms(), peer_arm(name, compiled)])


def try_to_compile(session: StageSession, bench: str, name: str, work: Any) -> str | None:
    """Makes the first call, which compiles; gives the reason where the compiled form cannot be measured."""
    if session.remaining_s() < (5.0 if session.cpu else COMPILE_S):
        return "no time left to compile"
    began = time.monotonic()
    try:
        work(0)
    except Exception as error:  # Whatever a compiler of theirs raises, the arm is left out by name.
        session.raise_if_card_lost(bench, name, error)
        return one_line(error)
    session.print_line(f"{name}: first call {time.monotonic() - began:.1f} s")
    return None


def make_transformers_model(device: Device, cpu: bool) -> Any:
    """Qwen2 of the same shape with transformers' own random weights, on the device."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    shape = model_config(MODEL, cpu)
    config = Qwen2Config(
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        intermediate_size=shape.ffn,
        vocab_size=shape.vocabulary,
        max_position_embeddings=shape.context,
        rms_norm_eps=shape.norm_epsilon,
        tie_word_embeddings=shape.tied,
        bos_token_id=None,
        eos_token_id=None,
    )
    torch.manual_seed(1)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device(device.torch_device):
            model = Qwen2ForCausalLM(config)
    finally:
        torch.set_default_dtype(before)
    return model.eval()
