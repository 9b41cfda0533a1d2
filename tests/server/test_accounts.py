"""Users of a file system are found as an engine finds them."""

from __future__ import annotations

import pytest

from coding_gym_server.linux.accounts import find_account

PASSWD = """root:x:0:0:root:/root:/bin/sh
agent:x:1500:1501::/home/agent:/bin/sh
broken:x:y:z
plain:x:7:8
"""
GROUP = """root:x:0:
agent:x:1501:
readers:x:70:agent,plain
writers:x:71:agent
"""


@pytest.fixture
def root(tmp_path):
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/passwd").write_text(PASSWD)
    (tmp_path / "etc/group").write_text(GROUP)
    return str(tmp_path)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("", (0, 0, (), "/root")),
        ("root", (0, 0, (), "/root")),
        ("agent", (1500, 1501, (70, 71), "/home/agent")),
        ("1500", (1500, 1501, (70, 71), "/home/agent")),
        ("agent:readers", (1500, 70, (), "/home/agent")),
        ("agent:5", (1500, 5, (), "/home/agent")),
        ("1234", (1234, 0, (), "/")),
        ("1234:71", (1234, 71, (), "/")),
        (":readers", (0, 70, (), "/root")),
        ("plain", (7, 8, (70,), "/")),
    ],
)
def test_users(root, name, expected):
    assert find_account(name, root=root) == expected


@pytest.mark.parametrize("name", ["nobody", "agent:nobody", "broken", "-1", "1.5", "agent\n", "4294967295", "1" * 5000, "²"])
def test_unknown_users(root, name):
    with pytest.raises(ValueError, match="is not in /etc/"):
        find_account(name, root=root)


def test_no_users(tmp_path):
    assert find_account("", root=str(tmp_path)) == (0, 0, (), "/")
    assert find_account("5", root=str(tmp_path)) == (5, 0, (), "/")
