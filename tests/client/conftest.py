"""Processes of an episode that has just begun."""

from __future__ import annotations

import pytest

from coding_gym.client.processes import Processes
from conftest import TestSession


@pytest.fixture
def processes(session: TestSession) -> Processes:
    session.reset()
    return session.http.processes
