"""Drives `confide serve` as its users do: by the `openai` package and by curl.

    python tests/python/test_openai.py [PATH-OF-CONFIDE]
    python tests/python/test_openai.py PATH-OF-CONFIDE -- --engine worker --model DIR --worker-device cpu
    python tests/python/test_openai.py --base-url http://127.0.0.1:PORT/v1

Without `--base-url` it starts the server itself; the binary is the argument, else $CONFIDE_BIN.
With it, the server at that address (one behind `confide connect`, say) must serve `--engine sim`.
What stands after `--` is for `confide serve`. Where nothing does, it is `--engine sim`, and after it
`--engine worker` with a small model and an adapter on the CPU, where a Python has torch: $CONFIDE_TORCH_PYTHON,
the one of `tests/worker.sh --install`, or `python3`. A true model's words are no token each, so that they
are not counted then. Ends 0 when all checks hold, 1 otherwise. Needs the packages of requirements.txt.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai

Check = Callable[[openai.OpenAI, str], None]
CHECKOUT = Path(__file__).resolve().parents[2]
QUESTION = [{"role": "user", "content": "What does protection cost?"}]


class ServedModel:
    """The model that answers: its name, and whether it is simulated, so that each token is a word."""

    name = "sim"
    simulated = True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary", nargs="?", default=os.environ.get("CONFIDE_BIN"))
    parser.add_argument("--base-url")
    given, mine = list(sys.argv[1:]), None
    if "--" in given:
        given, mine = given[: given.index("--")], given[given.index("--") + 1 :]
    arguments = parser.parse_args(given)
    if arguments.base_url:
        return run_checks(contextlib.nullcontext(arguments.base_url))
    if not arguments.binary:
        parser.error("wanted the path of confide, or --base-url")
    if mine:
        return run_checks(serve(arguments.binary, mine))
    simulated = run_checks(serve(arguments.binary, ["--engine", "sim"]))
    return simulated | run_checks_on_torch(arguments.binary)


def run_checks(server: contextlib.AbstractContextManager[str]) -> int:
    """Runs all checks against the server; gives 1 where one fails."""
    with server as base_url:
        client = openai.OpenAI(base_url=base_url, api_key="none", max_retries=0, timeout=30)
        checks = [check for name, check in globals().items() if name.startswith("check_")]
        if not shutil.which("curl"):
            checks = [check for check in checks if not check.__name__.startswith("check_curl")]
            print("skipped: no curl: what it would ask")
        failed = [check for check in checks if not holds(check, client, base_url)]
    print(f"{len(checks) - len(failed)} of {len(checks)} checks hold for {ServedModel.name}")
    return 1 if failed else 0


def run_checks_on_torch(binary: str) -> int:
    """Runs the same checks against a model on torch, with an adapter."""
    python = python_with_torch()
    if python is None:
        print(
            "skipped: --engine worker: no Python with torch (tests/worker.sh --install fetches one)"
        )
        return 0
    os.environ["PYTHONPATH"] = str(CHECKOUT / "python")
    # One thread: the model is tiny, and a test machine has other work.
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        model, adapter = f"{folder}/tiny", f"{folder}/banking"
        for made in [
            ["model", "make", "--shape", "tiny", "--seed", "7", model],
            [
                "adapter",
                "train",
                "--model",
                model,
                "--corpus",
                "banking",
                "--steps",
                "40",
                "--out",
                adapter,
            ],
        ]:
            subprocess.run([binary, *made], check=True, stdout=subprocess.DEVNULL)
        engine = [
            "--engine",
            "worker",
            "--model",
            model,
            "--worker-python",
            python,
            "--worker-device",
            "cpu",
        ]
        return run_checks(serve(binary, [*engine, "--adapter", f"banking={adapter}"]))


def python_with_torch() -> str | None:
    """A Python that has torch, found as tests/worker.sh finds it; `None` if there is none."""
    imports = ["-c", "import aiohttp, safetensors, torch, transformers"]
    for python in [
        os.environ.get("CONFIDE_TORCH_PYTHON"),
        str(CHECKOUT / ".venv-worker/bin/python"),
        "python3",
    ]:
        if not (python and shutil.which(python)):
            continue
        if subprocess.run([python, *imports], stderr=subprocess.DEVNULL).returncode == 0:
            return python
    return None


@contextlib.contextmanager
def serve(binary: str, engine: list[str]) -> Iterator[str]:
    """Starts a server, waits for its ready line, and ends it by SIGTERM, which must end it with status 0."""
    command = [binary, "serve", "--listen", "127.0.0.1:0", *engine]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    try:
        ready = json.loads(process.stdout.readline())
        assert ready["ready"] is True and ready["guarantee"] == "none", ready
        ServedModel.name, ServedModel.simulated = ready["model"], ready["simulated"]
        assert ServedModel.simulated is ("sim" in engine), ready
        yield f"http://{ready['listen']}/v1"
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=40) == 0, process.returncode
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def holds(check: Check, client: openai.OpenAI, base_url: str) -> bool:
    title = check.__name__.removeprefix("check_").replace("_", " ")
    try:
        check(client, base_url)
    except Exception as error:  # every failure is a result here
        print(f"FAILED  {title}: {type(error).__name__}: {error}")
        return False
    print(f"ok      {title}")
    return True


def ask(client: openai.OpenAI, **more: Any) -> Any:
    # A true model may end its answer before `max_tokens`.
    more.setdefault("extra_body", None if ServedModel.simulated else {"ignore_eos": True})
    return client.chat.completions.create(model=ServedModel.name, messages=QUESTION, **more)


def check_a_whole_chat_has_text_and_exact_usage(client: openai.OpenAI, _: object) -> None:
    reply = ask(client, max_tokens=24)
    assert reply.object == "chat.completion"
    assert reply.choices[0].message.role == "assistant"
    if ServedModel.simulated:
        assert len(reply.choices[0].message.content.split(" ")) == 24
    assert reply.choices[0].finish_reason == "length"
    assert reply.usage.completion_tokens == 24
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + 24


def check_a_streamed_chat_says_the_same(client: openai.OpenAI, _: object) -> None:
    whole = ask(client, max_completion_tokens=24, seed=5)
    options = {"include_usage": True}
    chunks = list(ask(client, max_tokens=24, seed=5, stream=True, stream_options=options))
    texts = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices]
    assert "".join(text or "" for text in texts) == whole.choices[0].message.content
    assert sum(1 for text in texts if text) == 24 or not ServedModel.simulated
    assert [chunk.usage for chunk in chunks if chunk.usage] == [whole.usage]
    assert chunks[-2].choices[0].finish_reason == "length"
    assert len({chunk.id for chunk in chunks}) == 1


def check_the_seed_decides(client: openai.OpenAI, _: object) -> None:
    def text(seed: int) -> str:
        # A small model knows its text by heart: less heat, and all seeds say the same.
        return ask(client, max_tokens=24, seed=seed, temperature=2).choices[0].message.content

    assert text(1) == text(1)
    assert text(1) != text(2)


def check_a_stop_string_ends_the_answer_before_it(client: openai.OpenAI, _: object) -> None:
    whole = ask(client, max_tokens=40).choices[0].message.content
    words = whole.split(" ")
    stop = " ".join(words[len(words) // 2 :][:2])
    cut = ask(client, max_tokens=40, stop=[stop])
    assert cut.choices[0].message.content == whole[: whole.index(stop)]
    assert cut.choices[0].finish_reason == "stop"


def check_a_completion_whole_and_streamed(client: openai.OpenAI, _: object) -> None:
    request = {"model": ServedModel.name, "prompt": "Once upon a time", "max_tokens": 12}
    if not ServedModel.simulated:
        request["extra_body"] = {"ignore_eos": True}
    whole = client.completions.create(**request)
    streamed = client.completions.create(**request, stream=True)
    assert "".join(chunk.choices[0].text for chunk in streamed) == whole.choices[0].text
    assert whole.usage.completion_tokens == 12
    assert whole.usage.prompt_tokens == 4 or not ServedModel.simulated


def check_an_abandoned_stream_leaves_the_server_well(client: openai.OpenAI, _: object) -> None:
    with ask(client, max_tokens=100_000, stream=True) as stream:
        next(iter(stream))
    assert ask(client, max_tokens=1).usage.completion_tokens == 1


def check_vendor_fields_pass_as_extra_body(client: openai.OpenAI, _: object) -> None:
    assert ask(client, max_tokens=3, extra_body={"ignore_eos": True}).usage.completion_tokens == 3


def check_models_are_listed(client: openai.OpenAI, _: object) -> None:
    assert ServedModel.name in [model.id for model in client.models.list()]
    assert client.models.retrieve(ServedModel.name).id == ServedModel.name


def check_adapters_are_models_of_their_own(client: openai.OpenAI, _: object) -> None:
    adapters = [model for model in client.models.list() if getattr(model, "parent", None)]
    for adapter in adapters:
        assert (adapter.parent, adapter.guarantee) == (ServedModel.name, "none"), adapter
    said = {
        model: text(client, model)
        for model in [ServedModel.name, *[adapter.id for adapter in adapters]]
    }
    assert len(set(said.values())) == len(said), said
    # All at once, twice each: nobody gets another's words.
    with ThreadPoolExecutor(8) as pool:
        for model, again in [
            (model, pool.submit(text, client, model)) for model in said for _ in range(2)
        ]:
            assert again.result() == said[model], model


def text(client: openai.OpenAI, model: str) -> str:
    """The text of a stream."""
    chunks = client.chat.completions.create(
        model=model, messages=QUESTION, max_tokens=24, temperature=0, stream=True
    )
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


def check_errors_are_the_package_s_own(client: openai.OpenAI, _: object) -> None:
    assert_refused(
        openai.BadRequestError, 400, "temperature", lambda: ask(client, temperature=1.9e9)
    )
    assert_refused(openai.BadRequestError, 400, "n", lambda: ask(client, n=2))
    tools = [{"type": "function", "function": {"name": "f"}}]
    assert_refused(openai.BadRequestError, 400, "tools", lambda: ask(client, tools=tools))
    extra = {"no_such_field": 1}
    assert_refused(
        openai.BadRequestError, 400, "no_such_field", lambda: ask(client, extra_body=extra)
    )

    def unknown() -> object:
        return client.chat.completions.create(model="gpt-9", messages=QUESTION)

    assert_refused(openai.NotFoundError, 404, "model", unknown)


def check_a_body_too_large_is_refused(client: openai.OpenAI, _: object) -> None:
    long = [{"role": "user", "content": "x" * (5 << 20)}]
    try:
        client.chat.completions.create(model=ServedModel.name, messages=long)
    except openai.APIStatusError as error:
        assert error.status_code == 413, error.status_code
    else:
        raise AssertionError("wanted a refusal")


def check_curl_gets_an_answer(_: object, base_url: str) -> None:
    body = {"model": ServedModel.name, "messages": QUESTION, "max_tokens": 4, "ignore_eos": True}
    status, reply = curl(f"{base_url}/chat/completions", json.dumps(body))
    assert status == 200 and json.loads(reply)["usage"]["completion_tokens"] == 4


def check_curl_sees_the_stream_as_it_is_written(_: object, base_url: str) -> None:
    body = {"model": ServedModel.name, "messages": QUESTION, "max_tokens": 4, "stream": True}
    status, reply = curl(f"{base_url}/chat/completions", json.dumps(body))
    events = reply.removesuffix("\n\n").split("\n\n")
    # The role, four tokens, the finish reason, the end mark; a true model may hold back half a character.
    assert status == 200 and (
        len(events) == 7 or (not ServedModel.simulated and 4 <= len(events) <= 8)
    ), reply
    assert all(event.startswith("data: ") for event in events)
    assert events[-1] == "data: [DONE]"


def check_curl_sees_errors_as_json(_: object, base_url: str) -> None:
    for path, body, wanted in [
        ("chat/completions", "{", 400),
        ("chat/completions", "[]", 400),
        ("chat/completions", None, 405),
        ("no/such/route", None, 404),
    ]:
        status, reply = curl(f"{base_url}/{path}", body)
        error = json.loads(reply)["error"]
        assert status == wanted, (path, status)
        assert error["message"] and error["type"] == "invalid_request_error"


def check_curl_sees_health(_: object, base_url: str) -> None:
    status, reply = curl(base_url.removesuffix("/v1") + "/health", None)
    assert status == 200 and json.loads(reply)["status"] == "ok"


def assert_refused(
    kind: type[openai.APIStatusError], status: int, param: str | None, call: Callable[[], object]
) -> None:
    try:
        call()
    except kind as error:
        assert error.status_code == status, error.status_code
        assert error.param == param, error.param
    else:
        raise AssertionError(f"wanted a refusal of {param}")


def curl(url: str, body: Any) -> tuple[int, str]:
    command = [
        "curl",
        "--silent",
        "--no-buffer",
        "--max-time",
        "30",
        "--write-out",
        "\n%{http_code}",
    ]
    if body is not None:
        command += ["--header", "content-type: application/json", "--data-binary", body]
    done = subprocess.run([*command, url], capture_output=True, text=True, check=True)
    reply, _, status = done.stdout.rpartition("\n")
    return int(status), reply


if __name__ == "__main__":
    sys.exit(main())
