"""Rows of R2E-Gym and SWE-smith are tasks of repositories."""

from __future__ import annotations

import base64
import io
import json
import os
import subprocess
from pathlib import Path

import pytest

from coding_gym.errors import ConfigurationError
from coding_gym.sandbox.docker.dockerfiles import built_image
from coding_gym.sandbox.docker.images import ensure_image
from coding_gym.tasks import Grader, load_suite
from coding_gym.tasks.loaders.swe_smith import reversed_patch
from coding_gym.tasks.repository.results import PARSERS, parse_reward
from coding_gym.tasks.suite_check import check_tasks
from coding_gym_server.protocol.grading import CaseOutcome

PYTHON = "/opt/coding-gym/venv/bin/python"
RIGHT = "def add(a, b):\n    return a + b\n"
WRONG = RIGHT.replace("+", "-")
BUG = """diff --git a/calc.py b/calc.py
index 1111111..2222222 100644
--- a/calc.py
+++ b/calc.py
@@ -1,2 +1,2 @@
 def add(a, b):
-    return a + b
+    return a - b
"""
FIX = reversed_patch(BUG)
TESTS = "from calc import add\n\ndef test_add():\n    assert add(2, 3) == 5\n\ndef test_zero():\n    assert add(0, 0) == 0\n"


def hunk(*lines):
    kinds = {" ": "context", "+": "added", "-": "deleted", "\\": "note"}
    return {
        "descriptor": {"old_range": {"start": 1, "length": 2}, "new_range": {"start": 1, "length": 2}, "section": ""},
        "line_group": {
            "all_lines": [{"content": line[1:].removeprefix(" " * (line[0] == "\\")), "type": kinds[line[0]]} for line in lines]
        },
    }


def diff(path, *lines):
    return {
        "old_file_content": "",
        "new_file_content": "",
        "header": {"file": {"path": path}, "misc_line": None},
        "index_line": {"old_commit_hash": "1", "new_commit_hash": "2", "mode": "100644"},
        "minus_file": {"path": f"a/{path}"},
        "plus_file": {"path": f"b/{path}"},
        "hunks": [hunk(*lines)],
    }


R2E_GYM = {
    "repo_name": "calc",
    "docker_image": "mine/calc:1",
    "commit_hash": "abc",
    "prompt": "Describe the commit that fixes it.",
    "problem_statement": "Ignored. [ISSUE]\nSums are wrong.\n[/ISSUE] Ignored.",
    "expected_output_json": json.dumps(
        {"\x1b[1mtest_add\x1b[0m": "PASSED", "TestOther.test_zero": "PASSED", "test_never - why": "FAILED"}
    ),
    "parsed_commit_content": json.dumps(
        {
            "file_diffs": [
                diff("calc.py", " def add(a, b):", "-    return a - b", "+    return a + b"),
                diff("tests/test_calc.py", " x", "-y", "+z"),
                diff("test_more.py", "+z"),
                diff("README.md", "+z"),
            ],
            "old_commit_hash": "1",
        }
    ),
}
SWE_SMITH = {
    "instance_id": "me__calc.1234.func__5",
    "repo": "swesmith/me__calc.1234",
    "image_name": "mine/swesmith.x86_64.me_1776_calc.1234",
    "patch": BUG,
    "FAIL_TO_PASS": ["tests/test_calc.py::test_add"],
    "PASS_TO_PASS": ["tests/test_calc.py::test_zero", "tests/test more.py::test_x"],
    "problem_statement": "Sums are wrong.",
}


@pytest.fixture
def load(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def load(row, **changes):
        path = tmp_path / "rows.jsonl"
        path.write_text(json.dumps({name: value for name, value in {**row, **changes}.items() if value is not None}) + "\n")
        return load_suite(path)[0]

    return load


def test_r2e_gym(load):
    task = load(R2E_GYM)
    tests = task.tests
    assert (task.id, task.prompt) == ("calc__abc", "Sums are wrong.")
    assert (tests.image, tests.directory, tests.submission) == ("mine/calc:1", "/testbed", "patch")
    assert tests.hidden == ("/r2e_tests", "r2e_tests", "run_tests.sh")
    assert tests.protected == (".venv", "run_tests.sh", "r2e_tests")
    assert tests.environment["PATH"].startswith("/testbed/.venv/bin:")
    [command] = tests.commands
    assert (command.results, command.must_pass) == ("pytest summary", ("test_add", "TestOther.test_zero"))
    assert task.reference == (
        "diff --git a/calc.py b/calc.py\n--- a/calc.py\n+++ b/calc.py\n@@ -1,2 +1,2 @@\n"
        " def add(a, b):\n-    return a - b\n+    return a + b\n"
    )
    assert task.metadata == {"source": "R2E-Gym", "repo_name": "calc", "commit_hash": "abc"}


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"expected_output_json": "[]"}, "expected_output_json"),
        ({"expected_output_json": '{"test_a": "FAILED"}'}, "expected_output_json"),
        ({"parsed_commit_content": "{}"}, "parsed_commit_content"),
        ({"parsed_commit_content": "no JSON"}, "parsed_commit_content"),
    ],
)
def test_invalid_rows_of_r2e_gym(load, changes, name):
    with pytest.raises(ConfigurationError, match=name):
        load(R2E_GYM, **changes)


