"""Listening sockets of displays, in directories that code of a session may replace."""

from __future__ import annotations

import contextlib
import os
import stat

import pytest

from coding_gym_server.server.supervisor.display_socket import listen, socket_name


def test_sockets_have_different_numbers(tmp_path):
    directory = tmp_path / "sockets"
    with contextlib.ExitStack() as stack:
        numbers = []
        for _ in range(3):
            listener, number = listen(directory, secret=False)
            stack.enter_context(listener)
            numbers.append(number)
        assert numbers == [100, 101, 102]
        assert sorted(os.listdir(directory)) == [*map(socket_name, numbers)]
    assert stat.S_IMODE(directory.stat().st_mode) == 0o1777


def test_secret_numbers_are_random(tmp_path):
    found = [listen(tmp_path, secret=True) for _ in range(2)]
    for listener, _ in found:
        listener.close()
    assert len({number for _, number in found} | {100, 101}) == 4


def test_link_instead_of_directory_is_not_followed(tmp_path):
    (tmp_path / "target").mkdir(mode=0o700)
    (tmp_path / "sockets").symlink_to(tmp_path / "target")
    with pytest.raises(NotADirectoryError):
        listen(tmp_path / "sockets", secret=True)
    assert os.listdir(tmp_path / "target") == []
    assert stat.S_IMODE((tmp_path / "target").stat().st_mode) == 0o700


def test_file_instead_of_directory_is_refused(tmp_path):
    (tmp_path / "sockets").write_text("")
    with pytest.raises(NotADirectoryError):
        listen(tmp_path / "sockets", secret=True)


def test_link_with_a_display_name_is_left_alone(tmp_path):
    (tmp_path / "X100").symlink_to("missing")
    listener, number = listen(tmp_path, secret=False)
    listener.close()
    assert number == 101
    assert (tmp_path / "X100").is_symlink()
