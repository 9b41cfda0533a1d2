from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from coding_gym.sandbox import Sandbox
from tests.security.attack import Inside
from tests.support.sandbox_processes import server_of


@pytest.fixture(scope="module")
def box(provider: str, sandbox_of: Callable[..., Sandbox]) -> Sandbox:
    """Sandbox with several sessions, which no attack may harm."""
    return sandbox_of(provider=provider)


@pytest.fixture(scope="module")
def niceness(box: Sandbox) -> int:
    """Niceness of user code, which is 10 above that of the server, whatever the tests run with."""
    return min(19, server_of(box).nice() + 10)


@pytest.fixture
def enter(box: Sandbox) -> Iterator[Callable[[], Inside]]:
    with contextlib.ExitStack() as stack:
        yield lambda: stack.enter_context(contextlib.closing(Inside(box)))


@pytest.fixture
def attacker(enter: Callable[[], Inside]) -> Inside:
    return enter()


@pytest.fixture
def victim(enter: Callable[[], Inside]) -> Iterator[Inside]:
    """Another session of the same sandbox, which no attack may affect."""
    victim = enter()
    victim.run("kept = 'kept'; open('file', 'w').write('kept') and None")
    yield victim
    assert victim.see("(kept, open('file').read())") == ("kept", "kept")
