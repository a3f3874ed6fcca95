"""Both roles of the blind protocol (docs/blind-protocol.md) in Python: key holder and adapter host of private LoRA.

The integers, bytes and refusals are those of crates/lora; vectors/lora binds the two. `confide.blind.adapter` has what
the worker asks for adapters of the kinds `one-graph`, `ipc` and `blind`.
"""
