"""Does with `confide.http_client` what each line of standard input says: the Python client of tests/clients.py, which
describes the commands and their answers.
"""

import json
import sys
from typing import Any

import confide
import httpx2


def main() -> None:
    """Answers each command on a line of standard output."""
    client = AttestedClient()
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = client.run(command)
        except confide.AttestationError as error:
            answer = {"refused": str(error), "check": error.check}
        except (confide.ConfideError, httpx2.HTTPError) as error:
            answer = {"failed": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


class AttestedClient:
    """A client of the package, and the server that it was opened for."""

    def __init__(self) -> None:
        self.client: httpx2.Client | None = None
        self.server = ""

    def run(self, command: dict[str, Any]) -> dict[str, Any]:
        """Does what a command says, and gives the answer to it."""
        if command["do"] == "open":
            self.server = command["server"]
            self.client = confide.http_client(
                policy=command["policy"].encode(),
                binding=command["binding"],
                session_version=command["session_version"],
                via=command["tunnel"],
                evidence_age_s=command["evidence_age_s"],
            )
            return {}
        assert self.client
        if command["do"] == "close":
            self.client.close()
            return {}
        url = f"{self.server}/v1/chat/completions"
        headers = {"content-type": "application/json"}
        with self.client.stream("POST", url, content=command["body"], headers=headers) as answer:
            return {"status": answer.status_code, "pieces": list(answer.iter_text())}


if __name__ == "__main__":
    main()
