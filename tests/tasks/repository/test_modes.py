"""Scripts are graded on a copy of their changes, on all of them, or in their session."""

from __future__ import annotations

import contextlib

import msgspec
import pytest

from coding_gym.errors import ConfigurationError
from coding_gym.sandbox.config import SandboxConfig
from coding_gym.tasks import Grader, RepositoryCommand, RepositoryTests, Task
from coding_gym.tasks.checks import recorded_mode
from coding_gym.tasks.repository.grading import RepositoryGrading
from coding_gym.tasks.suite_check import check_tasks
from coding_gym_server.protocol.grading import GradingMode, VerdictOutcome
from tests.support.built_images import removed_afterwards

pytestmark = pytest.mark.docker

DOCKERFILE = """
FROM debian:trixie-slim
RUN useradd --create-home agent && install --directory --owner agent /work /work/inner && install --directory /srv/tests \\
    && echo secret > /srv/tests/expected && ln -s /nowhere /work/link
WORKDIR /work
USER agent
"""
BESIDE = "echo done > /work/inner/answer"
OUTSIDE = "echo done > /home/agent/answer; rm -f /work/link; chmod 700 /home/agent"
RUNNING = "(while true; do echo done > /tmp/beat; sleep 0.05; done) >/dev/null 2>&1 &"
CHECKS = {
    "copy": (BESIDE, "test $(cat inner/answer) = done"),
    "layer": (OUTSIDE, "test $(cat ~/answer) = done && ! test -L link && test $(stat -c %a ~) = 700"),
    "session": (RUNNING, "rm -f /tmp/beat; for i in $(seq 200); do test -e /tmp/beat && exit; sleep 0.05; done; exit 1"),
}


@pytest.fixture(scope="module")
def image(docker_engine, tmp_path_factory):
    """Directory with a Dockerfile."""
    directory = tmp_path_factory.mktemp("image")
    (directory / "Dockerfile").write_text(DOCKERFILE)
    with removed_afterwards(docker_engine, directory):
        yield str(directory)


@pytest.fixture(scope="module")
def grading():
    with contextlib.closing(RepositoryGrading(SandboxConfig(provider="docker"))) as grading:
        yield grading


def script_tests(image, command, **options):
    options = {"results": "exit code", **options}
    fields = {name: options.pop(name) for name in list(options) if name in RepositoryTests.__struct_fields__}
    commands = (RepositoryCommand(command=command, timeout=60, **options),)
    return RepositoryTests(image=image, submission="script", commands=commands, **fields)


@pytest.mark.parametrize("needed", CHECKS)
@pytest.mark.parametrize("mode", CHECKS)
def test_modes(grading, image, needed, mode):
    script, check = CHECKS[needed]
    graded = grading.grade(script_tests(image, check), script, GradingMode(mode))
    order = list(CHECKS)
    passes = order.index(mode) >= order.index(needed)
    assert (graded.outcome is VerdictOutcome.PASSED, graded.mode) == (passes, mode), graded


def test_strictest_mode_is_recorded(image, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    tasks = [
        Task(id=name, prompt="", tests=script_tests(image, check), reference=script) for name, (script, check) in CHECKS.items()
    ]
    with Grader(provider="docker", workers=2) as grader:
        assert [grader.grade(task, task.reference).mode for task in tasks] == ["session"] * 3
        checked = list(check_tasks(tasks, grader))
        assert [(task.task_id, task.mode, task.problem) for task in checked] == [(name, name, "") for name in CHECKS]
        assert [task.unchanged.score for task in checked] == [0.0] * 3
        verdicts = [grader.grade(task, task.reference) for task in tasks]
    assert [(verdict.mode, verdict.solved, verdict.tamper_resistant) for verdict in verdicts] == [
        (name, True, False) for name in CHECKS
    ]
    # Of another task, nothing is known.
    other = msgspec.structs.replace(tasks[0].tests, environment={"ANY": "1"})
    assert recorded_mode(Task(id="other", prompt="", tests=other)) is None


def test_what_is_hidden(grading, image):
    tests = script_tests(image, "test $(cat /srv/tests/expected) = $(cat inner/answer)", hidden=("/srv/tests",))
    copy = "cat /srv/tests/expected > inner/answer"
    assert grading.grade(tests, copy, GradingMode.LAYER).outcome == "failed"
    assert grading.grade(tests, "echo secret > inner/answer", GradingMode.LAYER).outcome == "passed"


def test_rewards_and_environment(grading, image):
    tests = script_tests(
        image,
        'cat inner/answer > /tmp/reward; test "$EXTRA" = "a b"',
        results="reward",
        file="/tmp/reward",
        environment={"EXTRA": "a b"},
    )
    for written, outcome, reward in (("0.25", "failed", 0.25), ("1", "passed", 1.0), ("7", "failed", 0.0), ("", "failed", 0.0)):
        graded = grading.grade(tests, f"echo {written} > inner/answer", GradingMode.COPY)
        assert (graded.outcome, graded.reward) == (outcome, reward), graded


def test_script_that_exceeds_its_time(grading, image):
    tests = script_tests(image, "test $(cat inner/answer) = done", submission_timeout=1)
    graded = grading.grade(tests, f"{BESIDE}; sleep 1000; rm inner/answer", GradingMode.COPY)
    assert graded.outcome == "passed"


def test_network_is_required(grading, image):
    tests = script_tests(image, "true", network=True)
    with pytest.raises(ConfigurationError, match="need a network: pass network=, such as 'bridge'"):
        grading.grade(tests, "", GradingMode.COPY)
    tasks = [Task(id=name, prompt="", tests=tests, reference="true", grading="copy") for name in ("one", "two")]
    with Grader(provider="docker", workers=1) as grader:
        checked = list(check_tasks(tasks, grader))
    assert [(task.task_id, task.mode, "need a network" in task.problem) for task in checked] == [
        ("one", None, True),
        ("two", None, True),
    ]


def test_tests_have_network_of_their_own(image):
    # The names of interfaces beside lo.
    tests = script_tests(image, "ls /sys/class/net | grep -qvx lo && test $(cat inner/answer) = lo")
    with contextlib.closing(RepositoryGrading(SandboxConfig(provider="docker"), network="bridge")) as grading:
        graded = grading.grade(tests, "ls /sys/class/net > inner/answer", GradingMode.COPY)
    assert graded.outcome == "passed", graded
