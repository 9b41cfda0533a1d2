from __future__ import annotations

import os
import re
import signal
import subprocess
import sys

import httpx
import pytest
from typer.testing import CliRunner

from coding_gym.cli.main import app
from plugins.studio.tests.watching.conftest import runtime_directory  # noqa: F401 - a fixture
from plugins.studio.tests.watching.trainers import running_trainer

pytestmark = pytest.mark.usefixtures("runtime_directory")

TRAINER = "coding_gym_studio.watch({name!r}); env = session(); reset(env); step(env, 'print(1)', '1'); wait()"


def watch(*arguments: str):
    return CliRunner().invoke(app, ["watch", *arguments])


def plain(text: str) -> str:
    """Return the words of a message in a frame."""
    return re.sub(r"[\s│]+", " ", text)


def test_list():
    assert "There is no trainer. Run one with CODING_GYM_WATCH=1" in watch("--list").stdout
    with running_trainer(TRAINER.format(name="ppo")) as process:
        found = watch("--list")
        assert found.exit_code == 0
        assert f"ppo  process {process.pid}" in found.stdout


@pytest.mark.parametrize("is_named", [False, True])
def test_program_and_arguments_need_not_be_text(is_named):
    begin = r"sys.argv = ['dir/train\udcff.py', 'bad\udcfe\x1b[31mred\u202e']; " + (
        "coding_gym_studio.watch('ppo')" if is_named else ""
    )
    with running_trainer(begin + "\nenv = session(); reset(env); wait()", CODING_GYM_WATCH="1") as process:
        found = watch("--list")
    name = "ppo" if is_named else "train\ufffd.py"
    assert f"{name}  process {process.pid}  'dir/train\ufffd.py' 'bad\ufffd\ufffd[31mred\ufffd'" in found.stdout
    assert found.stdout.strip().isprintable()


def test_several_trainers_must_be_chosen_from():
    with running_trainer(TRAINER.format(name="one")), running_trainer(TRAINER.format(name="other")):
        refused = watch()
        assert refused.exit_code == 2
        assert "there are several trainers: name one, or pass --all" in plain(refused.stderr)
        assert "one process" in plain(refused.stderr)
        assert "other process" in plain(refused.stderr)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["nonesuch"], "there is no trainer 'nonesuch'; there is none"),
        (["name", "--all"], "--all shows all trainers: leave the name out"),
    ],
)
def test_refusals(arguments, reason):
    refused = watch(*arguments)
    assert refused.exit_code == 2
    assert reason in plain(refused.stderr)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("by", ["name", "pid", "all", "default"])
def test_serves_until_it_is_stopped(by, number):
    with running_trainer(TRAINER.format(name="ppo, seed 3")) as trainer:
        argument = {"name": ["ppo, seed 3"], "pid": [str(trainer.pid)], "all": ["--all"], "default": []}[by]
        command = subprocess.Popen(
            [sys.executable, "-m", "coding_gym", "watch", *argument], stdout=subprocess.PIPE, text=True, env={**os.environ}
        )
        assert command.stdout is not None
        assert command.stdout.readline() == f"Watching ppo, seed 3 (process {trainer.pid})\n"
        address = command.stdout.readline().removeprefix("Open ").strip()
        url, token = re.fullmatch(r"(http://127\.0\.0\.1:\d+/)#token=(\S+)", address).groups()
        assert "coding-gym watch" in httpx.get(url).text
        assert httpx.get(f"{url}api/stream").status_code == 401
        with httpx.stream("GET", f"{url}api/stream", headers={"Authorization": f"Bearer {token}"}) as stream:
            assert "print(1)" in next(stream.iter_lines())
        command.send_signal(number)
        command.communicate(timeout=20)
        assert command.returncode in (0, -number)
        assert trainer.poll() is None
