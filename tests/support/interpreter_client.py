"""Plain HTTP client of the code interpreter API."""

from __future__ import annotations

import json
from typing import Any

import httpx

__all__ = ["Execution", "InterpreterClient"]


class Execution:
    """Messages of one execution."""

    def __init__(self, messages: list[dict[str, Any]]) -> None:
        self.messages = messages
        assert [message["type"] for message in messages].count("error") <= 1
        assert messages[-1] == {"type": "end_of_execution"}

    @property
    def count(self) -> int:
        (message,) = self.of("number_of_executions")
        return message["execution_count"]

    @property
    def stdout(self) -> str:
        return "".join(message["text"] for message in self.of("stdout"))

    @property
    def stderr(self) -> str:
        return "".join(message["text"] for message in self.of("stderr"))

    @property
    def results(self) -> list[dict[str, Any]]:
        return self.of("result")

    @property
    def text(self) -> str | None:
        return next((result.get("text") for result in self.results if result["is_main_result"]), None)

    @property
    def error(self) -> dict[str, Any] | None:
        return next(iter(self.of("error")), None)

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [message for message in self.messages if message["type"] == kind]


class InterpreterClient:
    """Client with a keep-alive connection."""

    def __init__(self, url: str) -> None:
        self.http = httpx.Client(base_url=url, timeout=30)
        self.context: str | None = None

    def __enter__(self) -> InterpreterClient:
        return self

    def __exit__(self, *_: object) -> None:
        if self.context is not None:
            self.http.delete(f"/contexts/{self.context}")
        self.http.close()

    def use_fresh_context(self, **options: Any) -> None:
        self.context = self.create(**options)["id"]

    def create(self, **options: Any) -> dict[str, Any]:
        response = self.http.post("/contexts", json=options)
        assert response.status_code == 200, response.text
        return response.json()

    def post(self, code: str, **options: Any) -> httpx.Response:
        return self.http.post("/execute", json=self.body(code, **options))

    def body(self, code: str, **options: Any) -> dict[str, Any]:
        where = {} if self.context is None or "language" in options else {"context_id": self.context}
        return {"code": code, **where, **options}

    def execute(self, code: str, **options: Any) -> Execution:
        response = self.post(code, **options)
        assert response.status_code == 200, response.text
        return Execution([json.loads(line) for line in response.text.splitlines()])
