"""Malformed bodies are answered as FastAPI answers them; pydantic, which it validates with, is the reference."""

from __future__ import annotations

import json
from typing import Literal

import pytest

from coding_gym_server.server.sandbox_fusion.messages import LANGUAGES
from tests.support.requirements import import_extra

pydantic = import_extra("pydantic")


class RunCodeRequest(pydantic.BaseModel):
    """As in ``sandbox/server/sandbox_api.py``."""

    compile_timeout: float = 10
    run_timeout: float = 10
    memory_limit_MB: int = -1
    code: str
    stdin: str | None = None
    language: Literal[LANGUAGES]
    files: dict[str, str | None] = pydantic.Field({})
    fetch_files: list[str] = pydantic.Field([])


def expected_errors(body: object) -> list[dict[str, object]]:
    try:
        RunCodeRequest.model_validate(body)
    except pydantic.ValidationError as error:
        return [
            {"type": detail["type"], "loc": ["body", *detail["loc"]], "msg": detail["msg"]}
            for detail in error.errors(include_url=False)
        ]
    return []


FINE = {"code": "print(1)", "language": "python"}


@pytest.mark.parametrize(
    "change",
    [
        {"code": None},
        {"code": 1},
        {"code": ["x"]},
        {"language": None},
        {"language": "Python"},
        {"language": 3},
        {"stdin": 5},
        {"run_timeout": "soon"},
        {"run_timeout": None},
        {"compile_timeout": []},
        {"memory_limit_MB": "1e3"},
        {"memory_limit_MB": {}},
        {"memory_limit_MB": 1.5},
        {"files": [1]},
        {"files": {"a": 1}},
        {"fetch_files": "a"},
        {"fetch_files": ["a", 1]},
        {"fetch_files": None},
        {"code": 1, "language": 1, "stdin": 1, "run_timeout": "x", "files": 1},
    ],
    ids=str,
)
def test_invalid_fields(http, change):
    body = {**FINE, **change}
    answer = http.post("/run_code", json=body)
    assert answer.status_code == 422
    found = [{name: detail[name] for name in ("type", "loc", "msg")} for detail in answer.json()["detail"]]
    key = json.dumps
    assert sorted(found, key=key) == sorted(expected_errors(body), key=key)


@pytest.mark.parametrize("body", [{}, {"language": "python"}, {"code": "x"}], ids=str)
def test_missing_fields(http, body):
    answer = http.post("/run_code", json=body)
    assert answer.status_code == 422
    found = [{name: detail[name] for name in ("type", "loc", "msg")} for detail in answer.json()["detail"]]
    key = json.dumps
    assert sorted(found, key=key) == sorted(expected_errors(body), key=key)


@pytest.mark.parametrize(
    "body",
    [
        {**FINE, "run_timeout": "5", "memory_limit_MB": "512"},
        {**FINE, "memory_limit_MB": 512.0, "expected_stdout": "1"},
        {**FINE, "stdin": None, "files": {"a": None}},
    ],
    ids=str,
)
def test_lenient_fields(http, body):
    assert expected_errors(body) == []
    assert http.post("/run_code", json=body).json()["run_result"]["stdout"] == "1\n"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"1", b'"x"', b"\xff", b'{"code": "\xff"}'])
def test_bodies_that_are_no_objects(http, content):
    answer = http.post("/run_code", content=content)
    assert answer.status_code == 422
    assert {detail["loc"][0] for detail in answer.json()["detail"]} == {"body"}


def test_other_methods_are_refused(http):
    assert http.get("/run_code").status_code == 405
    assert http.post("/v1/ping").status_code == 405


def test_ping_answers_pong(http):
    assert http.get("/v1/ping").json() == "pong"


def test_notebook_bodies(http):
    assert http.post("/run_jupyter", json={}).json()["detail"][0]["loc"] == ["body", "cells"]
    answer = http.post("/run_jupyter", json={"cells": ["1"], "kernel": "ir"})
    assert answer.status_code == 422
    assert answer.json()["detail"][0]["msg"] == "Input should be 'python3'"


@pytest.mark.parametrize("path", ["/run_code", "/run_jupyter", "/v1/ping"])
def test_token_is_required(http, path):
    answer = http.request("GET" if path == "/v1/ping" else "POST", path, headers={"Authorization": "Bearer x"}, json=FINE)
    assert answer.status_code == 401
