"""A small agent: the model may call the tools of an MCP server, and every request to the model is attested.

    pip install openai mcp
    confide connect https://127.0.0.1:8443 --policy sim/policy.toml -- python examples/mcp/agent.py

The model has to be one that calls tools. `confide connect` sets OPENAI_BASE_URL and OPENAI_API_KEY.
Tools run on this machine: what they do is not covered by the attestation of the model.
"""

import asyncio
import json
import sys
from pathlib import Path

from mcp import Client, StdioServerParameters, stdio_client
from openai import AsyncOpenAI

STEPS_MAX = 8
STOCK_SERVER = StdioServerParameters(
    command=sys.executable, args=[str(Path(__file__).with_name("stock_server.py"))]
)


async def main() -> None:
    """Asks until the model answers without calling a tool."""
    async with AsyncOpenAI() as model, Client(stdio_client(STOCK_SERVER)) as server:
        name = (await model.models.list()).data[0].id
        tools = [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.input_schema,
                },
            }
            for tool in (await server.list_tools()).tools
        ]
        messages = [{"role": "user", "content": "How many apples are in stock?"}]
        for _ in range(STEPS_MAX):
            reply = await model.chat.completions.create(model=name, messages=messages, tools=tools)
            message = reply.choices[0].message
            messages.append(message.model_dump(exclude_none=True))
            if not message.tool_calls:
                print("answer:", message.content)
                return
            for call in message.tool_calls:
                arguments = json.loads(call.function.arguments)
                result = await server.call_tool(call.function.name, arguments)
                text = "".join(part.text for part in result.content if part.type == "text")
                print("tool:", call.function.name, arguments, "gave", text)
                messages.append({"role": "tool", "tool_call_id": call.id, "content": text})
        sys.exit(f"the model called tools {STEPS_MAX} times and gave no answer")


asyncio.run(main())
