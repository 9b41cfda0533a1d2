"""Sandboxes that grade."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest
from judging import Judge

from coding_gym.config import SandboxConfig
from coding_gym.providers import Sandbox, start_sandbox


@pytest.fixture(scope="module")
def local_sandbox() -> Iterator[Sandbox]:
    with contextlib.closing(
        start_sandbox(SandboxConfig(provider="local", preload=(), sessions=16, idle_timeout=3600))
    ) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def judge(local_sandbox: Sandbox) -> Iterator[Judge]:
    with contextlib.closing(local_sandbox.connect()) as session:
        yield Judge(session)


@pytest.fixture(scope="module")
def judges(local_sandbox: Sandbox) -> Iterator[Callable[[], Judge]]:
    with contextlib.ExitStack() as stack:
        yield lambda: Judge(stack.enter_context(contextlib.closing(local_sandbox.connect())))
