from __future__ import annotations

import os
import socket
import stat
import threading

import pytest

from coding_gym_studio.watching.client import find_trainers
from coding_gym_studio.watching.directory import connect, listen, prepare_directory, socket_paths, watching_directory


def test_directory_is_private(runtime_directory):
    directory = prepare_directory()
    assert directory == runtime_directory / f"coding-gym-{os.getuid()}" / "watch"
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert prepare_directory() == directory


def test_a_directory_that_others_can_access_is_refused(runtime_directory):
    prepare_directory().chmod(0o755)
    with pytest.raises(PermissionError, match="private directory of this user"):
        prepare_directory()
    assert list(socket_paths()) == []


def test_a_link_is_refused(runtime_directory, tmp_path):
    target = tmp_path / "elsewhere"
    target.mkdir(mode=0o700)
    watching_directory().parent.symlink_to(target)
    with pytest.raises(PermissionError):
        prepare_directory()
    assert list(socket_paths()) == []


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_another_user_is_refused(runtime_directory):
    os.chown(prepare_directory(), 12345, 12345)
    with pytest.raises(PermissionError):
        prepare_directory()
    assert list(socket_paths()) == []


def test_a_missing_directory_has_no_trainers(runtime_directory, monkeypatch):
    assert find_trainers() == []
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime_directory / "missing"))
    assert watching_directory().parts[1] == "tmp"


def test_sockets_without_a_listener_are_removed(runtime_directory):
    path = prepare_directory() / "1-abc.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.fspath(path))
    assert connect(path, timeout=1) is None
    assert not path.exists()


def test_sockets_are_not_removed_before_they_listen(runtime_directory):
    has_ended = threading.Event()

    def look() -> None:
        while not has_ended.is_set():
            for path in socket_paths():
                if (connection := connect(path, timeout=1)) is not None:
                    connection.close()

    readers = [threading.Thread(target=look) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        for _ in range(1000):
            path, listener = listen(backlog=16)
            assert path.exists()
            path.unlink()
            listener.close()
    finally:
        has_ended.set()
        for reader in readers:
            reader.join()
    assert list(prepare_directory().iterdir()) == []


def test_something_else_with_the_name_of_a_socket_is_left_alone(runtime_directory):
    path = prepare_directory() / "1-abc.sock"
    path.write_text("")
    assert find_trainers() == []
    assert path.exists()
