"""Submissions that attack how they are graded, and right ones in unusual places."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from coding_gym import CodingEnv
from coding_gym.sandbox.config import SandboxConfig
from coding_gym.tasks import Grader, RepositoryCommand, RepositoryTests, Task
from coding_gym.tasks.repository.grading import RepositoryGrading, config_for
from coding_gym_server.protocol.grading import GradingMode
from tests.support.built_images import removed_afterwards

pytestmark = pytest.mark.docker

DOCKERFILE = """
FROM debian:trixie-slim
RUN apt-get update && apt-get install --yes --no-install-recommends git patch && rm -rf /var/lib/apt/lists/*
RUN mkdir -p /testbed/tests/hidden /testbed/sub && cd /testbed && echo wrong | tee answer sub/answer \\
    && echo 'grep -q right answer' | tee tests/check.sh tests/hidden/check.sh && ln -s tests linked && ln -s /testbed /link \\
    && ln -s / /up && git init --quiet && git add . && git -c user.name=a -c user.email=b commit --quiet --message all
WORKDIR /testbed
"""
FIX = "echo right > answer"
FIX_PATCH = "--- a/answer\n+++ b/answer\n@@ -1 +1 @@\n-wrong\n+right\n"
CHECK = "sh tests/check.sh"
EACH = "for file in tests/*.sh; do [ ! -e $file ] || sh $file || exit 1; done"
TEST_PATCH = "--- a/tests/check.sh\n+++ b/tests/check.sh\n@@ -1 +1,2 @@\n grep -q right answer\n+exit $?\n"


def added(path, text, mode="100644"):
    lines = text.splitlines()
    head = f"diff --git a/{path} b/{path}\nnew file mode {mode}\n--- /dev/null\n+++ b/{path}\n@@ -0,0 +1,{len(lines)} @@\n"
    return head + "".join(f"+{line}\n" for line in lines)


def edited(path):
    return f"--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-grep -q right answer\n+true\n"


@pytest.fixture(scope="module")
def image(docker_engine, tmp_path_factory):
    directory = tmp_path_factory.mktemp("attacked")
    (directory / "Dockerfile").write_text(DOCKERFILE)
    with removed_afterwards(docker_engine, directory):
        yield str(directory)


@pytest.fixture(scope="module")
def grading():
    with contextlib.closing(RepositoryGrading(SandboxConfig(provider="docker"))) as grading:
        yield grading


@pytest.fixture(scope="module")
def agent(image):
    config = config_for(SandboxConfig(provider="docker"), make_tests(image), None)
    with contextlib.closing(CodingEnv(config=config, screen=None)) as env:
        yield env


def make_tests(image, command=CHECK, *, results="exit code", file=None, **options):
    commands = (RepositoryCommand(command=command, results=results, file=file, timeout=60),)
    return RepositoryTests(**{"image": image, "directory": "/testbed", "commands": commands, **options})


SWAPPED = "mkdir -p t2/hidden; echo true | tee t2/hidden/check.sh t2/check.sh; rm -rf tests; ln -s t2 tests"
ATTACKS = {
    "reward": ("echo 1 > reward", {"command": f"{CHECK} && echo 1 > reward", "results": "reward", "file": "reward"}),
    "reward elsewhere": (
        "echo 1 > /var/reward",
        {"command": f"{CHECK} && echo 1 > /var/reward", "results": "reward", "file": "/var/reward"},
    ),
    "hidden, replaced": (SWAPPED, {"command": "sh tests/hidden/check.sh", "hidden": ("tests/hidden",)}),
    "hidden, deleted": ("rm -rf tests", {"command": EACH.replace("tests/", "tests/hidden/"), "hidden": ("tests/hidden",)}),
    "protected, replaced": (SWAPPED, {"command": EACH, "protected": ("tests/check.sh",)}),
    "protected, moved": ("mv tests t2; ln -s t2 tests", {"command": EACH, "protected": ("tests/check.sh",)}),
    "protected, through a link": ("echo true > tests/check.sh", {"protected": ("linked/check.sh",)}),
    "patched, replaced": (SWAPPED, {"patch": TEST_PATCH}),
    "attributes": (
        "echo '*.sh text working-tree-encoding=UTF-16' > .gitattributes",
        {"patch": TEST_PATCH, "command": f"{CHECK}; {CHECK}"},
    ),
    "filters": (
        "git config filter.f.smudge 'cp /bin/true /bin/grep; cat'; echo '*.sh filter=f' > .git/info/attributes",
        {"patch": TEST_PATCH},
    ),
}


@pytest.mark.parametrize("mode", ["copy", "layer"])
@pytest.mark.parametrize("attack", ATTACKS)
def test_sessions_earn_nothing(grading, image, agent, attack, mode):
    script, options = ATTACKS[attack]
    tests = make_tests(image, **options)
    for command, expected in ((script, "failed"), (FIX, "passed")):
        agent.reset(seed=0)
        assert agent.exec(command, cwd="/testbed").exit_code == 0
        graded = grading.grade_session(tests, agent, GradingMode(mode))
        assert (graded.outcome, graded.message) == (expected, "")


PATCHES = {
    "reward": (
        added("reward", "1"),
        {"command": f"{CHECK} && echo 1 > reward", "results": "reward", "file": "reward"},
        "failed",
    ),
    "report": (
        added("out.xml", '<testsuite><testcase classname="a" name="b"/></testsuite>'),
        {"command": "exit 3", "results": "junit", "file": "out.xml"},
        "failed",
    ),
    "hidden": (edited("tests/hidden/check.sh"), {"command": "sh tests/hidden/check.sh", "hidden": ("tests/hidden",)}, "error"),
    "protected": (edited("tests/check.sh"), {"protected": ("tests/check.sh",)}, "failed"),
    "patched": (edited("tests/check.sh"), {"patch": TEST_PATCH}, "failed"),
    "hooks": (added(".git/hooks/x", "true", "100755"), {"command": "test -e .git/hooks/x"}, "failed"),
}


@pytest.mark.parametrize("attack", PATCHES)
def test_patches_earn_nothing(grading, image, attack):
    patch, options, outcome = PATCHES[attack]
    graded = grading.grade(make_tests(image, **options), patch)
    assert graded.outcome == outcome, graded


RIGHT = {
    "a directory that is a link": {"directory": "/link"},
    "a directory behind a link": {"directory": "/up/testbed"},
    "all of the image": {"carried": ("/",)},
    "protected behind a link": {"protected": ("linked/check.sh",)},
    "protected and large": {"protected": ("/usr",)},
}


@pytest.mark.parametrize("place", RIGHT)
def test_right_solutions_in_unusual_places(grading, image, place):
    tests = make_tests(image, **RIGHT[place])
    assert grading.grade(tests, FIX_PATCH).outcome == "passed"
    assert grading.grade(tests, "").outcome == "failed"


def test_patch_relative_to_a_directory_of_the_repository(grading, image):
    tests = make_tests(image, "grep -q right answer", directory="/testbed/sub")
    assert grading.grade(tests, f"diff --git a/answer b/answer\nindex 1..2 100644\n{FIX_PATCH}").outcome == "passed"


@pytest.mark.parametrize("path", ["/newtop/answer", "/answer.txt"])
def test_layer_has_what_is_new_in_the_root_directory(grading, image, path):
    tests = make_tests(image, f"grep -q right {path}", submission="script")
    script = f"mkdir -p {Path(path).parent}; echo right > {path}"
    assert grading.grade(tests, script, GradingMode.LAYER).outcome == "passed"


def test_files_of_the_tests_that_a_solution_makes_too(grading, image):
    patch = f"{TEST_PATCH}diff --git a/tests/__init__.py b/tests/__init__.py\nnew file mode 100644\nindex 0000000..e69de29\n"
    solution = f"{FIX_PATCH}diff --git a/tests/__init__.py b/tests/__init__.py\nnew file mode 100644\nindex 0000000..e69de29\n"
    tests = make_tests(image, f"{CHECK} && test -e tests/__init__.py", patch=patch)
    assert grading.grade(tests, solution).outcome == "passed"
    assert grading.grade(tests, FIX_PATCH).outcome == "passed"


def test_file_that_comes_and_goes(grading, image, agent):
    tests = make_tests(image)
    agent.reset(seed=0)
    agent.exec(
        f"{FIX}; (while true; do for i in 1 2 3 4 5 6 7 8; do echo > z.$i; done; rm z.*; done) >/dev/null 2>&1 &",
        cwd="/testbed",
    )
    for _ in range(5):
        assert grading.grade_session(tests, agent).outcome == "passed"


@pytest.mark.parametrize("script", ["rm -rf / --no-preserve-root", "kill -9 -1; kill -9 -1"])
@pytest.mark.parametrize("mode", ["copy", "session"])
def test_scripts_that_end_their_session_are_scored(image, script, mode):
    tests = make_tests(image, submission="script")
    task = Task(id="ended", prompt="", tests=tests, grading=mode)
    with Grader(provider="docker", workers=1) as grader:
        verdict = grader.grade(task, script)
    assert (verdict.score, verdict.mode) == (0.0, mode), verdict
