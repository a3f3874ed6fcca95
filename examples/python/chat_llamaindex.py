"""Asks a model in a confidential VM with LlamaIndex.

    pip install llama-index-llms-openai-like      # and `confide`: docs/python.md, "Start"
    python examples/python/chat_llamaindex.py https://127.0.0.1:8443 sim/policy.toml sim

The last argument is the model's name. Ends with status 1 where the server's evidence is refused.
"""

import sys

import confide
import httpx
from llama_index.core.llms import ChatMessage
from llama_index.llms.openai_like import OpenAILike

server, policy, model = sys.argv[1:]
# LlamaIndex uses version 2 of `openai`, whose HTTP library is `httpx`.
http_client = confide.http_client(policy=policy, library=httpx)
try:
    # LlamaIndex would try a refused server again and again, and then report a connection error.
    http_client.get(f"{server}/v1/models").raise_for_status()
except confide.AttestationError as error:
    sys.exit(f"refused: check {error.check}: {error}")

llm = OpenAILike(
    model=model,
    api_base=f"{server}/v1",
    api_key="none",
    is_chat_model=True,
    max_tokens=24,
    http_client=http_client,
    async_http_client=confide.async_http_client(policy=policy, library=httpx),
)
question = [ChatMessage(role="user", content="What is confide?")]
print("answer:", llm.chat(question).message.content)
print("streamed:", end=" ")
for piece in llm.stream_chat(question):
    print(piece.delta, end="", flush=True)
print()
