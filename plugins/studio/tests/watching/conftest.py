from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest

from coding_gym.telemetry import observation
from coding_gym_studio.watching.client import TrainerConnection
from coding_gym_studio.watching.directory import socket_paths
from tests.support.timing import eventually


@pytest.fixture
def runtime_directory(monkeypatch):
    """An empty directory for sockets, with a short path; nobody observes this process."""
    directory = Path(tempfile.mkdtemp(prefix="cg-"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(directory))
    monkeypatch.delenv("CODING_GYM_WATCH", raising=False)
    monkeypatch.delenv("CODING_GYM_WATCH_ROOT", raising=False)
    monkeypatch.setattr(observation, "observers", ())
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def connect():
    """Connect to a socket, or to a process, whose socket may not exist yet."""
    opened = []

    def find(pid):
        paths = [path for path in socket_paths() if path.name.startswith(f"{pid}-")]
        return TrainerConnection.open(paths[0]) if paths else None

    def connect(target):
        connection = eventually(lambda: find(target)) if isinstance(target, int) else TrainerConnection.open(target)
        if connection is not None:
            opened.append(connection)
        return connection

    yield connect
    for connection in opened:
        connection.close()
