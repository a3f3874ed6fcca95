"""Asks a model in a confidential VM with LiteLLM.

    pip install litellm      # and `confide`: docs/python.md, "Start"
    export LITELLM_LOCAL_MODEL_COST_MAP=True
    python examples/python/chat_litellm.py https://127.0.0.1:8443 sim/policy.toml sim

The last argument is the model's name. Ends with status 1 where the server's evidence is refused. Without the variable
LiteLLM fetches a list of prices from the internet when it is imported.
"""

import sys

import confide
import litellm
from openai import OpenAI

server, policy, model = sys.argv[1:]
http_client = confide.http_client(policy=policy)
try:
    # LiteLLM would report a refused server as an internal server error.
    http_client.get(f"{server}/v1/models").raise_for_status()
except confide.AttestationError as error:
    sys.exit(f"refused: check {error.check}: {error}")

request = {
    "model": f"openai/{model}",
    "messages": [{"role": "user", "content": "What is confide?"}],
    "max_tokens": 24,
    "client": OpenAI(base_url=f"{server}/v1", api_key="none", http_client=http_client),
}
print("answer:", litellm.completion(**request).choices[0].message.content)
print("streamed:", end=" ")
for chunk in litellm.completion(**request, stream=True):
    print(chunk.choices[0].delta.content or "", end="", flush=True)
print()
