"""Calls of a model, read from what has passed through a door."""

from __future__ import annotations

import gzip
import json

import pytest

from coding_gym.agents.model_calls import ModelCall
from coding_gym.doors.exchanges import DoorLog

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "tools": [{"type": "function"}]}


def call_of(path, request, body, *, status=200, headers=(), method=b"POST", error=None):
    recording = DoorLog().record(1, method, path.encode(), [])
    recording.add_request(request if isinstance(request, bytes) else json.dumps(request).encode())
    if status is not None:
        recording.begin_response(status, [(name.encode(), value.encode()) for name, value in headers])
    recording.add_response(body if isinstance(body, bytes) else json.dumps(body).encode())
    recording.end(error)
    return ModelCall.of(recording.exchange)


def events(*documents, done=True):
    return b"".join(b"event: x\ndata: " + json.dumps(each).encode() + b"\n\n" for each in documents) + (
        b"data: [DONE]\n\n" if done else b""
    )


INCOMPLETE = "the response is incomplete, or not one of the protocol"
STREAM = [("content-type", "text/event-stream; charset=utf-8")]


def test_chat_completion():
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": "hello"},
        "finish_reason": "stop",
        "logprobs": {"content": [{"token": "hel", "logprob": -0.5}, {"token": "lo", "logprob": -0.25}]},
        "token_ids": [7, 8],
    }
    response = {"choices": [choice], "usage": {"total_tokens": 3}, "prompt_token_ids": [1, 2]}
    call = call_of("/v1/chat/completions?x=1", CHAT, response)
    assert call.kind == "chat"
    assert call.messages == [*CHAT["messages"], {"role": "assistant", "content": "hello"}]
    assert (call.token_ids, call.prompt_token_ids, call.logprobs) == ([7, 8], [1, 2], [-0.5, -0.25])
    assert (call.tools, call.usage, call.failure) == (CHAT["tools"], {"total_tokens": 3}, None)


def test_stream_of_chat_completion():
    def chunk(delta, reason=None, **more):
        return {
            "id": "c1",
            "object": "chat.completion.chunk",
            "choices": [{"index": 0, "delta": delta, "finish_reason": reason, **more}],
        }

    body = events(
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": "a "}, token_ids=[1], logprobs={"content": [{"token": "a", "logprob": -1.0}]}),
        chunk({"content": "b"}, token_ids=[2], logprobs={"content": [{"token": "b", "logprob": -2.0}]}),
        chunk({"tool_calls": [{"index": 0, "id": "t1", "type": "function", "function": {"name": "f", "arguments": '{"x"'}}]}),
        chunk({"tool_calls": [{"index": 1, "id": "t2", "type": "function", "function": {"name": "g", "arguments": ""}}]}),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": ": 1}"}}]}),
        chunk({}, "tool_calls"),
        {"id": "c1", "choices": [], "usage": {"completion_tokens": 2}},
    )
    call = call_of("/v1/chat/completions", {**CHAT, "stream": True}, body, headers=STREAM)
    (message,) = call.reply
    assert message["content"] == "a b"
    assert [(entry["id"], entry["function"]) for entry in message["tool_calls"]] == [
        ("t1", {"name": "f", "arguments": '{"x": 1}'}),
        ("t2", {"name": "g", "arguments": ""}),
    ]
    assert (call.token_ids, call.logprobs, call.usage) == ([1, 2], [-1.0, -2.0], {"completion_tokens": 2})
    assert call.response["object"] == "chat.completion"


def test_messages_of_anthropic():
    request = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    body = events(
        {"type": "message_start", "message": {"role": "assistant", "content": [], "usage": {"input_tokens": 3}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "s"}},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "yes"}},
        {"type": "content_block_start", "index": 2, "content_block": {"type": "tool_use", "id": "t", "name": "f", "input": {}}},
        {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": '{"a":'}},
        {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": " 1}"}},
        {"type": "ping"},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
        done=False,
    )
    call = call_of("/v1/messages", request, body, headers=STREAM)
    assert call.reply == [
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "text", "text": "yes"},
                {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}},
            ],
        }
    ]
    assert call.usage == {"input_tokens": 3, "output_tokens": 9}
    assert call.response["stop_reason"] == "tool_use"
    whole = {"role": "assistant", "content": [{"type": "text", "text": "yes"}]}
    assert call_of("/v1/messages", request, whole).messages[-1] == whole


def test_responses_of_openai():
    output = [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "yes"}]}]
    body = events({"type": "response.created"}, {"type": "response.completed", "response": {"output": output}}, done=False)
    call = call_of("/v1/responses", {"input": "hi"}, body, headers=STREAM)
    assert call.messages == [{"role": "user", "content": "hi"}, *output]


def test_text_completion():
    response = {"choices": [{"text": "x", "logprobs": {"token_logprobs": [-1.0]}, "finish_reason": "stop"}]}
    call = call_of("/v1/completions", {"prompt": "hi"}, response)
    assert call.messages == [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "x"}]
    assert call.logprobs == [-1.0]


def test_compressed_response():
    body = gzip.compress(json.dumps({"choices": [{"message": {"content": "x"}}]}).encode())
    assert call_of("/v1/chat/completions", CHAT, body, headers=[("content-encoding", "gzip")]).reply == [{"content": "x"}]


@pytest.mark.parametrize("status", [None, 401, 403, 404, 408, 429, 500, 502, 503])
def test_failures_of_the_endpoint(status):
    call = call_of("/v1/chat/completions", CHAT, b"sorry", status=status, error=None if status else "refused")
    assert call.failure == ("refused" if status is None else f"status {status}: sorry")
    assert (call.response, call.reply, call.token_ids, call.logprobs, call.usage) == (None, [], None, None, {})


def test_invalid_request_is_the_agents_failure():
    call = call_of("/v1/chat/completions", b"\xff", b'{"error": "too long"}', status=400)
    assert (call.failure, call.request, call.messages) == (None, {}, [])


@pytest.mark.parametrize("body", [b"", b"<html>", b"[1]", b"null"])
def test_response_that_is_none(body):
    assert call_of("/v1/chat/completions", CHAT, body).failure == INCOMPLETE


def test_stream_that_breaks_off():
    body = events({"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": None}]}, done=False)
    call = call_of("/v1/chat/completions", CHAT, body, headers=STREAM, error="it ended the connection")
    assert (call.response, call.failure) == (None, "it ended the connection")
    assert call_of("/v1/chat/completions", CHAT, body, headers=STREAM).failure == INCOMPLETE


def test_what_is_no_call():
    assert call_of("/v1/models", b"", b"{}", method=b"GET") is None
    assert call_of("/v1/embeddings", {"input": "x"}, {}) is None
