#!/usr/bin/env python3
"""A scripted model server that answers every prompt with one sentence, in the three forms that coding agents use.

It prints its address, then a line for each request: the path and the model that was asked for.
"""

import json
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SENTENCE = "The scripted model answers."
MODEL = "scripted/model-1"
Events = Iterator[tuple[str | None, Any]]


def completion_events() -> Events:
    """Returns the events of `/v1/chat/completions`."""
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": MODEL}
    usage = {"prompt_tokens": 1, "completion_tokens": 4, "total_tokens": 5}
    for delta, finish in (({"role": "assistant", "content": SENTENCE}, None), ({}, "stop")):
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        yield None, head | {"choices": [choice]}
    yield None, head | {"choices": [], "usage": usage}
    yield None, "[DONE]"


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

    def log_message(self, format: str, *arguments: object) -> None:
        """Logs nothing: each request has its line on standard output."""

    def do_GET(self) -> None:
        """Lists the one model."""
        self.send(200, "application/json", json.dumps({"object": "list", "data": [{"id": MODEL}]}))

    def do_POST(self) -> None:
        """Streams the sentence."""
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        path = self.path.split("?")[0]
        print(path, body.get("model"), flush=True)
        if path not in FORMS:
            self.send(404, "application/json", '{"error": {"message": "no such path"}}')
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
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        sys.exit()
