"""`python -m confide.worker`: loads a model, listens, says that it is ready, serves until its standard input ends."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

# How long after the end of standard input the process may take for a turn under way.
STOP_SECONDS = 4.0


def parse_arguments(given: list[str] | None = None) -> argparse.Namespace:
    """Reads the command line."""
    from .setup import CONTEXT_TOKENS, DTYPES, SLOTS

    parser = argparse.ArgumentParser(
        prog="python -m confide.worker", description=__doc__.splitlines()[0]
    )
    add = parser.add_argument
    add("--socket", type=Path, required=True, help="path of the Unix socket to make")
    add("--model", required=True, help="a folder with config.json, or a built-in shape's name")
    add("--device", default="cuda:0", help="cuda:N or cpu")
    add("--dtype", choices=sorted(DTYPES), default="bf16")
    add("--slots", type=int, default=SLOTS, help="generations that run at once")
    add(
        "--context",
        type=int,
        default=CONTEXT_TOKENS,
        help="context length in tokens, at most the model's own",
    )
    add("--queue", type=int, default=64, help="generations that may wait")
    add(
        "--random-weights",
        type=int,
        metavar="SEED",
        help="serve the model's shape with random weights",
    )
    add("--layers", type=int, help="use only this many layers; every answer says so")
    add("--weight-bits", type=int, choices=[4], help="quantise the layers' matrices on the device")
    add(
        "--chunk",
        type=int,
        default=512,
        help="largest number of prompt tokens read between two steps of other generations",
    )
    add("--cache-bytes", type=int, default=0, help="largest size of the cache")
    add("--prefill-bytes", type=int, default=0, help="largest size of a chunk's activations")
    add("--decoder", choices=["auto", "kernels", "torch"], default="auto")
    add(
        "--no-graphs",
        action="store_true",
        help="run decode steps directly instead of recording them as CUDA graphs",
    )
    add(
        "--no-warm",
        action="store_true",
        help="record steps when they are first needed, not at the start",
    )
    add("--name", help="the model's name in reports")
    return parser.parse_args(given)


def main() -> int:
    """Runs a worker; gives the exit status, 0 if it was asked to stop."""
    options = parse_arguments()
    stop = StopSignal()
    stop.watch()
    try:
        from .server import Server
        from .setup import build_worker
        from .status import status

        built = build_worker(options)
        server = Server(
            options.socket, built.scheduler, built.welcome, lambda: status(built.scheduler)
        )
    except Exception as error:
        print(
            f"worker: {error}" if str(error) else f"worker: {type(error).__name__}",
            file=sys.stderr,
            flush=True,
        )
        return 1
    stop.on_stop(server.stop)
    print(json.dumps({"ready": True, "protocol": 1, "pid": os.getpid()}), flush=True)
    try:
        server.run()
    except Exception as error:
        # The device or the worker itself is broken: the process that started it reads why, and starts another.
        import traceback

        traceback.print_exc()
        server.path.unlink(missing_ok=True)
        print(f"worker: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        sys.stderr.flush()
        os._exit(2)
    return 0


class StopSignal:
    """The three ways to be asked to stop: the end of standard input, SIGTERM, SIGINT. Each is clean at first; what
    takes too long is cut off.
    """

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.action: Callable[[], None] | None = None

    def watch(self) -> None:
        """Begins to listen for all three ways to be stopped."""
        for number in (signal.SIGTERM, signal.SIGINT):
            # A handler runs in the middle of anything, so it only starts what asks.
            signal.signal(
                number, lambda *_: threading.Thread(target=self.request_stop, daemon=True).start()
            )
        threading.Thread(target=self.watch_input, name="standard-input", daemon=True).start()

    def watch_input(self) -> None:
        """Reads standard input until its end, which is the end of `confide serve`."""
        with contextlib.suppress(OSError):
            # One that is not open has ended.
            while os.read(0, 4096):
                pass
        self.request_stop()

    def request_stop(self) -> None:
        """Stops, or, where nothing runs yet, leaves at once."""
        self.asked.set()
        if self.action is None:
            os._exit(0)
        self.action()
        threading.Thread(target=self.kill_after_deadline, name="cut-off", daemon=True).start()

    def kill_after_deadline(self) -> None:
        """Ends the process, however busy, when the time to stop in is over."""
        time.sleep(STOP_SECONDS)
        os._exit(0)

    def on_stop(self, action: Callable[[], None]) -> None:
        """Registers what stops the worker cleanly, once there is something to stop."""
        self.action = action
        if self.asked.is_set():
            action()


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads that wait for adapters or sockets must not keep the process.
    os._exit(code)
