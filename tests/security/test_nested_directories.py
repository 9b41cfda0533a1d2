"""Directories nested far more deeply than a process has descriptors are removed, and harm no other session."""

from __future__ import annotations

import os
import resource

import pytest

from coding_gym.errors import SnapshotError
from coding_gym_server.workspace import directory

LEVELS = 9_000
_LEVELS_INSIDE = 3_000
"""The kernel checks the permissions of all parents again for each directory that a session makes."""

NEST = f"""
def nest(start, levels={_LEVELS_INSIDE}):
    os.chdir(start)
    for level in range(levels):
        os.mkdir("d")
        os.chdir("d")
    open("file", "w").close()
"""


@pytest.fixture
def few_descriptors():
    """Lets this process open few more files than it has open."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(map(int, os.listdir("/proc/self/fd")))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 8, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def make_deep(top, levels):
    """Create nested directories, as deep as no path is long."""
    here = os.open(top, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=here)
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=here))
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)


def test_depth_needs_no_descriptors(tmp_path, few_descriptors):
    make_deep(tmp_path, LEVELS)
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").touch()
    directory.clear(tmp_path, keep={"kept"})
    assert os.listdir(tmp_path) == ["kept"]
    assert os.listdir(tmp_path / "kept") == ["file"]


def test_breadth_and_depth_are_removed_regardless_of_modes(tmp_path):
    for first in "abc":
        for second in "abc":
            path = tmp_path / first / second / "c"
            path.mkdir(parents=True)
            (path / "file").touch()
            path.chmod(0)
            path.parent.chmod(0o500)
    directory.clear(tmp_path)
    assert os.listdir(tmp_path) == []


def test_links_are_not_followed(tmp_path):
    outside = tmp_path / "outside"
    inside = tmp_path / "inside" / "a"
    outside.mkdir()
    inside.mkdir(parents=True)
    (outside / "file").touch()
    (inside / "link").symlink_to(outside)
    (inside.parent / "link").symlink_to(outside)
    directory.clear(inside.parent)
    assert os.listdir(outside) == ["file"]
    inside.parent.rmdir()
    inside.parent.symlink_to(outside)
    with pytest.raises(NotADirectoryError):
        directory.clear(inside.parent)
    assert os.listdir(outside) == ["file"]


@pytest.mark.parametrize("place", [".", "/tmp"])
def test_deep_directories_end_with_the_episode(attacker, victim, place):
    attacker.do(f"{NEST}\nnest({place!r})", timeout=60)
    # With a spare, the executor that was used comes back once it has been emptied in the background.
    for _ in range(3):
        attacker.reset()
        assert attacker.see(f"'d' in os.listdir({place!r})") is False


def test_clients_remove_deep_directories(open_session):
    session = open_session()
    session.reset()
    assert session.run(f"import os\n{NEST}\nos.mkdir('top')\nnest('top')", 60).exit_code == 0
    session.http.files.remove("top")
    assert session.http.files.list() == []


def test_snapshots_of_deep_directories_are_refused(open_session):
    session = open_session()
    session.reset()
    assert session.run(f"import os\n{NEST}\nhere = os.getcwd(); nest(here, 99); os.chdir(here)").exit_code == 0
    session.release(session.clone())
    assert session.run(f"nest('{'d/' * 99}', 2); os.chdir(here)").exit_code == 0
    with pytest.raises(SnapshotError, match="nested more than 100 levels"):
        session.clone()
