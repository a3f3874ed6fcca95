"""Asks a model in a confidential VM with LiteLLM.

    pip install litellm      # and `confide`: docs/python.md, "Start"
    python examples/python/chat_litellm.py https://127.0.0.1:8443 sim/policy.toml sim

The last argument is the model's name. Ends with status 1 where the server's evidence is refused.
"""

import sys

import confide
import litellm
from openai import OpenAI

server, policy, model = sys.argv[1:]
client = OpenAI(
    base_url=f"{server}/v1",
    api_key="none",
    http_client=confide.http_client(policy=policy),
)
request = {
    "model": f"openai/{model}",
    "messages": [{"role": "user", "content": "What is confide?"}],
    "max_tokens": 24,
    "client": client,
}

try:
    print("answer:", litellm.completion(**request).choices[0].message.content)
    print("streamed:", end=" ")
    for chunk in litellm.completion(**request, stream=True):
        print(chunk.choices[0].delta.content or "", end="", flush=True)
    print()
except Exception as error:
    sys.exit(repr(error))
