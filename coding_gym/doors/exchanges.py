"""What has passed through a door: requests and their responses."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

__all__ = ["DoorLog", "Exchange", "RawHeaders", "Recording", "event_documents"]

RawHeaders = Sequence[tuple[bytes, bytes]]
"""Names in lower case, and values of headers, in order."""

_MAX_BODY_BYTES = 4 << 20
_MAX_LOG_BYTES = 64 << 20
_MAX_EXCHANGES = 10_000
_MAX_TRUNCATED_PATH = 1000


@dataclass(eq=False)
class Exchange:
    """A request of the session and its response.

    Attributes:
        step: The step in which the request came: 1 for the first one of the episode, 0 before it.
        method: Its method.
        path: Its target, with the query; of a proxy, a URL, or host and port.
        status: Status code of the response, None if there was none yet.
        is_truncated: Whether a body was longer than what is recorded of it: 4 MiB.
        is_complete: Whether the whole response has been passed on.
        error: Why there is no whole response, None if nothing failed on this side.
        refusal: Why the rules of an ``Egress`` refuse it, None if they do not.
        began: When the request came, as ``time.time()``.
        seconds: Time until the end of the response.
    """

    step: int
    method: str
    path: str
    status: int | None = None
    is_truncated: bool = False
    is_complete: bool = False
    error: str | None = None
    refusal: str | None = None
    began: float = field(default_factory=time.time)
    seconds: float | None = None
    _request_headers: RawHeaders = field(default=(), repr=False)
    _response_headers: RawHeaders = field(default=(), repr=False)
    _request: bytearray = field(default_factory=bytearray, repr=False)
    _response: bytearray = field(default_factory=bytearray, repr=False)

    @property
    def request_headers(self) -> dict[str, str]:
        """Headers of the request by name in lower case; values of one name are joined by commas."""
        return _as_text(self._request_headers)

    @property
    def response_headers(self) -> dict[str, str]:
        """Headers of the response, likewise; empty if there was none yet."""
        return _as_text(self._response_headers)

    @property
    def request_body(self) -> bytes:
        """The body of the request, as far as it has come."""
        return bytes(self._request)

    @property
    def response_body(self) -> bytes:
        """The body of the response, as far as it has come."""
        return bytes(self._response)

    def request_json(self) -> Any:
        """Return the JSON document of the request.

        Raises:
            ValueError: If it is not JSON.
        """
        return json.loads(self.request_body)

    def response_json(self) -> Any:
        """Return the JSON document of the response.

        Raises:
            ValueError: If it is not JSON.
        """
        return json.loads(self.response_body)

    def response_events(self) -> list[Any]:
        """Return the JSON documents of a stream of server-sent events, without ``[DONE]``.

        Raises:
            ValueError: If the data of an event is not JSON.
        """
        return event_documents(self.response_body)


def _as_text(headers: RawHeaders) -> dict[str, str]:
    text: dict[str, str] = {}
    for raw_name, raw_value in headers:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        text[name] = f"{text[name]}, {value}" if name in text else value
    return text


def event_documents(body: bytes) -> list[Any]:
    """Return the JSON documents of server-sent events; see https://html.spec.whatwg.org/multipage/server-sent-events.html.

    Raises:
        ValueError: If the data of an event is not JSON.
    """
    documents = []
    lines: list[str] = []
    for line in [*body.decode("utf-8", errors="replace").splitlines(), ""]:
        if line.startswith("data:"):
            lines.append(line.removeprefix("data:").removeprefix(" "))
        elif not line and lines:
            data = "\n".join(lines)
            lines.clear()
            if data.strip() != "[DONE]":
                documents.append(json.loads(data))
    return documents


class Recording:
    """An exchange in progress.

    Args:
        exchange: What is recorded.
        log: The log that it belongs to.
    """

    def __init__(self, exchange: Exchange, log: DoorLog) -> None:
        self.exchange = exchange
        self._log = log
        self._started = time.perf_counter()

    def add_request(self, data: bytes) -> None:
        """Add a part of the request's body."""
        self._add(self.exchange._request, data)

    def begin_response(self, status: int, headers: RawHeaders) -> None:
        """Note the head of the response."""
        self.exchange.status, self.exchange._response_headers = status, headers

    def add_response(self, data: bytes) -> None:
        """Add a part of the response's body."""
        self._add(self.exchange._response, data)

    def end(self, error: str | None = None) -> None:
        """Note the end of the exchange, and why it ended early."""
        exchange = self.exchange
        exchange.error = error
        exchange.is_complete = error is None
        exchange.seconds = time.perf_counter() - self._started

    def refuse(self, reason: str) -> None:
        """Note that the rules of an ``Egress`` refuse it, and the end of the exchange."""
        self.exchange.refusal = reason
        self.end(reason)

    def _add(self, body: bytearray, data: bytes) -> None:
        room = min(_MAX_BODY_BYTES - len(body), self._log.room)
        if len(data) > room:
            self.exchange.is_truncated = True
            data = data[: max(room, 0)]
        body += data
        self._log.room -= len(data)


class DoorLog(Sequence[Exchange]):
    """The exchanges of one episode, the oldest first: at most 10,000, with at most 64 MiB together.

    An exchange is in the log as soon as its request has come. What a program of the session has received is in the log.

    Attributes:
        room: Number of bytes that the log still records.
        total: Number of exchanges of the episode, with those that the log has no room for.
    """

    def __init__(self) -> None:
        self._exchanges: deque[Exchange] = deque(maxlen=_MAX_EXCHANGES)
        self.clear()

    def record(self, step: int, method: bytes, path: bytes, headers: RawHeaders) -> Recording:
        """Add an exchange, given its request, and return what records the rest."""
        size = len(path) + sum(len(name) + len(value) for name, value in headers)
        is_truncated = size > self.room
        if is_truncated:
            path, headers = path[:_MAX_TRUNCATED_PATH], ()
        else:
            self.room -= size
        exchange = Exchange(
            step, method.decode("ascii"), path.decode("latin-1"), is_truncated=is_truncated, _request_headers=headers
        )
        self._exchanges.append(exchange)
        self.total += 1
        return Recording(exchange, self)

    def clear(self) -> None:
        """Remove all exchanges."""
        self._exchanges.clear()
        self.room = _MAX_LOG_BYTES
        self.total = 0

    def since(self, total: int) -> list[Exchange]:
        """Return the exchanges after the first ``total`` ones, as far as the log has them."""
        found = list(self._exchanges)
        return found[max(0, len(found) - (self.total - total)) :]

    def of_step(self, step: int) -> list[Exchange]:
        """Return the exchanges whose request came in a step."""
        return [exchange for exchange in list(self._exchanges) if exchange.step == step]

    @overload
    def __getitem__(self, index: int) -> Exchange: ...

    @overload
    def __getitem__(self, index: slice) -> list[Exchange]: ...

    def __getitem__(self, index: int | slice) -> Exchange | list[Exchange]:
        return list(self._exchanges)[index]

    def __len__(self) -> int:
        return len(self._exchanges)

    def __iter__(self) -> Iterator[Exchange]:
        return iter(list(self._exchanges))

    def __repr__(self) -> str:
        return f"<DoorLog of {len(self)} exchanges>"
