"""Tinfoil's EHBP client for Python against a gateway at an address: `ehbp_peer.py http://HOST:PORT`.

Run by tests/ehbp_peers.sh, in an environment that has `tinfoil-ehbp`.
"""

import json
import sys
import urllib.request
from typing import Any

from ehbp import Client
from ehbp.errors import KeyConfigMismatchError

ALGORITHM = "ehbp-x25519-hkdf-sha256-aes-256-gcm"
CHAT = "/v1/chat/completions"
QUESTION: dict[str, Any] = {
    "model": "sim",
    "max_tokens": 8,
    "messages": [{"role": "user", "content": "Tell me of the house."}],
}


def find_key(base: str) -> str:
    """The key in the keyset of the report, which this script does not judge."""
    with urllib.request.urlopen(f"{base}/v1/aci/attestation") as answer:
        keys = json.load(answer)["attestation"]["workload_keyset"]["e2ee_public_keys"]
    return next(key["public_key"] for key in keys if key["algo"] == ALGORITHM)


def main() -> None:
    """Whole and streamed answers, long and streamed requests, refusals, another key."""
    base = sys.argv[1]
    key = find_key(base)
    with Client.discover(base) as client:
        assert client.server_identity.public_key_hex() == key, "the two keys differ"
        answer = client.post(CHAT, json_body=QUESTION)
        assert answer.status_code == 200, answer.content
        assert "ehbp-response-nonce" in answer.headers
        assert answer.json()["choices"][0]["message"]["content"]
        assert "x-receipt-id" in answer.headers
    with Client.with_public_key_hex(base, key) as client:
        with client.stream("POST", CHAT, json_body={**QUESTION, "stream": True}) as stream:
            events = list(stream.iter_bytes())
        assert len(events) > 2 and b"".join(events).endswith(b"data: [DONE]\n\n"), events
        # Several frames, and a body whose length the client does not know.
        long = {**QUESTION, "messages": [{"role": "user", "content": "word " * 40_000}]}
        answer = client.post(CHAT, json_body=long)
        assert answer.status_code == 200, answer.content
        text = json.dumps(QUESTION).encode()
        pieces = (text[index : index + 7] for index in range(0, len(text), 7))
        headers = {"content-type": "application/json"}
        assert client.post(CHAT, body=pieces, headers=headers).status_code == 200
        # The model server's refusal is encrypted, and the gateway's of a path is not.
        refused = client.post(CHAT, json_body={**QUESTION, "model": "other"})
        assert refused.status_code == 404 and "ehbp-response-nonce" in refused.headers
        assert refused.json()["error"]["code"] == "model_not_found"
        refused = client.post("/nowhere", json_body=QUESTION)
        assert refused.status_code == 404 and "ehbp-response-nonce" not in refused.headers
        assert refused.json()["error"]["code"] == "route_not_allowed"
        assert client.get("/v1/models").status_code == 200
    with Client.with_public_key_hex(base, "09" + "00" * 31) as client:
        try:
            client.post(CHAT, json_body=QUESTION)
        except KeyConfigMismatchError:
            pass
        else:
            raise AssertionError("a request for another key was answered")
    print("ehbp-peers: tinfoil-ehbp (Python): whole, streamed, long, refused, other key: as wanted")


if __name__ == "__main__":
    main()
