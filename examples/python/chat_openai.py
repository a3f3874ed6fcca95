"""Asks a model in a confidential VM with the `openai` package. No proxy runs next to this program.

    pip install openai      # and `confide`: docs/python.md, "Start"
    python examples/python/chat_openai.py https://127.0.0.1:8443 sim/policy.toml

Ends with status 1 where the server's evidence is refused: nothing was sent then.
"""

import json
import sys

import confide
from openai import OpenAI

server, policy = sys.argv[1:]
client = OpenAI(
    base_url=f"{server}/v1",
    api_key="none",
    http_client=confide.http_client(policy=policy),
)
question = [{"role": "user", "content": "What is confide?"}]

try:
    # The first request opens a connection and judges its evidence before it is sent.
    model = client.models.list().data[0].id
except confide.AttestationError as error:
    sys.exit(f"refused: check {error.check}: {error}")

answer = client.chat.completions.with_raw_response.create(
    model=model, messages=question, max_tokens=24
)
attestation = answer.http_response.extensions["attestation"]
print("verification:", json.dumps(attestation.document, indent=2))
print("answer:", answer.parse().choices[0].message.content)

print("streamed:", end=" ")
for chunk in client.chat.completions.create(
    model=model, messages=question, max_tokens=24, stream=True
):
    for choice in chunk.choices:
        print(choice.delta.content or "", end="", flush=True)
print()
