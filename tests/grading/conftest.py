"""Sandbox and sessions for grading."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from coding_gym.sandbox import Sandbox
from tests.grading.judging import Judge


@pytest.fixture(scope="session")
def local_sandbox(sandbox_of: Callable[..., Sandbox]) -> Sandbox:
    return sandbox_of(provider="local")


@pytest.fixture(scope="module")
def judge(local_sandbox: Sandbox) -> Iterator[Judge]:
    with contextlib.closing(local_sandbox.connect()) as session:
        yield Judge(session)


@pytest.fixture(scope="module")
def judges(local_sandbox: Sandbox) -> Iterator[Callable[[], Judge]]:
    with contextlib.ExitStack() as stack:
        yield lambda: Judge(stack.enter_context(contextlib.closing(local_sandbox.connect())))