def test_r2e_gym_without_a_commit(load):
    task = load(R2E_GYM, parsed_commit_content=None, problem_statement="Sums are wrong.")
    assert (task.reference, task.prompt) == (None, "Sums are wrong.")


def test_swe_smith(load, tmp_path):
    task = load(SWE_SMITH)
    tests = task.tests
    assert (task.id, task.prompt, task.reference) == ("me__calc.1234.func__5", "Sums are wrong.", FIX)
    assert tests.protected == ("tests/test more.py", "tests/test_calc.py")
    assert tests.hidden == ("tests/test_calc.py",)
    [command] = tests.commands
    assert command.command.endswith("--verbose 'tests/test more.py' tests/test_calc.py")
    assert (command.must_pass, command.keep_passing) == (
        tuple(SWE_SMITH["FAIL_TO_PASS"]),
        tuple(SWE_SMITH["PASS_TO_PASS"]),
    )
    with open(os.path.join(tests.image, "Dockerfile")) as file:
        assert file.readline() == f"FROM {SWE_SMITH['image_name']}\n"
    assert load(SWE_SMITH).tests.image == tests.image
    assert load(SWE_SMITH, patch=BUG.replace("a - b", "a * b")).tests.image != tests.image
    assert load(SWE_SMITH, test_cmd="pytest -v").tests.commands[0].command.startswith("pytest -v 'tests/")


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"FAIL_TO_PASS": []}, "FAIL_TO_PASS"),
        ({"PASS_TO_PASS": ["TestParse"]}, "TestParse.*other test runners"),
        ({"image_name": "mine", "repo": "me/calc"}, "no known format"),
    ],
)
def test_invalid_rows_of_swe_smith(load, changes, name):
    with pytest.raises(ConfigurationError, match=name):
        load(SWE_SMITH, **changes)


