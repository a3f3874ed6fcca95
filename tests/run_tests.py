"""Runs the tests of the workspace, several programs of tests at a time: most of them wait most of the time.

    tests/run_tests.py [--jobs N]

Cargo runs one program after the other. What a program printed is shown as a whole, when it has ended.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from time import monotonic
from typing import Any

# The longest ones first, so that none is left over at the end.
LONGEST = [
    "peers",
    "tunnel",
    "worker",
    "interruption",
    "export",
    "prove_real",
    "features",
    "known_timing",
    "tsm",
]
# A program that has not ended by then hangs: the longest takes four minutes, most of which a peer is built.
DEADLINE_S = 900


# What runs now, for the one who interrupts.
RUNNING: set[subprocess.Popen[bytes]] = set()


def build_tests() -> list[dict[str, Any]]:
    command = [
        "cargo",
        "test",
        "--workspace",
        "--locked",
        "--no-run",
        "--message-format=json-render-diagnostics",
    ]
    built = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if built.returncode != 0:
        sys.exit(built.returncode)
    messages = [json.loads(line) for line in built.stdout.splitlines()]
    artifacts = [it for it in messages if it["reason"] == "compiler-artifact"]
    return [it for it in artifacts if it["profile"]["test"] and it["executable"]]


def position(artifact: dict[str, Any]) -> tuple[int, str]:
    name = artifact["target"]["name"]
    return (LONGEST.index(name) if name in LONGEST else len(LONGEST), artifact["executable"])


def read_version(manifest: Path) -> str:
    version = tomllib.loads(manifest.read_text())["package"]["version"]
    if isinstance(version, dict):
        version = tomllib.loads(Path("Cargo.toml").read_text())["workspace"]["package"]["version"]
    return str(version)


def run_program(artifact: dict[str, Any]) -> tuple[str, int, float, bytes]:
    """The program's name, exit status, seconds and output; as cargo runs it."""
    manifest = Path(artifact["manifest_path"])
    environment = {
        **os.environ,
        "CARGO": os.environ.get("CARGO", "cargo"),
        "CARGO_MANIFEST_DIR": str(manifest.parent),
        "CARGO_PKG_NAME": tomllib.loads(manifest.read_text())["package"]["name"],
        "CARGO_PKG_VERSION": read_version(manifest),
    }
    began = monotonic()
    # A file and no pipe: what a program leaves running in the background would keep a pipe open.
    with tempfile.TemporaryFile() as output:
        running = subprocess.Popen(
            [artifact["executable"]],
            cwd=manifest.parent,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        RUNNING.add(running)
        try:
            status = running.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            output.write(f"\nnot ended within {DEADLINE_S} s\n".encode())
            status = 124
        finally:
            RUNNING.discard(running)
            end_group(running)
            running.wait()
        output.seek(0)
        printed = output.read()
    name = f"{environment['CARGO_PKG_NAME']} {artifact['target']['src_path'].removeprefix(str(manifest.parent) + '/')}"
    return name, status, monotonic() - began, printed


def end_group(program: subprocess.Popen[bytes]) -> None:
    """Ends a program and its children, which are in its group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(program.pid, signal.SIGKILL)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=(os.cpu_count() or 1) + 1)
    jobs = parser.parse_args().jobs
    artifacts = sorted(build_tests(), key=position)
    if not artifacts:
        sys.exit("no program of tests was built")
    failed = []
    with ThreadPoolExecutor(jobs) as pool:
        try:
            for running in as_completed([pool.submit(run_program, it) for it in artifacts]):
                name, status, seconds, output = running.result()
                print(f"     Running {name} ({seconds:.1f} s)", flush=True)
                sys.stdout.buffer.write(output)
                sys.stdout.flush()
                if status != 0:
                    failed.append(f"{name}: status {status}")
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            for program in list(RUNNING):
                end_group(program)
            raise
    print(f"{len(artifacts)} programs of tests, {len(failed)} failed", *failed, sep="\n  ")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
