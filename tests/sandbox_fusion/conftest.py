"""A shared sandbox, and clients of its SandboxFusion routes."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from coding_gym.sandbox import Sandbox
from tests.support.program_requests import client_of, post_program
from tests.support.requirements import import_extra


@pytest.fixture(scope="session")
def http(provider: str, sandbox_of: Callable[..., Sandbox]) -> Iterator[httpx.Client]:
    with client_of(sandbox_of(provider=provider)) as client:
        yield client


@pytest.fixture
def run_code(provider: str, http: httpx.Client) -> Callable[..., dict[str, Any]]:
    """Function that runs code, in Python unless a language is given, and returns the response."""

    def run(code: str, *, language: str = "python", **fields: Any) -> dict[str, Any]:
        if provider == "local" and (language == "typescript" or (language == "nodejs" and not shutil.which("node"))):
            # Images contain it.
            import_extra("deno")
        # On a busy machine, memory takes seconds to allocate.
        answer = post_program(http, {"code": code, "language": language, "run_timeout": 60, **fields})
        assert answer.status_code == 200, answer.text
        return answer.json()

    return run
