"""The peer arm: AIPerf against an OpenAI-compatible server (bench/PROTOCOL.md).

    .venv-aiperf/bin/python bench/peers/aiperf/arm.py --target http://HOST:PORT --model NAME

Its own command runs, its own `profile_export_aiperf.json` is read. Tokens are the server's count.
"""

import argparse
import importlib.metadata
import json
import os
import pathlib
import shutil
import sys
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from load_peer import (
    Load,
    Metrics,
    run_tool,
    serve_runs,
    sibling_program,
    temporary_folder,
    write_word_tokenizer,
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", required=True)
    parser.add_argument("--model", default="sim")
    arguments = parser.parse_args()
    hello = {
        "arm": "aiperf profile",
        "version": f"aiperf {importlib.metadata.version('aiperf')}",
        "guarantee": "none",
        "threads": os.cpu_count() or 1,
        "note": "CPU and wall time hold the tool's start",
    }
    with temporary_folder() as made:
        folder = pathlib.Path(made)
        words = write_word_tokenizer(folder / "tokenizer")
        return serve_runs(hello, lambda load: measure(arguments, load, folder, words))


def measure(
    arguments: argparse.Namespace, load: Load, folder: pathlib.Path, words: pathlib.Path
) -> Metrics:
    prompts, artifacts = folder / "prompts.jsonl", folder / "artifacts"
    shutil.rmtree(artifacts, ignore_errors=True)
    lines = [json.dumps({"text": row}) for row in load.prompts(load.requests)]
    prompts.write_text("\n".join(lines) + "\n")
    options: dict[str, object] = {
        "--model": arguments.model,
        "--url": arguments.target,
        "--endpoint-type": "chat",
        "--tokenizer": words,
        "--input-file": prompts,
        "--custom-dataset-type": "single_turn",
        "--osl": load.tokens,
        "--request-rate": load.rate_per_s,
        "--arrival-pattern": "constant",
        "--request-count": load.requests,
        "--random-seed": load.seed % (1 << 31),
        "--artifact-dir": artifacts,
        "--ui": "none",
    }
    flags = ["--streaming", "--use-server-token-count", "--no-gpu-telemetry", "--no-server-metrics"]
    command = [sibling_program("aiperf"), "profile", *flags]
    run_tool([*command, *(part for option in options.items() for part in option)], folder, {})
    return figures(json.loads((artifacts / "profile_export_aiperf.json").read_text()), load)


def figures(report: dict[str, Any], load: Load) -> Metrics:
    def mean(name: str) -> float | None:
        return report[name]["avg"] if name in report else None

    completed = mean("request_count")
    load.require_completed_work(completed, mean("output_sequence_length"))
    assert completed is not None, "require_completed_work refuses a report without it"
    return {
        "completed_ratio": completed / load.requests,
        "ttft_ms": mean("time_to_first_token"),
        "tpot_ms": mean("inter_token_latency"),
        "itl_ms": mean("inter_chunk_latency"),
        "e2e_ms": mean("request_latency"),
        "dispatch_ms": mean("credit_to_start_latency"),
        "rate_per_s": mean("request_throughput"),
        "tokens_per_s": mean("output_token_throughput"),
    }


if __name__ == "__main__":
    sys.exit(main())
