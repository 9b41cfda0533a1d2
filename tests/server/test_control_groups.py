"""Control groups of sessions: what the server writes where a container may divide its own, and when it does not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from coding_gym_server.linux import control_groups

SESSION = {"pids.max": "", "memory.max": "", "memory.low": "", "cgroup.procs": ""}
RECORDED = {
    # As in a container of Docker 28 with version 2 of control groups, writable-cgroups=true and 2 GiB.
    "cgroup.controllers": "cpuset cpu io memory hugetlb pids rdma misc\n",
    "cgroup.subtree_control": "",
    "cgroup.procs": "1\n7\n",
    "memory.max": f"{2 << 30}\n",
    "server": {"cgroup.procs": "", "cpu.weight": "100\n"},
    "sessions": {
        "cgroup.procs": "",
        "cgroup.subtree_control": "",
        "memory.low": "0\n",
        "memory.max": "max\n",
        "20001": SESSION,
    },
}


@pytest.fixture
def container(tmp_path):
    """Directory with the files of a container's group, and of those that the kernel would fill when they are made."""
    make(tmp_path, RECORDED)
    return tmp_path


def make(directory: Path, content: dict) -> None:
    directory.mkdir(exist_ok=True)
    for name, value in content.items():
        if isinstance(value, dict):
            make(directory / name, value)
        else:
            (directory / name).write_text(value)


def test_container_is_shared_out(container):
    assert control_groups.share_out(os.getegid(), root=container) == ""
    # The file of the kernel takes one at a time; this one keeps the last.
    assert (container / "server" / "cgroup.procs").read_text().startswith("7")
    for group in (container, container / "sessions"):
        assert (group / "cgroup.subtree_control").read_text() == "+cpu +memory +pids"
    assert (container / "server" / "cpu.weight").read_text().startswith("1000")
    for name in ("memory.low", "memory.max"):
        assert (container / "sessions" / name).read_text() == str(7 << 28)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become a member of a group")
def test_only_zygotes_may_move_processes(container):
    assert control_groups.share_out(12345, root=container) == ""
    given = {path for path in container.rglob("*") if path.stat().st_gid == 12345 and path.stat().st_mode & 0o20}
    names = {"cgroup.procs", "sessions", "sessions/cgroup.procs"}
    assert {str(path.relative_to(container)) for path in given} == names


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda root: (root / "cgroup.controllers").unlink(), "no control groups of version 2"),
        (lambda root: (root / "cgroup.controllers").write_text("cpuset cpu pids\n"), "lacks memory"),
        (lambda root: (root / "cgroup.controllers").write_text("\n"), "lacks cpu, memory, pids"),
        (lambda root: (root / "cgroup.subtree_control").unlink(), "cannot be changed: No such file"),
    ],
    ids=["version 1", "one controller", "no controller", "refused"],
)
def test_reasons_are_given(container, change, reason):
    change(container)
    assert reason in control_groups.share_out(os.getegid(), root=container)


def test_session_gets_its_share(container):
    control_groups.join_own("20001", max_tasks=192, systems=7, root=container)
    group = container / "sessions" / "20001"
    assert {name: (group / name).read_text() for name in SESSION} == {
        "pids.max": "192",
        "memory.max": str(7 << 28),
        "memory.low": str((7 << 28) // 7),
        "cgroup.procs": "0",
    }


def test_container_without_limits_limits_no_session(container):
    (container / "memory.max").write_text("max\n")
    control_groups.join_own("20001", max_tasks=None, systems=7, root=container)
    group = container / "sessions" / "20001"
    assert ((group / "pids.max").read_text(), (group / "memory.max").read_text()) == ("max", "")


def test_groups_of_ended_sessions_are_removed(container):
    (container / "sessions" / "20000").mkdir()
    control_groups.join_own("20001", max_tasks=None, systems=1, root=container)
    assert sorted(path.name for path in (container / "sessions").iterdir() if path.is_dir()) == ["20001"]