def test_reversed_patches_undo_them(tmp_path):
    def git(*arguments, **options):
        return subprocess.run(["git", *arguments], cwd=tmp_path, check=True, capture_output=True, text=True, **options).stdout

    def files():
        names = sorted(path for path in tmp_path.rglob("*") if path.is_file() and ".git" not in path.parts)
        return {path.name: (path.read_text(), os.access(path, os.X_OK)) for path in names}

    git("init", "--quiet")
    long = "".join(f"line {number}\n" for number in range(50))
    for name, text in {"a b": "1\n\f2\n", "gone": "x\n--- y\n", "mode": "m\n", "moved": long, "end": "no end"}.items():
        (tmp_path / name).write_text(text)
    git("add", ".")
    git("-c", "user.name=a", "-c", "user.email=b", "commit", "--quiet", "--message", "all")
    before = files()
    (tmp_path / "a b").write_text("1\n\f3\n+++ 4\n")
    (tmp_path / "gone").unlink()
    (tmp_path / "new").write_text("n\n")
    (tmp_path / "mode").chmod(0o755)
    (tmp_path / "moved").rename(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").write_text(long.replace("line 7\n", "line seven\n"))
    (tmp_path / "end").write_text("an end\n")
    git("add", ".")
    patch = git("diff", "--cached", "--find-renames")
    assert "rename from moved" in patch
    git("apply", "--whitespace=nowarn", "-", input=reversed_patch(patch))
    assert files() == before
    git("apply", "--whitespace=nowarn", "-", input=reversed_patch(reversed_patch(patch)))
    assert files()["elsewhere"] == (long.replace("line 7\n", "line seven\n"), False)


def test_summaries():
    output = """
PASSED t.py::printed
=========================== short test summary info ============================
PASSED t.py::test_a
PASSED other.py::Class::test_b[x - y]
FAILED t.py::test_c[1] - assert 1 == 2 - really
ERROR t.py::test_d - no
SKIPPED [1] t.py:3: no reason
XFAIL t.py::test_e - reason
XPASS t.py::test_f
FAILED u.py::test_g - no
PASSED v.py::test_g
========================= 4 passed, 1 skipped in 0.1s ==========================
"""
    results = PARSERS["pytest summary"](output)
    passed = {name for name, outcome in results.items() if outcome is CaseOutcome.PASSED}
    assert passed == {"test_a", "Class.test_b[x - y]", "[1] t.py:3: no reason", "test_e - reason", "test_g"}
    assert results.keys() - passed == {"test_c[1]", "test_d", "test_f"}
    assert PARSERS["pytest summary"]("PASSED t.py::test_a") == {}


@pytest.mark.parametrize(
    ("content", "reward"),
    [
        ("1", 1),
        (" 0.25\n", 0.25),
        ('{"reward": 1.0}', 1),
        ('{"accuracy": 0.5}', 0.5),
        ('{"reward": 0, "speed": 7}', 0),
        ('{"a": true}', 1),
    ],
)
def test_rewards(content, reward):
    assert parse_reward(content.encode()) == reward


@pytest.mark.parametrize(
    "content", ["", "x", "{}", '{"a": 1, "b": 1}', '{"reward": "x"}', '{"reward": NaN}', "2", "-1", "[1]", '{"a": []}', "{"]
)
def test_rewards_that_are_none(content):
    with pytest.raises(ValueError, match="from 0 to 1"):
        parse_reward(content.encode())


def build(engine, name, script, files):
    """Build an image with a repository in /testbed."""
    lines = [f"FROM {ensure_image(engine, None)}", "USER 0", "WORKDIR /testbed"]
    for path, content in files.items():
        encoded = base64.b64encode(content.encode()).decode()
        lines.append(f"RUN mkdir -p $(dirname {path}) && echo {encoded} | base64 -d >{path}")
    lines += [f"RUN {script}", "RUN git init -q && git add calc.py && git -c user.name=a -c user.email=b commit -qm all"]
    engine.images.build(fileobj=io.BytesIO("\n".join(lines).encode()), tag=name, rm=True, forcerm=True)


@pytest.mark.docker
def test_r2e_gym_is_graded_as_its_runtime_does(docker_engine, load):
    name = f"coding-gym-test/r2e-gym:{os.getpid()}"
    files = {
        "/testbed/calc.py": WRONG,
        "/r2e_tests/test_1.py": TESTS,
        # A link would not be the interpreter of its virtual environment.
        "/testbed/.venv/bin/python": f'#!/bin/sh\nexec {PYTHON} "$@"\n',
        "/testbed/run_tests.sh": ".venv/bin/python -m pytest -rA -p no:cacheprovider r2e_tests\n",
    }
    build(docker_engine, name, "chmod 755 .venv/bin/python", files)
    try:
        task = load(R2E_GYM, docker_image=name, expected_output_json='{"test_add": "PASSED", "test_zero": "PASSED"}')
        with Grader(provider="docker", workers=1) as grader:
            [checked] = check_tasks([task], grader)
    finally:
        docker_engine.images.remove(name, force=True)
    assert (checked.problem, checked.reference.score, checked.unchanged.score) == ("", 1.0, 0.0), checked.reference
    assert [case.outcome for case in checked.unchanged.cases] == ["failed", "passed"]


@pytest.mark.docker
def test_swe_smith_is_graded_with_its_bug(docker_engine, load):
    name = f"coding-gym-test/swesmith:{os.getpid()}"
    build(
        docker_engine,
        name,
        "true",
        {"/testbed/calc.py": RIGHT, "/testbed/tests/test_calc.py": TESTS, "/testbed/tests/__init__.py": ""},
    )
    task = load(
        SWE_SMITH,
        image_name=name,
        test_cmd=f"{PYTHON} -m pytest -v -p no:cacheprovider",
        PASS_TO_PASS=["tests/test_calc.py::test_zero"],
    )
    try:
        with Grader(provider="docker", workers=1) as grader:
            [checked] = check_tasks([task], grader)
        image = built_image(docker_engine, Path(task.tests.image))
        log = docker_engine.containers.run(image, ["git", "log", "-p", "--all"], entrypoint="", remove=True, user="0")
    finally:
        docker_engine.images.remove(built_image(docker_engine, Path(task.tests.image)), force=True)
        docker_engine.images.remove(name, force=True)
    assert (checked.problem, checked.reference.score, checked.unchanged.score) == ("", 1.0, 0.0), checked.reference
    assert b"a - b" in log
    assert b"a + b" not in log
