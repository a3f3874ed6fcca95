"""Asks a model in a confidential VM with LangChain: one chain, called at once and streamed on asyncio.

    pip install langchain-openai      # and `confide`: docs/python.md, "Start"
    python examples/python/chat_langchain.py https://127.0.0.1:8443 sim/policy.toml sim

The last argument is the model's name. Ends with status 1 where the server's evidence is refused.
"""

import asyncio
import sys

import confide
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_openai import ChatOpenAI

server, policy, model = sys.argv[1:]
# Both clients, so that no call of LangChain goes past the attested connection.
chat = ChatOpenAI(
    model=model,
    base_url=f"{server}/v1",
    api_key="none",
    max_completion_tokens=24,
    http_client=confide.http_client(policy=policy),
    http_async_client=confide.async_http_client(policy=policy),
)
prompt = ChatPromptTemplate([("system", "Answer briefly."), ("human", "What is {subject}?")])
chain = prompt | chat | StrOutputParser()


async def stream() -> None:
    """Prints the pieces of an answer as they arrive."""
    print("streamed:", end=" ")
    async for piece in chain.astream({"subject": "confide"}):
        print(piece, end="", flush=True)
    print()


try:
    print("answer:", chain.invoke({"subject": "confide"}))
    asyncio.run(stream())
except confide.AttestationError as error:
    sys.exit(f"refused: check {error.check}: {error}")
