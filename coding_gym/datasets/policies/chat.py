"""Policy that queries a chat model at any OpenAI-compatible endpoint: vLLM, SGLang, llama.cpp, or a hosted service."""

from __future__ import annotations

import os
import random
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from coding_gym.datasets.export.conversation import SYSTEM_PROMPT, Message, first_text, observation_text
from coding_gym.datasets.policies.base import Actor, Decision, EpisodeStart, Policy, name_of
from coding_gym.errors import ConfigurationError, ProtocolError, TransportError, TransportTimeoutError
from coding_gym.wrappers.actions import extract_code

if TYPE_CHECKING:
    import requests

__all__ = ["HOSTED_URL", "ChatPolicy"]

_RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
_INITIAL_PAUSE = 0.5
_MAX_PAUSE = 30.0
_SHOWN_CHARS = 500
_SEED_RANGE = 2**31
_OK = 200
_NO_SERVER = (ConnectionRefusedError, socket.gaierror)
_UNAUTHORIZED = (401, 403)
HOSTED_URL = "https://api.openai.com/v1"
"""Base URL of OpenAI's endpoint."""


class ChatPolicy(Policy):
    """Policy that sends the conversation so far to ``POST {base_url}/chat/completions`` and runs the code in the response.

    Requests and responses are recorded in ``Step.decision``: the new ``messages``, the full ``content``, ``usage`` and
    ``finish_reason``. The API key is never recorded.

    Args:
        model: Name of the model.
        base_url: Base URL of the endpoint, such as ``http://127.0.0.1:8000/v1``.
        api_key_env: Environment variable that holds the API key; if it is unset, no key is sent.
        system: System prompt; if empty, no system message is sent.
        parameters: Further fields of the request, such as ``{"temperature": 0.7, "max_tokens": 1024}``.
        send_seed: Whether each request has a different ``seed``, drawn from the episode's random generator: some endpoints then
            sample reproducibly.
        to_action: Converts the content of a response to an action.
        describe_observation: Converts an observation and its info to the content of a message: text, or a list of parts.
        describe_first: The same for the first observation of an episode. By default, the prompt of its task.
        timeout: Timeout in seconds for connecting and for each read from the connection.
        retries: Maximum number of retries of a request after a timeout, a connection error, or a retryable status code. As long
            as the endpoint has not answered any request, refused connections and unknown host names are not retried.

    Raises:
        ConfigurationError: If the URL is invalid, or the default endpoint is used without an API key.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str = HOSTED_URL,
        api_key_env: str = "OPENAI_API_KEY",
        system: str = SYSTEM_PROMPT,
        parameters: Mapping[str, Any] | None = None,
        send_seed: bool = True,
        to_action: Callable[[str], Any] = extract_code,
        describe_observation: Callable[[Any, Mapping[str, Any]], Any] = observation_text,
        describe_first: Callable[[Any, Mapping[str, Any]], Any] = first_text,
        timeout: float = 300.0,
        retries: int = 5,
    ) -> None:
        if not base_url.startswith(("http://", "https://")):
            message = f"Expected base_url= such as http://127.0.0.1:8000/v1, got {base_url!r}"
            raise ConfigurationError(message)
        if base_url == HOSTED_URL and not os.environ.get(api_key_env):
            message = (
                f"{base_url} requires an API key: set the environment variable {api_key_env}, or pass base_url= of another "
                "endpoint, such as http://127.0.0.1:8000/v1"
            )
            raise ConfigurationError(message)
        self._model = model
        self._base_url = base_url.rstrip("/")
        self._api_key_env = api_key_env
        self._system = system
        self._parameters = dict(parameters or {})
        self._send_seed = send_seed
        self._to_action = to_action
        self._describe_observation = describe_observation
        self._describe_first = describe_first
        self._timeout = timeout
        self._retries = retries
        self._has_answered = False
        # ``requests.Session`` is not guaranteed to be thread-safe: each thread keeps its own connection open.
        self._local = threading.local()

    def begin(self, start: EpisodeStart) -> Actor:
        messages: list[Message] = [{"role": "system", "content": self._system}] if self._system else []
        sent = 0

        def act(observation: Any, info: dict[str, Any]) -> Decision:
            nonlocal sent
            is_first = not any(message["role"] == "assistant" for message in messages)
            describe = self._describe_first if is_first else self._describe_observation
            messages.append({"role": "user", "content": describe(observation, info)})
            seed = {"seed": int(start.rng.integers(_SEED_RANGE))} if self._send_seed else {}
            answer = self._ask({"model": self._model, "messages": messages, **self._parameters, **seed})
            choice = answer["choices"][0]
            content = choice["message"].get("content") or ""
            # Lone surrogates cannot be encoded in UTF-8, neither in a request nor in a file.
            content = content.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            details = {"messages": messages[sent:], "content": content, "finish_reason": choice.get("finish_reason")}
            for name, value in (
                ("usage", answer.get("usage")),
                ("model", answer.get("model")),
                ("reasoning", choice["message"].get("reasoning_content")),
            ):
                if value is not None:
                    details[name] = value
            messages.append({"role": "assistant", "content": content})
            sent = len(messages)
            return Decision(self._to_action(content), details)

        return act

    def describe(self) -> dict[str, Any]:
        described = {
            "name": "chat",
            "model": self._model,
            "base_url": self._base_url,
            "system": self._system,
            "parameters": self._parameters,
            "send_seed": self._send_seed,
            "to_action": name_of(self._to_action),
            "describe_observation": name_of(self._describe_observation),
        }
        # Manifests without this entry are of collections with the default.
        if self._describe_first is not first_text:
            described["describe_first"] = name_of(self._describe_first)
        return described

    def _ask(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the response to a request.

        Raises:
            TransportError: If the endpoint does not respond.
            ProtocolError: If the endpoint rejects the request, or its response is not a chat completion.
        """
        import requests

        url = f"{self._base_url}/chat/completions"
        attempt = 0
        while True:
            error: TransportError | ProtocolError
            wait_for = None
            try:
                response = self._session().post(url, json=body, headers=self._headers(), timeout=self._timeout)
            except requests.Timeout:
                error = TransportTimeoutError(f"{url} did not answer within {self._timeout:g} s")
            except requests.RequestException as failure:
                reason = _origin(failure)
                error = TransportError(f"{url} cannot be reached: {reason}")
                if isinstance(reason, _NO_SERVER) and not self._has_answered:
                    raise error from failure
            else:
                self._has_answered = True
                if response.status_code == _OK:
                    return _answer(response, url)
                advice = self._advice() if response.status_code in _UNAUTHORIZED else ""
                error = ProtocolError(f"{url} answered {response.status_code}: {response.text[:_SHOWN_CHARS]}{advice}")
                if response.status_code not in _RETRIED:
                    raise error
                wait_for = _retry_after(response)
            if attempt >= self._retries:
                raise error
            pause = min(_INITIAL_PAUSE * 2**attempt, _MAX_PAUSE) if wait_for is None else wait_for
            # Jitter: requests that failed together should not be retried all at once.
            time.sleep(pause * random.uniform(0.5, 1.0) if wait_for is None else pause)  # noqa: S311
            attempt += 1

    def _session(self) -> requests.Session:
        import requests

        session: requests.Session | None = getattr(self._local, "session", None)
        if session is None:
            session = self._local.session = requests.Session()
        return session

    def _advice(self) -> str:
        name = self._api_key_env
        is_set = bool(os.environ.get(name))
        return f". Check the API key in {name}" if is_set else f". Set the environment variable {name} to the API key"

    def _headers(self) -> dict[str, str]:
        key = os.environ.get(self._api_key_env)
        return {"Authorization": f"Bearer {key}"} if key else {}


def _origin(error: BaseException) -> BaseException:
    """Return the exception that others were raised from: requests wraps that of the socket several times."""
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return error


def _answer(response: requests.Response, url: str) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = response.json()
        answer["choices"][0]["message"].get("content")
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        message = f"Expected a chat completion from {url}, got {response.text[:_SHOWN_CHARS]!r}"
        raise ProtocolError(message) from error
    return answer


def _retry_after(response: requests.Response) -> float | None:
    """Return the ``Retry-After`` delay in seconds, capped; None if the header is absent or not a number."""
    try:
        return min(max(float(response.headers["Retry-After"]), 0.0), _MAX_PAUSE)
    except (KeyError, ValueError):
        return None
