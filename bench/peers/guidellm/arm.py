"""The peer arm: GuideLLM against an OpenAI-compatible server (bench/PROTOCOL.md).

    .venv-guidellm/bin/python bench/peers/guidellm/arm.py --target http://HOST:PORT --model NAME

Its own command runs, its own report is read. Two things are not as shipped: `standin` stands in
for torch, of which it uses a data loader (2.7 GB to fetch), and `continuous_usage_stats`, vLLM's
extension of the API which it always asks for, is taken out of its requests.
"""

import argparse
import importlib.metadata
import json
import os
import pathlib
import sys
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

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
    version = importlib.metadata.version("guidellm")
    hello = {
        "arm": "guidellm run",
        "version": f"guidellm {version}",
        "guarantee": "none",
        "threads": os.cpu_count() or 1,
        "note": "a stand-in for torch's data loader; CPU and wall time hold the tool's start",
    }
    with temporary_folder() as made:
        folder = pathlib.Path(made)
        words = write_word_tokenizer(folder / "tokenizer")
        return serve_runs(hello, lambda load: measure(arguments, load, folder, words))


def measure(
    arguments: argparse.Namespace, load: Load, folder: pathlib.Path, words: pathlib.Path
) -> Metrics:
    prompts, report = folder / "prompts.jsonl", folder / "report.json"
    report.unlink(missing_ok=True)
    rows = load.prompts(load.requests)
    lines = [json.dumps({"prompt": row, "output_tokens_count": load.tokens}) for row in rows]
    prompts.write_text("\n".join(lines) + "\n")
    backend = {
        "kind": "openai_http",
        "target": arguments.target,
        "model": arguments.model,
        "request_format": "/v1/chat/completions",
        "http2": False,
        "extras": {"body": {"stream_options": {"continuous_usage_stats": None}}},
    }
    options = {
        "--backend": json.dumps(backend),
        "--profile": f"kind=constant,rate={load.rate_per_s}",
        "--constraint": f"kind=max_requests,count={load.requests}",
        "--tokenizer": f"kind=hf_auto,model={words}",
        "--data": f"kind=json_file,path={prompts}",
        "--output": f"kind=json,path={report}",
    }
    command = [sibling_program("guidellm"), "run", "--disable-console"]
    settings = {
        "PYTHONPATH": str(HERE / "standin"),
        "USE_TORCH": "0",
        "HF_HUB_OFFLINE": "1",
        # Ten is its default, whatever the machine.
        "GUIDELLM__MAX_WORKER_PROCESSES": str(min(os.cpu_count() or 1, 10)),
    }
    run_tool([*command, *(part for option in options.items() for part in option)], folder, settings)
    return figures(json.loads(report.read_text()), load)


def figures(report: dict[str, Any], load: Load) -> Metrics:
    metrics = report["benchmarks"][0]["metrics"]

    def mean(name: str, times: float = 1.0) -> float | None:
        summary = metrics[name]["successful"]
        return summary["mean"] * times if summary["count"] else None

    # 0.8.1 at times ends its run while the last request is under way: the report is then one short.
    completed: float = metrics["request_totals"]["successful"]
    load.require_completed_work(completed, mean("output_token_count"), lost=1)
    return {
        "completed_ratio": completed / load.requests,
        "ttft_ms": mean("time_to_first_token_ms"),
        "tpot_ms": mean("inter_token_latency_ms"),
        "ntpot_ms": mean("time_per_output_token_ms"),
        "e2e_ms": mean("request_latency", 1e3),
        "dispatch_ms": mean("request_dispatch_delay", 1e3),
        "rate_per_s": mean("requests_per_second"),
        "tokens_per_s": mean("output_tokens_per_second"),
    }


if __name__ == "__main__":
    sys.exit(main())
