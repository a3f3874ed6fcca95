"""An arm that knows the truth: what the simulated engine was told (bench/PROTOCOL.md).

    python3 bench/peers/told.py

It measures nothing. From the params `told_ttft_ms` and `told_tokens_per_s`, which the suite also gives
to `confide serve --engine sim`, it computes what a load generator without cost or delay would report.
"""

import sys

from load_peer import speak


def main():
    hello = {
        "arm": "what the engine was told",
        "version": "no measurement",
        "simulated": True,
        "guarantee": "none",
        "note": "computed from the suite's params; rates are what was offered",
    }
    return speak(hello, truth)


def truth(load):
    token_ms = 1e3 / load.told_tokens_per_s
    e2e_ms = load.told_ttft_ms + (load.tokens - 1) * token_ms
    return {
        "completed_ratio": 1.0,
        "ttft_ms": load.told_ttft_ms,
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
