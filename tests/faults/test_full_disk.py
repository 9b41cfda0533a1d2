"""Full disks: inside the sandbox, an ordinary error of user code; on the host, a clear error at the start."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import textwrap
from pathlib import Path

import gymnasium as gym
import pytest

from coding_gym.errors import SandboxStartError
from tests.faults.episodes import SMALL, assert_starts_over, outcome, shown
from tests.support.timing import promptly

pytestmark = pytest.mark.every_provider

FILL = """
    import os
    print("before")
    with open({directory} + "/full", "wb") as f:
        while True:
            f.write(bytes(1 << 16))
"""
USE_UP_INODES = """
    import os
    print("before")
    os.mkdir({directory} + "/many")
    for number in range(200_000):
        open(f"{{{directory}}}/many/{{number}}", "w").close()
"""
FILES = "sum((os.listdir(path) for path in ('.', os.environ['HOME'], os.environ['TMPDIR'], '/tmp', '/dev/shm')), [])"


@pytest.fixture(scope="module")
def shared(docker_engine):
    options = {**SMALL, "mem": "512m", "step_timeout": 30}
    with contextlib.closing(gym.make("CodingEnv-v0", provider="docker", **options).unwrapped) as env:
        yield env


@pytest.fixture
def env(shared):
    shared.reset(seed=1)
    # Files of the previous episode are removed in the background.
    free = "import os, time\nwhile (room := os.statvfs('.')).f_bavail * room.f_frsize < 15 << 19: time.sleep(0.05)"
    assert outcome(shared, free) == ("ok", 0, False)
    container = shared.sandbox.container.id
    yield shared
    # The next episode, in the same sandbox, has the whole disk available from the start.
    shared.reset(seed=2)
    assert shown(shared, "import os; open('f', 'wb').write(bytes(6 << 20)), os.makedirs('a/b')") == f"({6 << 20}, None)\n"
    shared.reset(seed=3)
    assert shown(shared, f"import os; {FILES}") == "[]\n"
    assert shared.sandbox.container.id == container


def fails_for_want_of_room(env, code):
    observation, _, _, truncated, info = env.step(code)
    assert (info, observation["exit_code"], truncated) == ({"outcome": "error", "state_lost": False}, 1, False)
    assert "OSError: [Errno 28] No space left on device" in observation["stderr"]
    return observation["stdout"]


# Inside the sandbox


@pytest.mark.docker
@pytest.mark.parametrize("directory", ["'.'", "os.environ['HOME']", "os.environ['TMPDIR']", "'/tmp'", "'/dev/shm'"])
def test_full_disk_keeps_session_usable(env, directory):
    assert fails_for_want_of_room(env, textwrap.dedent(FILL.format(directory=directory))) == "before\n"
    # The disk is still full, and everything else works.
    assert (
        fails_for_want_of_room(env, f"print('x' * 9000)\nopen({directory} + '/f', 'wb').write(bytes(1 << 20))")
        == "x" * 9000 + "\n"
    )
    assert outcome(env, "os._exit(3)") == ("killed", 3, True)
    assert shown(env, f"import os; os.path.getsize({directory} + '/full') > 7 << 20") == "True\n"


@pytest.mark.docker
@pytest.mark.parametrize("directory", ["'.'", "'/tmp'"])
def test_exhausted_inodes_keep_session_usable(env, directory):
    assert fails_for_want_of_room(env, textwrap.dedent(USE_UP_INODES.format(directory=directory))) == "before\n"
    assert fails_for_want_of_room(env, f"print('still'); os.mkdir({directory} + '/one')") == "still\n"
    assert outcome(env, "os._exit(3)") == ("killed", 3, True)
    assert shown(env, "1") == "1\n"


# On the host


@pytest.fixture
def place(monkeypatch):
    """Runtime directory on the host for the files of sandboxes, with a short path."""
    with tempfile.TemporaryDirectory(prefix="cg-") as directory:
        monkeypatch.setenv("XDG_RUNTIME_DIR", directory)
        yield Path(directory)


@pytest.fixture
def mount(place):
    """Function that mounts a ``tmpfs`` on the runtime directory."""

    def mount(options):
        command = ["mount", "-t", "tmpfs", "-o", options, "none", str(place)]
        if subprocess.run(command, stderr=subprocess.DEVNULL).returncode:
            pytest.skip("mounting is not permitted here")
        mounted.append(place)

    mounted: list[Path] = []
    yield mount
    for path in mounted:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def assert_refused(make, provider, match):
    env = make(provider=provider)
    with promptly(), pytest.raises(SandboxStartError, match=match):
        env.reset()
    return env


def test_missing_runtime_directory_is_replaced_by_temporary_one(make, provider, place, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(place / "missing"))
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    assert_starts_over(make(provider=provider))
    assert [path.name for path in place.iterdir()] == [f"coding-gym-{os.getuid()}"]


def test_missing_temporary_directory_is_refused(make, provider, place, monkeypatch):
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.setattr(tempfile, "tempdir", str(place / "missing"))
    env = assert_refused(make, provider, "missing.*No such file.*XDG_RUNTIME_DIR")
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    assert_starts_over(env)


def test_file_as_runtime_directory_is_refused(make, provider, place):
    (place / f"coding-gym-{os.getuid()}").touch()
    assert_refused(make, provider, "XDG_RUNTIME_DIR")


def test_runtime_directory_path_too_long_is_refused(make, provider, place, monkeypatch):
    long = place / ("x" * 90)
    long.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(long))
    assert_refused(make, provider, "too long.*XDG_RUNTIME_DIR")


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ("ro", "Read-only.*XDG_RUNTIME_DIR"),
        ("nr_inodes=2", "No space left.*XDG_RUNTIME_DIR"),
        ("nr_inodes=3", "No space left.*XDG_RUNTIME_DIR"),
        ("nr_inodes=5", "No space left.*XDG_RUNTIME_DIR"),
    ],
)
def test_full_or_readonly_runtime_directory_is_refused(make, provider, mount, place, options, match):
    mount(options)
    assert_refused(make, provider, match)
    assert [path for path in place.rglob("*") if path.name != f"coding-gym-{os.getuid()}"] == []


def test_local_server_on_full_disk_shows_log(make, mount, place):
    # Enough inodes for the sandbox's directory, but not for the files of a session.
    mount("nr_inodes=7")
    assert_refused(make, "local", "No space left")
    assert [path for path in place.rglob("*") if path.name != f"coding-gym-{os.getuid()}"] == []
