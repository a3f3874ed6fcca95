#!/usr/bin/env python3
"""A scripted model server that answers every prompt with one sentence, in the three forms that coding agents use.

    scripted_model.py [--call-tool NAME ARGUMENTS]

With `--call-tool`, `/v1/chat/completions` answers a request that offers this tool with a call of it, until the messages
hold the tool's result; the sentence then contains the result. ARGUMENTS is a JSON object. No model runs: this sentence
says *simulated*.

It prints its address, then a line for each request: the path and the model that was asked for.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

SENTENCE = "The scripted model answers."
MODEL = "scripted/model-1"
USAGE = {"prompt_tokens": 1, "completion_tokens": 4, "total_tokens": 5}
Events = Iterator[tuple[str | None, Any]]


def completion_events() -> Events:
    """Returns the events of `/v1/chat/completions`."""
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": MODEL}
    for delta, finish in (({"role": "assistant", "content": SENTENCE}, None), ({}, "stop")):
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        yield None, head | {"choices": [choice]}
    yield None, head | {"choices": [], "usage": USAGE}
    yield None, "[DONE]"


def tool_completion(body: Any, called_tool: list[str]) -> Any:
    """Returns a whole answer of `/v1/chat/completions`: a call of the tool, or a sentence with its result."""
    name, arguments = called_tool
    message: dict[str, Any] = {"role": "assistant", "content": None}
    results = [message["content"] for message in body["messages"] if message["role"] == "tool"]
    offered = [tool["function"]["name"] for tool in body.get("tools", [])]
    finish = "stop"
    if results:
        message["content"] = f"The scripted model (simulated) was told: {results[-1]}."
    elif name in offered:
        function = {"name": name, "arguments": arguments}
        message["tool_calls"] = [{"id": "call_1", "type": "function", "function": function}]
        finish = "tool_calls"
    else:
        message["content"] = f"The scripted model (simulated) was not offered {name}."
    choice = {"index": 0, "message": message, "finish_reason": finish}
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": MODEL}
    return head | {"choices": [choice], "usage": USAGE}


def response_events() -> Events:
    """Returns the events of `/v1/responses`."""
    part = {"type": "output_text", "text": SENTENCE, "annotations": []}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed"}
    usage = {
        "input_tokens": 1,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 4,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 5,
    }
    response = {"id": "resp_1", "object": "response", "created_at": 1, "model": MODEL}
    done = message | {"content": [part]}
    place = {"output_index": 0, "content_index": 0, "item_id": "msg_1"}
    ended = response | {"status": "completed", "output": [done], "usage": usage}
    for kind, more in (
        ("response.created", {"response": response | {"status": "in_progress", "output": []}}),
        ("response.output_item.added", {"output_index": 0, "item": message | {"content": []}}),
        ("response.content_part.added", place | {"part": part | {"text": ""}}),
        ("response.output_text.delta", place | {"delta": SENTENCE}),
        ("response.output_text.done", place | {"text": SENTENCE}),
        ("response.content_part.done", place | {"part": part}),
        ("response.output_item.done", {"output_index": 0, "item": done}),
        ("response.completed", {"response": ended}),
    ):
        yield kind, {"type": kind} | more


def message_events() -> Events:
    """Returns the events of `/v1/messages`."""
    usage = {"input_tokens": 1, "output_tokens": 4}
    message: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
    }
    start: dict[str, Any] = message | {
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }
    text = {"type": "text", "text": ""}
    ended = {"stop_reason": "end_turn", "stop_sequence": None}
    for kind, more in (
        ("message_start", {"message": start}),
        ("content_block_start", {"index": 0, "content_block": text}),
        ("content_block_delta", {"index": 0, "delta": {"type": "text_delta", "text": SENTENCE}}),
        ("content_block_stop", {"index": 0}),
        ("message_delta", {"delta": ended, "usage": usage}),
        ("message_stop", {}),
    ):
        yield kind, {"type": kind} | more


FORMS = {
    "/v1/chat/completions": completion_events,
    "/v1/responses": response_events,
    "/v1/messages": message_events,
}


class Handler(BaseHTTPRequestHandler):
    """Answers one connection."""

    protocol_version = "HTTP/1.1"
    # The name and the arguments of the tool that is called, if one is.
    called_tool: ClassVar[list[str] | None] = None

    def log_message(self, format: str, *arguments: object) -> None:
        """Logs nothing: each request has its line on standard output."""

    def do_GET(self) -> None:
        """Lists the one model."""
        self.send(200, "application/json", json.dumps({"object": "list", "data": [{"id": MODEL}]}))

    def do_POST(self) -> None:
        """Streams the sentence, or sends a whole answer with a call of a tool."""
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        path = self.path.split("?")[0]
        print(path, body.get("model"), flush=True)
        if path not in FORMS:
            self.send(404, "application/json", '{"error": {"message": "no such path"}}')
        elif self.called_tool and path == "/v1/chat/completions":
            answer = tool_completion(body, self.called_tool)
            self.send(200, "application/json", json.dumps(answer))
        elif not body.get("stream"):
            self.send(400, "application/json", '{"error": {"message": "streams only"}}')
        else:
            self.send(200, "text/event-stream", "".join(map(write_event, FORMS[path]())))

    def send(self, status: int, kind: str, text: str) -> None:
        """Sends a whole answer."""
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())


def write_event(event: tuple[str | None, Any]) -> str:
    """Returns a server-sent event."""
    kind, data = event
    text = data if isinstance(data, str) else json.dumps(data)
    return f"event: {kind}\ndata: {text}\n\n" if kind else f"data: {text}\n\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--call-tool", nargs=2, metavar=("NAME", "ARGUMENTS"))
    Handler.called_tool = parser.parse_args().call_tool
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        sys.exit()
