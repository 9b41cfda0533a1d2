from __future__ import annotations

import errno
import os
from pathlib import Path

import msgspec
import pytest

from coding_gym_server.linux.forking import ask_child
from coding_gym_server.linux.user_namespaces import become
from coding_gym_server.reasons import KernelFacts, explain

MODERN = KernelFacts(release="6.12.1", root=False, filtered=False, sysctls={"user.max_user_namespaces": 1000})
OLD = msgspec.structs.replace(MODERN, release="5.10.0-8-amd64")
FILTERED = msgspec.structs.replace(MODERN, filtered=True)
UBUNTU = msgspec.structs.replace(MODERN, sysctls={"kernel.apparmor_restrict_unprivileged_userns": 1})
FORBIDDEN = msgspec.structs.replace(MODERN, sysctls={"kernel.unprivileged_userns_clone": 0})
NO_NAMESPACES = msgspec.structs.replace(MODERN, sysctls={"user.max_user_namespaces": 0, "user.max_mnt_namespaces": 5})


@pytest.mark.parametrize(
    ("operation", "number", "facts", "expected"),
    [
        ("mount_setattr /tmp", errno.ENOSYS, OLD, "it needs Linux 5.12, and this is 5.10.0-8-amd64"),
        ("mount_setattr /tmp", errno.ENOSYS, FILTERED, "the seccomp profile of the container denies it"),
        ("mount_setattr /tmp", errno.EINVAL, OLD, "it needs Linux 6.3, and this is 5.10.0-8-amd64"),
        ("mount_setattr /tmp", errno.EINVAL, MODERN, ""),
        ("unshare", errno.EPERM, FILTERED, "seccomp profile of the container denies it: start it with coding_gym/"),
        ("unshare", errno.EPERM, UBUNTU, "sysctl kernel.apparmor_restrict_unprivileged_userns=1: load a profile"),
        ("mount /proc/self/fd/3", errno.EACCES, UBUNTU, "deploy/apparmor/coding-gym"),
        ("unshare", errno.EPERM, msgspec.structs.replace(UBUNTU, root=True), ""),
        ("unshare", errno.EPERM, FORBIDDEN, "sysctl kernel.unprivileged_userns_clone is 0: set it to 1"),
        ("unshare", errno.ENOSPC, NO_NAMESPACES, "sysctl user.max_user_namespaces is 0: raise it"),
        ("clone", errno.ENOSPC, MODERN, "sysctl user.max_user_namespaces is reached: raise it"),
        ("mount /tmp", errno.ENOSPC, NO_NAMESPACES, ""),
        ("mount proc", errno.EPERM, MODERN, "systempaths=unconfined"),
        ("clone", errno.EAGAIN, MODERN, "the process limit is reached"),
        ("unshare", errno.EUSERS, MODERN, "nested too deeply"),
        ("unshare", errno.EPERM, MODERN, ""),
    ],
)
def test_cause_is_named(operation, number, facts, expected):
    found = explain(operation, number, facts).removeprefix(f"{operation}: {os.strerror(number)}")
    assert expected in found
    assert bool(expected) == bool(found)


def test_explanation_has_operation_error_and_cause():
    assert explain("unshare", errno.EPERM, FORBIDDEN) == (
        "unshare: Operation not permitted (sysctl kernel.unprivileged_userns_clone is 0: set it to 1)"
    )
    assert explain("unshare", errno.EPERM, MODERN) == "unshare: Operation not permitted"


def test_error_of_a_process_that_is_in_no_proc_is_that_of_the_call(monkeypatch):
    monkeypatch.setattr("coding_gym_server.reasons.Path", lambda *_: Path("/nonexistent"))
    assert explain("clone", errno.EAGAIN) == "clone: Resource temporarily unavailable"


def test_facts_are_those_of_this_process():
    facts = KernelFacts.read()
    assert facts.version >= (5, 0)
    assert facts.sysctls["user.max_user_namespaces"] >= 0

    def as_other_user() -> str:
        become(54321)
        return str(KernelFacts.read().root)

    if facts.root:
        assert ask_child(as_other_user) == "False"
