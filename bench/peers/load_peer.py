"""What the arms of other load generators share (bench/PROTOCOL.md).

A tool is started for each run, with prompts and lengths drawn here from the run's seed, at a
constant rate; its own result file is read, and its own figures are handed on under the names of
bench/MODELS.md, `peers`. A figure that the tool does not have is left out. `cpu_s` and `wall_s` are
of the whole tool, with the start of its processes.
"""

import json
import os
import pathlib
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

# Figures by their names in bench/MODELS.md; None is one that the tool does not have.
Metrics = Mapping[str, float | None]
# An order of the harness: the object of its line of JSON.
Asked = dict[str, Any]

# Seven letters at most: the simulated engine counts each as one token.
WORDS = (
    "amber basin cedar delta ember field grove harbor island juniper kettle lantern meadow north "
    "orchard pebble quarry river summit timber upland valley willow yonder"
).split()
PARAMS = ["arrivals", "session", "rate_per_s", "prompt_tokens", "output_tokens"]
REQUESTS_MAX = 50_000
# Below the suite's deadline, so that the tool's own message is seen.
TOOL_DEADLINE_S = 150


class ToolFailed(Exception):
    """The tool gave no figures; the text goes to the harness."""


def serve_runs(hello: Mapping[str, object], run: "Callable[[Load], Metrics]") -> int:
    """Answers each `run` with what `run(load)` returns: the metrics of the whole run."""
    print_json_line(type="hello", protocol=1, **hello)
    for line in sys.stdin:
        asked = json.loads(line)
        if asked.get("type") == "end":
            break
        if asked.get("type") == "run":
            answer_run(asked, run)
    return 0


def answer_run(asked: Asked, run: "Callable[[Load], Metrics]") -> None:
    number, params = asked["id"], asked.get("params", {})
    unknown = [name for name in params if name not in PARAMS]
    if unknown:
        print_json_line(
            type="error", id=number, reason=f"unknown param {unknown[0]}: wanted one of {PARAMS}"
        )
        return
    wall, cpu = time.monotonic(), children_cpu_s()
    try:
        metrics = run(Load(asked))
    except (ToolFailed, OSError, ValueError, KeyError, TypeError) as error:
        print_json_line(type="error", id=number, reason=f"{type(error).__name__}: {error}"[:2000])
        return
    metrics = {name: value for name, value in metrics.items() if value is not None}
    cpu_s, wall_s = children_cpu_s() - cpu, time.monotonic() - wall
    print_json_line(type="done", id=number, metrics=metrics, cpu_s=cpu_s, wall_s=wall_s)


def print_json_line(**line: object) -> None:
    print(json.dumps(line), flush=True)


def children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Load:
    """The load of one run, from the order of the harness."""

    def __init__(self, asked: Asked) -> None:
        params = asked.get("params", {})
        for name, wanted in [("arrivals", "constant"), ("session", "kept")]:
            if params.get(name, wanted) != wanted:
                raise ValueError(f"param {name}: wanted {wanted}, which all tools have")
        self.requests = min(int(asked.get("requests", 1)), REQUESTS_MAX)
        self.seed = int(asked.get("seed", 0))
        self.rate_per_s = float(params["rate_per_s"])
        self.prompt_tokens = int(params["prompt_tokens"])
        self.tokens = int(params["output_tokens"])

    def prompts(self, count: int) -> list[str]:
        source = random.Random(self.seed)
        return [" ".join(source.choices(WORDS, k=self.prompt_tokens)) for _ in range(count)]

    def require_completed_work(
        self, completed: float | None, mean_tokens: float | None, lost: int = 0
    ) -> None:
        """Other work than was asked for gives no figures; `lost` requests may be missing."""
        if completed is None or not self.requests - lost <= completed <= self.requests:
            raise ToolFailed(f"{completed} of {self.requests} requests in its report")
        if mean_tokens is None or abs(mean_tokens - self.tokens) > 1e-6:
            raise ToolFailed(f"answers had {mean_tokens} tokens, wanted {self.tokens}")


def write_word_tokenizer(folder: pathlib.Path) -> pathlib.Path:
    """A tokenizer of one token for each word, made here: none is fetched from a hub."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    folder.mkdir(parents=True, exist_ok=True)
    names = ["<unk>", "</s>", *WORDS]
    model = models.WordLevel({name: at for at, name in enumerate(names)}, unk_token="<unk>")
    made = Tokenizer(model)
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": "<unk>",
        "eos_token": "</s>",
        "model_max_length": 131072,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    return folder


def temporary_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder that is removed when the arm ends: caches of the tools stay out of the home folder."""
    return tempfile.TemporaryDirectory(prefix="confide-peer-")


def run_tool(
    command: Sequence[object], folder: pathlib.Path, environment: Mapping[str, str]
) -> None:
    """Runs a tool to its end; its output goes to standard error."""
    home = folder / "home"
    home.mkdir(exist_ok=True)
    environment = {
        **os.environ,
        "HOME": str(home),
        "HF_HOME": str(home),
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "DO_NOT_TRACK": "1",
        "TOKENIZERS_PARALLELISM": "false",
        **environment,
    }
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        stderr=sys.stderr,
        timeout=TOOL_DEADLINE_S,
        check=False,
    )
    if done.returncode != 0:
        raise ToolFailed(
            f"{pathlib.Path(str(command[0])).name} ended with status {done.returncode}"
        )


def sibling_program(name: str) -> pathlib.Path:
    """A program of the virtual environment whose Python runs this."""
    return pathlib.Path(sys.prefix) / "bin" / name
