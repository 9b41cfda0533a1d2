from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest
from attack import Inside

from coding_gym.config import SandboxConfig
from coding_gym.providers import Sandbox, start_sandbox


@pytest.fixture(scope="module")
def box(provider: str) -> Iterator[Sandbox]:
    """A sandbox of several sessions."""
    with contextlib.closing(start_sandbox(SandboxConfig(provider=provider, preload=(), sessions=8))) as sandbox:
        yield sandbox


@pytest.fixture
def enter(box: Sandbox) -> Iterator[Callable[[], Inside]]:
    with contextlib.ExitStack() as stack:
        yield lambda: stack.enter_context(contextlib.closing(Inside(box)))


@pytest.fixture
def attacker(enter: Callable[[], Inside]) -> Inside:
    return enter()


@pytest.fixture
def victim(enter: Callable[[], Inside]) -> Iterator[Inside]:
    """Another session of the same sandbox, which must not notice anything."""
    victim = enter()
    victim.run("kept = 'kept'; open('file', 'w').write('kept') and None")
    yield victim
    assert victim.see("(kept, open('file').read())") == ("kept", "kept")
