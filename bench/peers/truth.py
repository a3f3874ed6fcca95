"""An arm that knows the truth: the settings of the simulated engine (bench/PROTOCOL.md).

    python3 bench/peers/truth.py --ttft-ms N --tokens-per-second N

It measures nothing: it computes what a load generator without cost or delay would report.
"""

import argparse
import sys

from load_peer import Load, Metrics, serve_runs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ttft-ms", type=float, required=True)
    parser.add_argument("--tokens-per-second", type=float, required=True)
    settings = parser.parse_args()
    hello = {
        "arm": "what the engine was told",
        "version": "no measurement",
        "simulated": True,
        "guarantee": "none",
        "note": "computed, not measured; rates are what is offered",
    }
    return serve_runs(hello, lambda load: compute_truth(settings, load))


def compute_truth(settings: argparse.Namespace, load: Load) -> Metrics:
    token_ms = 1e3 / settings.tokens_per_second
    e2e_ms = settings.ttft_ms + (load.tokens - 1) * token_ms
    return {
        "completed_ratio": 1.0,
        "ttft_ms": settings.ttft_ms,
        "tpot_ms": token_ms,
        "itl_ms": token_ms,
        "ntpot_ms": e2e_ms / load.tokens,
        "e2e_ms": e2e_ms,
        "dispatch_ms": 0.0,
        "rate_per_s": load.rate_per_s,
        "tokens_per_s": load.rate_per_s * load.tokens,
    }


if __name__ == "__main__":
    sys.exit(main())
