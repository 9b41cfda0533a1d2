"""Calls of a model that an agent has made through a door: OpenAI's chat completions and responses, Anthropic's messages."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from coding_gym.doors.exchanges import Exchange, event_documents

__all__ = ["ModelCall"]

_KINDS = {"/chat/completions": "chat", "/responses": "responses", "/messages": "messages", "/completions": "completions"}
_NOT_CONTINUED = ("role", "type", "id")
"""Texts of deltas that come whole, maybe again."""

_ENDPOINT_FAILURES = (
    HTTPStatus.UNAUTHORIZED,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.NOT_FOUND,
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.TOO_MANY_REQUESTS,
)


@dataclass(frozen=True)
class ModelCall:
    """One call of the model.

    Attributes:
        kind: The protocol: ``chat`` and ``completions`` (OpenAI), ``responses`` (OpenAI), ``messages`` (Anthropic).
        request: The request.
        response: The response; of a stream, what its events add up to. None if there is no whole one.
        failure: Why the endpoint has failed, None if it has not. A request that it refuses as invalid is the agent's failure.
        exchange: The request and the response as they were.
    """

    kind: str
    request: dict[str, Any]
    response: dict[str, Any] | None
    failure: str | None
    exchange: Exchange

    @classmethod
    def of(cls, exchange: Exchange) -> ModelCall | None:
        """Return the call of an exchange, None if it is none: a list of models, for example."""
        path = exchange.path.partition("?")[0]
        kind = next((kind for suffix, kind in _KINDS.items() if path.endswith(suffix)), None)
        if kind is None or exchange.method != "POST":
            return None
        try:
            request = json.loads(exchange.request_body)
        except ValueError:
            request = None
        response = _response_of(exchange, kind)
        failure = _failure_of(exchange, response)
        return cls(kind, request if isinstance(request, dict) else {}, response, failure, exchange)

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The conversation as the protocol has it: the messages or items of the request, and those of the response."""
        field = "input" if self.kind == "responses" else "messages"
        sent = self.request.get(field, self.request.get("prompt", []))
        messages = [{"role": "user", "content": sent}] if isinstance(sent, str) else list(sent)
        return messages + self.reply

    @property
    def reply(self) -> list[dict[str, Any]]:
        """The messages or items of the response, the first choice; empty without one."""
        response = self.response or {}
        match self.kind:
            case "responses":
                return list(response.get("output", []))
            case "messages":
                return [{"role": "assistant", "content": response.get("content", [])}] if response else []
            case "completions":
                return [{"role": "assistant", "content": choice.get("text", "")} for choice in response.get("choices", [])[:1]]
        return [choice["message"] for choice in response.get("choices", [])[:1] if "message" in choice]

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The tools that the request offers."""
        return list(self.request.get("tools") or [])

    @property
    def usage(self) -> dict[str, Any]:
        """The numbers of tokens, as the protocol has them; empty if the endpoint gives none."""
        return dict((self.response or {}).get("usage") or {})

    @property
    def token_ids(self) -> list[int] | None:
        """The ids of the tokens of the reply, where the endpoint gives them (``return_token_ids`` of vLLM)."""
        choice = self._choice
        found = choice.get("token_ids")
        return None if found is None else list(found)

    @property
    def prompt_token_ids(self) -> list[int] | None:
        """The ids of the tokens of the request, likewise."""
        found = (self.response or {}).get("prompt_token_ids", self._choice.get("prompt_token_ids"))
        return None if found is None else list(found)

    @property
    def logprobs(self) -> list[float] | None:
        """The log-probabilities of the tokens of the reply, where the endpoint gives them (``logprobs``)."""
        logprobs = self._choice.get("logprobs") or {}
        if (values := logprobs.get("token_logprobs")) is not None:
            return list(values)
        content = logprobs.get("content")
        return None if content is None else [entry["logprob"] for entry in content]

    @property
    def _choice(self) -> Mapping[str, Any]:
        choices: list[dict[str, Any]] = (self.response or {}).get("choices") or [{}]
        return choices[0]


def _failure_of(exchange: Exchange, response: dict[str, Any] | None) -> str | None:
    status = exchange.status
    if status is None or status in _ENDPOINT_FAILURES or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return exchange.error or f"status {status}: {exchange.response_body[:1000].decode(errors='replace')}"
    if status == HTTPStatus.OK and response is None:
        return exchange.error or "the response is incomplete, or not one of the protocol"
    return None


def _response_of(exchange: Exchange, kind: str) -> dict[str, Any] | None:
    if exchange.status != HTTPStatus.OK or exchange.is_truncated or not exchange.is_complete:
        return None
    try:
        body = _decoded(exchange)
        if "text/event-stream" in exchange.response_headers.get("content-type", ""):
            return _sum_of(kind, event_documents(body))
        found = json.loads(body)
    except (ValueError, OSError, zlib.error, LookupError, TypeError):
        return None
    return found if isinstance(found, dict) else None


def _decoded(exchange: Exchange) -> bytes:
    match exchange.response_headers.get("content-encoding", "identity"):
        case "gzip":
            return gzip.decompress(exchange.response_body)
        case "deflate":
            return zlib.decompress(exchange.response_body)
    return exchange.response_body


def _sum_of(kind: str, events: list[Any]) -> dict[str, Any] | None:
    """Return the response that the events of a stream add up to, None if its end is missing."""
    match kind:
        case "responses":
            ends = ("response.completed", "response.incomplete", "response.failed")
            return next((event["response"] for event in events if event.get("type") in ends), None)
        case "messages":
            return _sum_of_message(events)
    return _sum_of_choices(events)


def _sum_of_choices(events: list[Any]) -> dict[str, Any] | None:
    response: dict[str, Any] = {}
    choices: dict[int, dict[str, Any]] = {}
    for event in events:
        response |= {name: value for name, value in event.items() if name != "choices" and value is not None}
        for part in event.get("choices", []):
            choice = choices.setdefault(part.get("index", 0), {"index": part.get("index", 0)})
            for name, value in part.items():
                if name == "delta":
                    _add(choice.setdefault("message", {}), value)
                elif name in ("text", "token_ids", "logprobs"):
                    _add(choice, {name: value})
                elif value is not None:
                    choice[name] = value
    if not choices or any(choice.get("finish_reason") is None for choice in choices.values()):
        return None
    for choice in choices.values():
        calls = choice.get("message", {}).get("tool_calls")
        if isinstance(calls, dict):
            choice["message"]["tool_calls"] = [call for _, call in sorted(calls.items())]
    response["object"] = str(response.get("object", "")).removesuffix(".chunk")
    return {**response, "choices": [choice for _, choice in sorted(choices.items())]}


def _add(whole: dict[str, Any], delta: Mapping[str, Any]) -> None:
    """Add a delta to what has come before: texts and lists are continued, lists with indices by them."""
    for name, value in delta.items():
        old = whole.get(name)
        if value is None:
            whole.setdefault(name, None)
        elif isinstance(value, list) and value and isinstance(value[0], dict) and "index" in value[0]:
            entries = whole[name] = old if isinstance(old, dict) else {}
            for entry in value:
                _add(entries.setdefault(entry["index"], {}), {key: part for key, part in entry.items() if key != "index"})
        elif isinstance(value, dict):
            whole[name] = old if isinstance(old, dict) else {}
            _add(whole[name], value)
        elif isinstance(value, str) and isinstance(old, str) and name not in _NOT_CONTINUED:
            whole[name] = old + value
        elif isinstance(value, list) and isinstance(old, list):
            whole[name] = [*old, *value]
        else:
            whole[name] = value


def _sum_of_message(events: list[Any]) -> dict[str, Any] | None:
    message: dict[str, Any] | None = None
    arguments: dict[int, str] = {}
    has_ended = False
    for event in events:
        match event.get("type"):
            case "message_start":
                message = dict(event["message"])
                message["content"] = list(message.get("content", []))
            case "content_block_start" if message is not None:
                message["content"].append(dict(event["content_block"]))
            case "content_block_delta" if message is not None:
                block, delta = message["content"][event["index"]], event["delta"]
                match delta["type"]:
                    case "text_delta":
                        block["text"] = block.get("text", "") + delta["text"]
                    case "thinking_delta":
                        block["thinking"] = block.get("thinking", "") + delta["thinking"]
                    case "signature_delta":
                        block["signature"] = delta["signature"]
                    case "input_json_delta":
                        arguments[event["index"]] = arguments.get(event["index"], "") + delta["partial_json"]
            case "message_delta" if message is not None:
                message |= event["delta"]
                message["usage"] = {**message.get("usage", {}), **event.get("usage", {})}
            case "message_stop":
                has_ended = True
    for index, text in arguments.items():
        assert message is not None
        message["content"][index]["input"] = json.loads(text) if text else {}
    return message if has_ended else None
