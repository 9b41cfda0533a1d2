"""Chat completions endpoint that speaks OpenAI's protocol, and refuses what OpenAI's server would refuse."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Collection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from typing import Any, Self

import numpy as np
from PIL import Image

__all__ = ["Answer", "ChatEndpoint", "completion", "picture_of", "streamed"]

Answer = tuple[int, dict[str, str], bytes]
"""Status, headers and body of a response."""

_PATH = "/v1/chat/completions"
_PICTURE = "data:image/png;base64,"
_FIELDS = {"model", "messages", "seed", "temperature", "top_p", "max_tokens", "max_completion_tokens", "stop", "n"}


class ChatEndpoint(ThreadingHTTPServer):
    """Endpoint whose responses are computed by a function, in several threads.

    Args:
        answer: Called with the body of a request and the number of requests so far; returns the response.
        api_key: The key to require, None for no key.
        port: TCP port; 0 for a free one.
        fields: Names of fields that requests may have besides those that this package sends.

    Attributes:
        url: Base URL, as clients expect it.
        requests: Bodies of the requests.
        headers: Headers of the requests.
    """

    daemon_threads = True

    def __init__(
        self,
        answer: Callable[[dict[str, Any], int], Answer],
        *,
        api_key: str | None = None,
        port: int = 0,
        fields: Collection[str] = (),
    ) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.fields = _FIELDS.union(fields)
        self.answer = answer
        self.api_key = api_key
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.url = f"http://127.0.0.1:{self.server_port}/v1"
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


def completion(content: str | None, **message: Any) -> Answer:
    """Return a successful response with a text."""
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": content, "refusal": None, **message},
        "logprobs": None,
        "finish_reason": "stop",
    }
    answer = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "tiny-1",
        "choices": [choice],
        "usage": {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8},
    }
    return 200, {"Content-Type": "application/json"}, json.dumps(answer).encode()


def streamed(content: str) -> Answer:
    """Return a successful response with a text, as server-sent events in two parts."""
    shared = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": "tiny-1"}
    half = len(content) // 2
    deltas = [{"role": "assistant", "content": content[:half]}, {"content": content[half:]}, {}]
    chunks: list[dict[str, Any]] = [
        {**shared, "choices": [{"index": 0, "delta": delta, "finish_reason": None if delta else "stop"}]} for delta in deltas
    ]
    chunks.append({**shared, "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}})
    events = [*(json.dumps(chunk) for chunk in chunks), "[DONE]"]
    return 200, {"Content-Type": "text/event-stream"}, "".join(f"data: {event}\n\n" for event in events).encode()


def picture_of(message: dict[str, Any]) -> np.ndarray:
    """Return the picture that a message has, as an array of shape (height, width, 3)."""
    (url,) = (part["image_url"]["url"] for part in message["content"] if part["type"] == "image_url")
    return np.asarray(Image.open(BytesIO(base64.b64decode(url.removeprefix(_PICTURE), validate=True))).convert("RGB"))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ChatEndpoint

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        status, headers, response = self._respond(data)
        self.send_response(status)
        for name, value in {"Content-Length": str(len(response)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(response)

    def log_message(self, *_: object) -> None:
        pass

    def _respond(self, data: bytes) -> Answer:
        if self.path != _PATH:
            return _error(404, f"Invalid URL (POST {self.path})")
        if self.server.api_key and self.headers["Authorization"] != f"Bearer {self.server.api_key}":
            return _error(401, "Incorrect API key provided.")
        body = json.loads(data)
        try:
            _check(body, self.server.fields)
        except (AssertionError, LookupError, TypeError, ValueError) as error:
            return _error(400, f"Invalid request: {error!r}")
        self.server.requests.append(body)
        self.server.headers.append(dict(self.headers))
        return self.server.answer(body, len(self.server.requests))


def _check(body: dict[str, Any], fields: Collection[str]) -> None:
    assert body.keys() <= set(fields), f"unknown: {body.keys() - set(fields)}"
    assert isinstance(body["model"], str)
    assert isinstance(body["messages"], list)
    for message in body["messages"]:
        assert message.keys() == {"role", "content"}
        assert message["role"] in ("system", "user", "assistant")
        if isinstance(message["content"], str):
            continue
        assert message["role"] == "user", "only users may send parts"
        for part in message["content"]:
            kind = part["type"]
            assert part.keys() == {"type", kind}
            assert kind == "image_url" or isinstance(part["text"], str)
        if any(part["type"] == "image_url" for part in message["content"]):
            picture_of(message)
    assert body["messages"][-1]["role"] == "user"


def _error(status: int, message: str) -> Answer:
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
    return status, {"Content-Type": "application/json"}, json.dumps({"error": error}).encode()
