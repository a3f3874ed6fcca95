"""A small model of random weights in llama.cpp's format, and llama.cpp's own server with it.

usage: llama_server.py make FILE SEED
       llama_server.py serve FILE
`serve` prints the address once it listens, and ends with its standard input.
"""

import sys
from typing import Any

WIDTH, INNER, HEADS, LAYERS, CONTEXT = 64, 128, 4, 2, 2048


def main() -> None:
    if sys.argv[1] == "make":
        make_model(sys.argv[2], int(sys.argv[3]))
    else:
        serve(sys.argv[2])


def make_model(path: str, seed: int) -> None:
    """Writes a Llama of two layers whose tokens are bytes. What it says is noise."""
    import gguf
    import numpy as np

    draw = np.random.default_rng(seed)

    def tensor(*shape: int) -> Any:
        return (0.3 * draw.standard_normal(shape)).astype(np.float32)

    tokens = [b"<unk>", b"<s>", b"</s>", *(b"<0x%02X>" % byte for byte in range(256)), "▁".encode()]
    kind = gguf.TokenType
    kinds = [kind.UNKNOWN, kind.CONTROL, kind.CONTROL, *[kind.BYTE] * 256, kind.NORMAL]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("random")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_file_type(0)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([-float(place) for place in range(len(tokens))])
    writer.add_token_types(kinds)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    ones = np.ones(WIDTH, np.float32)
    writer.add_tensor("token_embd.weight", tensor(len(tokens), WIDTH))
    writer.add_tensor("output_norm.weight", ones)
    writer.add_tensor("output.weight", tensor(len(tokens), WIDTH))
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"{block}{name}.weight", ones)
        for name in ("q", "k", "v", "output"):
            writer.add_tensor(f"{block}attn_{name}.weight", tensor(WIDTH, WIDTH))
        for name in ("gate", "up"):
            writer.add_tensor(f"{block}ffn_{name}.weight", tensor(INNER, WIDTH))
        writer.add_tensor(f"{block}ffn_down.weight", tensor(WIDTH, INNER))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def serve(path: str) -> None:
    """Runs llama.cpp's server. It maps the file of weights into memory, as by default."""
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = path
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.n_ctx = CONTEXT
    parameters.n_parallel = 1
    parameters.warmup = False
    server = xllamacpp.Server(parameters)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
