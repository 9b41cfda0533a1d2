"""Rows of SWE-bench are tasks of repositories."""

from __future__ import annotations

import json

import pytest

from coding_gym.errors import ConfigurationError
from coding_gym.tasks import load_suite
from coding_gym.tasks.repository.grading import _outcome_in
from coding_gym.tasks.repository.results import PARSERS
from coding_gym_server.protocol.grading import CaseOutcome

PATCH = """diff --git a/tests/test_a.py b/tests/test_a.py
--- a/tests/test_a.py
+++ b/tests/test_a.py
@@ -1 +1 @@
-old
+new
diff --git a/tests/data/x.json b/tests/data/x.json
new file mode 100644
--- /dev/null
+++ b/tests/data/x.json
@@ -0,0 +1 @@
+{}
diff --git a/tests/it's here.py b/tests/it's here.py
new file mode 100644
"""
ROW = {
    "instance_id": "owner__name-12",
    "repo": "owner/name",
    "base_commit": "abc",
    "problem_statement": "It is wrong.",
    "patch": "diff --git a/x b/x\n",
    "test_patch": PATCH,
    "FAIL_TO_PASS": '["tests/test_a.py::test_x"]',
    "PASS_TO_PASS": ["tests/test_a.py::test_y[a"],
    "version": "1.0",
}


@pytest.fixture
def load(tmp_path):
    def load(**changes):
        fields = {name: value for name, value in {**ROW, **changes}.items() if value is not None}
        path = tmp_path / "rows.jsonl"
        path.write_text(json.dumps(fields) + "\n")
        return load_suite(path)[fields.get("instance_id", "rows/0")]

    return load


def test_row(load):
    task = load()
    [command] = task.tests.commands
    assert (task.id, task.prompt, task.reference) == ("owner__name-12", "It is wrong.", ROW["patch"])
    assert task.tests.image == "swebench/sweb.eval.x86_64.owner_1776_name-12:latest"
    assert task.tests.directory == "/testbed"
    assert task.tests.patch == PATCH
    activate = "source /opt/miniconda3/bin/activate && conda activate testbed && "
    assert command.command == f"{activate}pytest -rA tests/test_a.py 'tests/it'\"'\"'s here.py'"
    assert command.must_pass == ("tests/test_a.py::test_x",)
    assert command.keep_passing == ("tests/test_a.py::test_y[a",)
    assert task.metadata == {"source": "SWE-bench", "repo": "owner/name", "base_commit": "abc", "version": "1.0"}


@pytest.mark.parametrize(
    ("changes", "image", "command", "results"),
    [
        ({"image_name": "mine"}, "mine", "pytest -rA tests/test_a.py", "pytest"),
        ({"docker_image": "other", "test_cmd": "make test"}, "other", "make test tests/test_a.py", "pytest"),
        ({"repo": "django/django"}, "", "--parallel 1 test_a 'it'", "unittest"),
        ({"repo": "sympy/sympy"}, "", "bin/test -C --verbose tests/test_a.py", "sympy"),
    ],
)
def test_commands(load, changes, image, command, results):
    tests = load(**changes).tests
    assert tests.image.startswith(image or "swebench/")
    assert command in tests.commands[0].command
    assert tests.commands[0].results == results


@pytest.mark.parametrize("changes", [{"FAIL_TO_PASS": "[]"}, {"FAIL_TO_PASS": [1]}, {"FAIL_TO_PASS": {}}])
def test_invalid_rows(load, changes):
    with pytest.raises(ConfigurationError, match=r"rows.jsonl.*FAIL_TO_PASS"):
        load(**changes)


def test_names_that_are_cut_are_found():
    output = "PASSED t.py::test[a b]\nFAILED t.py::test[a c] - no\nPASSED t.py::test[a d]\nPASSED t.py::other[x]"
    results = PARSERS["pytest"](output)
    assert _outcome_in(results, "t.py::test[a b]") is CaseOutcome.PASSED
    assert _outcome_in(results, "t.py::test[a") is CaseOutcome.PASSED
    assert _outcome_in(results, "t.py::test[b") is None
    assert _outcome_in(results, "t.py::other[x") is None


def test_sympy():
    output = """
sympy/core/tests/test_basic.py[3]
test_structure ok
test_wrong F
test_raises E
test_expected f
test_skipped s                                                             [FAIL]
________ sympy/core/tests/test_basic.py:test_wrong ________
"""
    assert PARSERS["sympy"](output) == {
        "test_structure": CaseOutcome.PASSED,
        "test_wrong": CaseOutcome.FAILED,
        "test_raises": CaseOutcome.ERROR,
        "test_expected": CaseOutcome.PASSED,
        "test_skipped": CaseOutcome.NOT_RUN,
    }
