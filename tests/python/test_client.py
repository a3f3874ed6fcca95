"""Drives `confide.http_client` as its users do: by the `openai` package against an attested gateway.

    python tests/python/test_client.py [PATH-OF-CONFIDE]

The binary is the argument, else $CONFIDE_BIN; the native part of the package is the library that cargo put next to it,
else $CONFIDE_NATIVE. All evidence here is simulated. Ends 0 when all tests pass, 1 otherwise. Needs the packages of
requirements.txt.
"""

import ast
import asyncio
import contextlib
import inspect
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import httpx2
import openai
from checkout_package import CHECKOUT, link_package

QUESTION = [{"role": "user", "content": "What does protection cost?"}]
ASK = {"model": "sim", "messages": QUESTION, "max_tokens": 12, "seed": 3}
BINARY = Path(
    sys.argv.pop(1) if len(sys.argv) > 1 else os.environ.get("CONFIDE_BIN", "confide")
).resolve()


PACKAGE = tempfile.TemporaryDirectory()
link_package(BINARY, Path(PACKAGE.name))
sys.path.insert(0, PACKAGE.name)

import confide  # noqa: E402
from confide import _native  # noqa: E402


class Site:
    """A model server and two gateways before it: one signs receipts (key binding), one does not (session binding)."""

    def __init__(self) -> None:
        self.stack = contextlib.ExitStack()
        self.folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        attester = str(self.folder / "attester")
        run("attest", "--simulate", "tdx", "--out", attester)
        self.policy = self.folder / "attester/policy.toml"
        model = self.start("serve", "--engine", "sim")
        upstream = ["--upstream", f"http://{model['listen']}", "--simulate", attester]
        gateway = self.start("gateway", *upstream, "--binding", "key", "--receipts")
        run("policy", "pin", str(self.policy), "--digest", gateway["config_digest"])
        self.base_url = f"https://{gateway['listen']}/v1"
        # The other model takes its time.
        slow = self.start("serve", "--engine", "sim", "--ttft-ms", "2000")
        upstream = ["--upstream", f"http://{slow['listen']}", "--simulate", attester]
        other = self.start("gateway", *upstream, "--binding", "session")
        self.session_policy = self.folder / "session.toml"
        shutil.copy(self.policy, self.session_policy)
        run("policy", "pin", str(self.session_policy), "--digest", other["config_digest"])
        self.session_url = f"https://{other['listen']}/v1"

    def start(self, *arguments: str) -> dict[str, Any]:
        """Starts a server and gives its ready line; it ends by SIGTERM, which must end it with status 0."""
        command = [str(BINARY), *arguments, "--listen", "127.0.0.1:0"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.stack.callback(stop, process)
        assert process.stdout
        ready = json.loads(process.stdout.readline())
        assert ready["ready"] is True, ready
        return dict(ready)

    def change_policy(self, name: str, pattern: str, replacement: str) -> Path:
        """A copy of the policy in which what matches is replaced."""
        text, count = re.subn(pattern, replacement, self.policy.read_text(), flags=re.MULTILINE)
        assert count, pattern
        changed = self.folder / name
        changed.write_text(text)
        return changed

    def connect(self, **options: Any) -> openai.OpenAI:
        http_client = confide.http_client(**{"policy": self.policy, **options})
        return openai.OpenAI(
            base_url=self.base_url, api_key="none", max_retries=0, http_client=http_client
        )

    def connect_async(self, **options: Any) -> openai.AsyncOpenAI:
        http_client = confide.async_http_client(**{"policy": self.policy, **options})
        return openai.AsyncOpenAI(
            base_url=self.base_url, api_key="none", max_retries=0, http_client=http_client
        )


def stop(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        status = process.wait(timeout=40)
    except subprocess.TimeoutExpired:
        process.kill()
        status = process.wait()
    assert process.stdout
    process.stdout.close()
    assert status == 0, process.args


def run(*arguments: str) -> None:
    subprocess.run([str(BINARY), *arguments], check=True, stdout=subprocess.DEVNULL)


SITE: Site


def setUpModule() -> None:
    global SITE
    SITE = Site()


def tearDownModule() -> None:
    SITE.stack.close()
    PACKAGE.cleanup()


@contextlib.contextmanager
def silent_server() -> Iterator[str]:
    """An address that accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"https://127.0.0.1:{listener.getsockname()[1]}"


def text_of(chunks: list[Any]) -> str:
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


class Chats(unittest.TestCase):
    def test_a_chat_says_the_same_whole_and_streamed(self) -> None:
        with SITE.connect() as client:
            whole = client.chat.completions.create(**ASK)
            streamed = list(client.chat.completions.create(**ASK, stream=True))
        self.assertEqual(whole.usage.completion_tokens, 12)
        self.assertEqual(text_of(streamed), whole.choices[0].message.content)

    def test_an_answer_carries_the_verification_of_its_connection(self) -> None:
        with SITE.connect() as client:
            raw = client.chat.completions.with_raw_response.create(**ASK)
        attestation = raw.http_response.extensions["attestation"]
        self.assertIsInstance(attestation, confide.Verification)
        self.assertTrue(attestation.is_simulated)
        self.assertEqual(attestation.guarantee, "none (simulated)")
        self.assertEqual(attestation.scope, "workload")
        self.assertEqual(attestation.checks["measurements"], "passed")
        self.assertEqual(attestation.document["binding"], "key")
        self.assertEqual(attestation.document["endpoint"], SITE.base_url.removesuffix("/v1"))

    def test_session_binding_serves_too(self) -> None:
        policies: list[Path | bytes] = [SITE.session_policy, SITE.session_policy.read_bytes()]
        for policy in policies:
            http_client = confide.http_client(policy=policy, binding="session")
            with openai.OpenAI(
                base_url=SITE.session_url, api_key="none", http_client=http_client
            ) as client:
                self.assertEqual(client.models.list().data[0].id, "sim")

    def test_the_older_library_serves_too(self) -> None:
        http_client = confide.http_client(policy=SITE.policy, library=httpx)
        self.assertIsInstance(http_client, httpx.Client)
        with openai.OpenAI(
            base_url=SITE.base_url, api_key="none", http_client=http_client
        ) as client:
            chunks = client.chat.completions.create(**ASK, stream=True)
            self.assertEqual(len(text_of(list(chunks)).split(" ")), 12)

    def test_errors_of_the_server_are_the_package_s_own(self) -> None:
        with SITE.connect() as client, self.assertRaises(openai.NotFoundError):
            client.chat.completions.create(**{**ASK, "model": "other"})

    def test_a_stream_that_is_left_early_leaves_the_client_well(self) -> None:
        with SITE.connect(max_connections=1) as client:
            with client.chat.completions.create(
                **{**ASK, "max_tokens": 100_000}, stream=True
            ) as stream:
                next(iter(stream))
            self.assertEqual(client.chat.completions.create(**ASK).usage.completion_tokens, 12)

    def test_a_large_body_arrives_whole(self) -> None:
        long = [{"role": "user", "content": "word " * 100_000}]
        with SITE.connect() as client:
            reply = client.chat.completions.create(**{**ASK, "messages": long})
        self.assertGreaterEqual(reply.usage.prompt_tokens, 100_000)

    def test_the_interpreter_serves_other_threads_meanwhile(self) -> None:
        with SITE.connect() as client:
            texts: list[str] = []

            def ask() -> None:
                reply = client.chat.completions.create(**ASK)
                texts.append(reply.choices[0].message.content or "")

            threads = [threading.Thread(target=ask) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        self.assertEqual((len(texts), len(set(texts))), (8, 1))


class AsyncChats(unittest.IsolatedAsyncioTestCase):
    async def test_a_chat_says_the_same_whole_and_streamed(self) -> None:
        async with SITE.connect_async() as client:
            whole = await client.chat.completions.create(**ASK)
            stream = await client.chat.completions.create(**ASK, stream=True)
            streamed = [chunk async for chunk in stream]
        self.assertEqual(text_of(streamed), whole.choices[0].message.content)

    async def test_twenty_chats_at_once_each_get_their_own_answer(self) -> None:
        async with SITE.connect_async() as client:

            async def ask(seed: int) -> str:
                reply = await client.chat.completions.create(**{**ASK, "seed": seed})
                return reply.choices[0].message.content or ""

            texts = await asyncio.gather(*(ask(seed) for seed in range(20)))
            self.assertEqual(texts, [await ask(seed) for seed in range(20)])
        self.assertGreater(len(set(texts)), 10)

    # One connection: the next request gets one only if the cancelled one gave it up.
    async def test_a_task_that_is_cancelled_before_its_answer_drops_the_request(self) -> None:
        http_client = confide.async_http_client(
            policy=SITE.session_policy, binding="session", max_connections=1
        )
        async with openai.AsyncOpenAI(
            base_url=SITE.session_url, api_key="none", http_client=http_client
        ) as client:
            task = asyncio.create_task(client.chat.completions.create(**ASK))
            await asyncio.sleep(0.2)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            self.assertEqual((await client.models.list()).data[0].id, "sim")

    async def test_a_task_that_is_cancelled_in_its_answer_drops_the_rest(self) -> None:
        async with SITE.connect_async(max_connections=1) as client:
            started = asyncio.Event()

            async def read() -> None:
                long = {**ASK, "max_tokens": 100_000}
                async for _ in await client.chat.completions.create(**long, stream=True):
                    started.set()

            task = asyncio.create_task(read())
            await started.wait()
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            reply = await client.chat.completions.create(**ASK)
        self.assertEqual(reply.usage.completion_tokens, 12)

    async def test_a_refusal_is_raised_as_it_is(self) -> None:
        policy = SITE.change_policy("async.toml", "^roots.*", 'roots = ["intel-production"]')
        async with SITE.connect_async(policy=policy) as client:
            with self.assertRaises(confide.AttestationError) as raised:
                await client.models.list()
        self.assertEqual(raised.exception.check, "root")


class Refusals(unittest.TestCase):
    def assert_refused(self, policy: Path, check: str) -> confide.AttestationError:
        with (
            SITE.connect(policy=policy) as client,
            self.assertRaises(confide.AttestationError) as raised,
        ):
            client.chat.completions.create(**ASK)
        self.assertEqual(raised.exception.check, check)
        self.assertIn("is not accepted", str(raised.exception))
        return raised.exception

    def test_a_program_that_the_policy_does_not_name(self) -> None:
        policy = SITE.change_policy("other.toml", '^mrtd = ".*"', f'mrtd = "{"00" * 48}"')
        error = self.assert_refused(policy, "measurements")
        self.assertEqual(error.verification.checks["measurements"], "failed")
        self.assertEqual(error.verification.document["outcome"], "rejected")

    def test_a_simulated_root_under_a_policy_for_production(self) -> None:
        policy = SITE.change_policy("production.toml", "^roots.*", 'roots = ["intel-production"]')
        error = self.assert_refused(policy, "root")
        self.assertIn("simulated evidence", str(error.hint))
        root = SITE.folder / "attester/root.der"
        with SITE.connect(policy=policy, root=root) as client:
            self.assertEqual(client.models.list().data[0].id, "sim")

    def test_a_configuration_that_the_policy_does_not_pin(self) -> None:
        policy = SITE.change_policy(
            "config.toml", "^config_digest.*", f'config_digest = "{"ab" * 32}"'
        )
        self.assert_refused(policy, "config_digest")

    def test_a_policy_that_cannot_be_read_names_the_key(self) -> None:
        with self.assertRaises(confide.PolicyError) as raised:
            confide.http_client(policy=b'tcb_statsu = "UpToDate"\n')
        self.assertIn("did you mean `tcb_status`", str(raised.exception))
        with self.assertRaises(FileNotFoundError):
            confide.http_client(policy="absent.toml")
        with self.assertRaises(confide.InputError):
            confide.http_client(policy=SITE.policy, binding="tls")  # type: ignore[arg-type]

    def test_a_version_of_session_binding_with_key_binding(self) -> None:
        for make in [confide.http_client, confide.async_http_client]:
            with self.assertRaisesRegex(confide.InputError, "session_version"):
                make(policy=SITE.policy, binding="key", session_version=3)
            make(policy=SITE.policy, binding="key")

    def test_options_that_lead_past_the_attested_connection(self) -> None:
        for make in [confide.http_client, confide.async_http_client]:
            for option in ["mounts", "proxy", "transport", "verify"]:
                options: dict[str, Any] = {option: None}
                with self.subTest(option), self.assertRaises(TypeError):
                    make(policy=SITE.policy, **options)

    def test_an_address_without_tls(self) -> None:
        with (
            confide.http_client(policy=SITE.policy) as client,
            self.assertRaises(httpx2.UnsupportedProtocol),
        ):
            client.get("http://127.0.0.1:1/")

    def test_an_address_where_nothing_listens(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        http_client = confide.http_client(policy=SITE.policy)
        with (
            openai.OpenAI(
                base_url=f"https://127.0.0.1:{port}/v1",
                api_key="none",
                max_retries=0,
                http_client=http_client,
            ) as client,
            self.assertRaises(openai.APIConnectionError) as raised,
        ):
            client.models.list()
        self.assertIsInstance(raised.exception.__cause__, httpx2.ConnectError)

    def test_each_timeout_has_its_exception(self) -> None:
        with (
            silent_server() as url,
            confide.http_client(
                policy=SITE.policy, timeout=httpx2.Timeout(30, connect=0.2)
            ) as client,
            self.assertRaises(httpx2.ConnectTimeout),
        ):
            client.get(url)
        short = httpx2.Timeout(30, read=0.2, pool=0.2)
        long = {**ASK, "max_tokens": 100_000}
        url = f"{SITE.base_url}/chat/completions"
        with (
            confide.http_client(policy=SITE.policy, timeout=short, max_connections=1) as client,
            client.stream("POST", url, json={**long, "stream": True}),
            self.assertRaises(httpx2.PoolTimeout),
        ):
            client.get(f"{SITE.base_url}/models")
        with (
            confide.http_client(
                policy=SITE.session_policy, binding="session", timeout=short
            ) as client,
            self.assertRaises(httpx2.ReadTimeout),
        ):
            client.post(f"{SITE.session_url}/chat/completions", json=ASK)


class Processes(unittest.TestCase):
    """What a process does around a request: signals, forks, and a package without its native part."""

    def test_ctrl_c_ends_a_wait(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            # A process in the background of a script is started with SIGINT ignored.
            script = f"""
                import signal
                import confide
                signal.signal(signal.SIGINT, signal.default_int_handler)
                client = confide.http_client(policy={str(SITE.policy)!r}, timeout=None)
                try:
                    client.get("https://127.0.0.1:{listener.getsockname()[1]}")
                except KeyboardInterrupt:
                    print("interrupted", flush=True)
            """
            process = subprocess.Popen(
                [sys.executable, "-c", textwrap.dedent(script)],
                env={**os.environ, "PYTHONPATH": PACKAGE.name},
                stdout=subprocess.PIPE,
                text=True,
            )
            # It waits for the handshake from now on.
            with listener.accept()[0]:
                process.send_signal(signal.SIGINT)
                output, _ = process.communicate(timeout=60)
        self.assertEqual((output, process.returncode), ("interrupted\n", 0))

    def test_a_client_of_before_a_fork_is_refused_after_it(self) -> None:
        script = f"""
            import confide, os
            client = confide.http_client(policy={str(SITE.policy)!r})
            url = {SITE.base_url + "/models"!r}
            assert client.get(url).status_code == 200
            child = os.fork()
            if child == 0:
                try:
                    client.get(url)
                except confide.InputError:
                    own = confide.http_client(policy={str(SITE.policy)!r})
                    os._exit(0 if own.get(url).status_code == 200 else 2)
                os._exit(1)
            assert os.waitpid(child, 0)[1] == 0
            assert client.get(url).status_code == 200
        """
        self.run_script(script, PACKAGE.name)

    def test_without_its_native_part_the_package_says_how_to_get_it(self) -> None:
        script = """
            import os
            # What a checkout has built is found too.
            os.environ["CARGO_TARGET_DIR"] = os.devnull
            import confide, confide.worker
            try:
                confide.http_client
            except ImportError as error:
                assert "pip install" in str(error) and "make native" in str(error), error
            else:
                raise SystemExit("wanted an error")
        """
        with tempfile.TemporaryDirectory() as folder:
            package = Path(folder, "confide")
            package.mkdir()
            for entry in (CHECKOUT / "python/confide").iterdir():
                if not entry.name.startswith("_native.abi3"):
                    (package / entry.name).symlink_to(entry)
            self.run_script(script, folder)

    def run_script(self, script: str, folder: str) -> None:
        subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script)],
            env={**os.environ, "PYTHONPATH": folder},
            check=True,
            timeout=60,
        )


class Receipts(unittest.TestCase):
    def test_the_receipt_of_every_answer_is_verified_at_its_end(self) -> None:
        with SITE.connect(receipts="require") as client:
            raw = client.chat.completions.with_raw_response.create(**ASK)
            self.check_receipt(raw.http_response)
            stream = client.chat.completions.create(**ASK, stream=True)
            list(stream)
            self.check_receipt(stream.response)

    def check_receipt(self, response: Any) -> None:
        receipt = response.extensions["receipt"]
        self.assertEqual(receipt.id, response.headers["x-receipt-id"])
        self.assertEqual(receipt.verification.document["outcome"], "accepted")
        for check in ["configuration", "request", "response"]:
            self.assertEqual(receipt.verification.checks[check], "passed")

    def test_a_gateway_without_receipts_is_refused_where_they_are_required(self) -> None:
        http_client = confide.http_client(
            policy=SITE.session_policy, binding="session", receipts="require"
        )
        with openai.OpenAI(
            base_url=SITE.session_url, api_key="none", max_retries=0, http_client=http_client
        ) as client:
            with self.assertRaises(confide.ReceiptError):
                client.chat.completions.create(**ASK)
            self.assertEqual(client.models.list().data[0].id, "sim")

    def test_a_receipt_is_verified_from_files(self) -> None:
        url = SITE.base_url
        request, nonce = json.dumps(ASK).encode(), bytes(range(32))
        with confide.http_client(policy=SITE.policy) as client:
            headers = {"content-type": "application/json", "accept-encoding": "identity"}
            answer = client.post(f"{url}/chat/completions", content=request, headers=headers)
            receipt = client.get(f"{url}/aci/receipts/{answer.headers['x-receipt-id']}").content
            report = client.get(f"{url}/aci/attestation?nonce={nonce.hex()}").content
        files: dict[str, Any] = {
            "report": report,
            "policy": SITE.policy,
            "nonce": nonce,
            "request": request,
        }
        verified = confide.verify_receipt(receipt, response=answer.content, **files)
        self.assertEqual((verified.scope, verified.checks["response"]), ("workload", "passed"))
        self.assertIs(verified.is_simulated, True)
        with self.assertRaises(confide.ReceiptError) as raised:
            confide.verify_receipt(receipt, response=answer.content + b" ", **files)
        self.assertEqual(raised.exception.check, "response")
        self.assertEqual(raised.exception.verification.checks["request"], "passed")


class AsyncReceipts(unittest.IsolatedAsyncioTestCase):
    async def test_the_receipt_of_every_answer_is_verified_at_its_end(self) -> None:
        async with SITE.connect_async(receipts="verify") as client:
            stream = await client.chat.completions.create(**ASK, stream=True)
            async for _ in stream:
                pass
        receipt = stream.response.extensions["receipt"]
        self.assertEqual(receipt.verification.scope, "workload")


class Evidence(unittest.TestCase):
    def test_evidence_of_each_kind_is_verified_and_refused_without_its_root(self) -> None:
        for tee in ["sgx", "tdx", "snp"]:
            with self.subTest(tee), tempfile.TemporaryDirectory() as name:
                run("attest", "--simulate", tee, "--out", f"{name}/sim")
                folder = Path(name, "sim")
                collateral = folder / "collateral.json"
                evidence = folder / "evidence.bin"
                verified = confide.verify(
                    evidence, policy=folder / "policy.toml", collateral=collateral
                )
                self.assertEqual(verified.document["outcome"], "accepted")
                self.assertIs(verified.is_simulated, True)
                with self.assertRaises(confide.AttestationError) as raised:
                    confide.verify(evidence.read_bytes(), collateral=collateral.read_bytes())
                self.assertEqual(raised.exception.check, "root")
                self.assertEqual(raised.exception.verification.checks["root"], "failed")

    def test_what_cannot_be_judged_is_named_with_what_is_missing(self) -> None:
        evidence = SITE.folder / "attester/evidence.bin"
        with self.assertRaises(confide.InputError) as raised:
            confide.verify(evidence)
        self.assertEqual(raised.exception.hint, "give collateral, a QuoteCollateralV3 in JSON")
        with self.assertRaises(confide.InputError) as raised:
            confide.verify(evidence, nonce=bytes(32))
        self.assertIn("nonce does not apply", str(raised.exception))
        with self.assertRaises(confide.InputError):
            confide.verify(b"no evidence", report_data=b"short")


class Guide(unittest.TestCase):
    def test_every_example_runs(self) -> None:
        text = (CHECKOUT / "docs/python.md").read_text()
        blocks = re.findall(r"(?:^ {4}.*\n|^\n)+", text, flags=re.MULTILINE)
        examples = [textwrap.dedent(block) for block in blocks if "import confide" in block]
        self.assertGreaterEqual(len(examples), 4)
        for example in examples:
            script = example.replace("https://HOST:8443", SITE.base_url.removesuffix("/v1"))
            with self.subTest(example.strip().splitlines()[0]):
                subprocess.run(
                    [sys.executable, "-c", script],
                    cwd=SITE.folder / "attester",
                    env={**os.environ, "PYTHONPATH": PACKAGE.name},
                    stdout=subprocess.DEVNULL,
                    check=True,
                    timeout=60,
                )


class Stubs(unittest.TestCase):
    def test_the_stubs_are_those_of_the_native_part(self) -> None:
        tree = ast.parse((CHECKOUT / "python/confide/_native.pyi").read_text())
        built = {name for name in vars(_native) if not name.startswith("_")} | {"__version__"}
        self.assertEqual(set(names_in(tree.body)), built)
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                members = vars(getattr(_native, node.name))
                public = {name for name in members if not name.startswith("_")}
                self.assertEqual(set(names_in(node.body)) - {"__new__"}, public, node.name)
                for member in node.body:
                    self.check_parameters(member, getattr(_native, node.name))
            else:
                self.check_parameters(node, _native)

    def check_parameters(self, node: ast.stmt, owner: Any) -> None:
        if not isinstance(node, ast.FunctionDef) or node.decorator_list:
            return
        function = owner if node.name == "__new__" else getattr(owner, node.name)
        wanted = [argument.arg for argument in node.args.args if argument.arg != "cls"]
        got = list(inspect.signature(function).parameters)
        self.assertEqual(wanted, got, node.name)


def names_in(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id


if __name__ == "__main__":
    unittest.main(verbosity=2)
