"""Libraries that the processes of submissions and tests have imported before a submission arrives."""

from __future__ import annotations

import itertools

import pytest

from coding_gym.sandbox import Sandbox
from coding_gym_server.protocol.grading import Asserts, GradingMode, Submission, UnitTests, VerdictOutcome
from tests.grading.judging import Judge, grade_all

# Not mentioned, so that it is not imported for this program's sake.
_IS_LOADED = "import sys\ndef is_loaded(): return 'nu' 'mpy' in sys.modules\n"


@pytest.mark.parametrize(
    ("code", "test", "expected"),
    [
        pytest.param("", "", False, id="neither"),
        pytest.param("# numpy", "", True, id="submission"),
        pytest.param("", "# numpy", True, id="tests"),
        pytest.param("", "", False, id="neither, afterwards"),
    ],
)
def test_mentioned_libraries_are_imported_ahead(judge: Judge, code: str, test: str, expected: bool) -> None:
    graded = judge.asserts(f"{_IS_LOADED}{code}", f"assert is_loaded() is {expected}\n{test}")
    assert graded.outcome is VerdictOutcome.PASSED, graded
    graded = judge.asserts(code, f"{_IS_LOADED}\nassert is_loaded() is {expected}\n{test}")
    assert graded.outcome is VerdictOutcome.PASSED, graded


def test_libraries_that_are_missing_are_left_to_the_submission(judge: Judge) -> None:
    graded = judge.asserts("try:\n    import numpy.missing\nexcept ImportError:\n    x = 1", "assert x == 1")
    assert graded.outcome is VerdictOutcome.PASSED, graded


def test_submissions_draw_different_numpy_numbers(judge: Judge) -> None:
    messages = {
        judge.asserts("import numpy\ndef f(): return float(numpy.random.random())", "assert False, f()").cases[0].message
        for _ in range(4)
    }
    assert len(messages) == 4


@pytest.mark.parametrize("prelude", ["", "import numpy\n"])
def test_submissions_and_tests_have_secrets_of_their_own(judge: Judge, prelude: str) -> None:
    secret = f"{prelude}import multiprocessing\ndef f(): return multiprocessing.current_process().authkey.hex()"
    found = [judge.asserts(secret, f"{secret}\nassert False, f()").cases[0].message for _ in range(2)]
    found += [judge.asserts(secret, "assert False, f()").cases[0].message for _ in range(2)]
    assert len(set(found)) == 4


def test_tests_draw_different_numpy_numbers(judge: Judge) -> None:
    messages = {
        judge.asserts("", "import numpy\nassert False, float(numpy.random.random())").cases[0].message for _ in range(4)
    }
    assert len(messages) == 4


def test_submission_changes_no_library_of_later_ones(judge: Judge) -> None:
    spoil = "import numpy\nnumpy.array = numpy.sum = lambda *_: 7\nnumpy.spoiled = True\nopen('numpy.py', 'w').write('x = 1')"
    intact = "import numpy\ndef f(): return hasattr(numpy, 'spoiled'), int(numpy.sum(numpy.array([1, 2])))"
    for _ in range(3):
        assert judge.asserts(spoil, "import numpy").outcome is VerdictOutcome.PASSED
        graded = judge.asserts(intact, "assert f() == (False, 3)")
        assert graded.outcome is VerdictOutcome.PASSED, graded


def test_more_sets_of_libraries_than_workers_are_graded(local_sandbox: Sandbox) -> None:
    modules = ("calendar", "configparser", "csv", "difflib", "filecmp", "fnmatch", "getopt", "glob")
    code = "def f(): return 1"
    submissions = [
        Submission(
            code=code,
            reference=code,
            mode=GradingMode.FAITHFUL,
            tests=UnitTests(
                source=f"import {', '.join(names)}, unittest\nclass T(unittest.TestCase):\n"
                "    def test(self): self.assertEqual(f(), 1)"
            ),
        )
        for names in itertools.combinations(modules, 2)
    ]
    isolated = [
        Submission(code=f"{code}\nimport {name}" if name else code, tests=Asserts(cases=("assert f() == 1",)))
        for name in ("", "numpy", "pandas", "matplotlib", "")
    ]
    mixed = [*submissions[:14], *isolated, *submissions[14:], *isolated]
    outcomes = [graded.outcome for graded in grade_all(local_sandbox, mixed)]
    assert outcomes == [VerdictOutcome.PASSED] * len(mixed)
