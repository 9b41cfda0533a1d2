"""What passes apart from its tests must pass together with them, in plain Python."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from coding_gym_server.protocol.grading import (
    Asserts,
    CaseOutcome,
    GradingLimits,
    GradingMode,
    Submission,
    UnitTests,
    VerdictOutcome,
)

LIMITS = GradingLimits(cpu_timeout=5.0, wall_timeout=60.0)
UNITTEST = """
import unittest
from solution import double
class Doubles(unittest.TestCase):
    def test_number(self): self.assertEqual(double(2), 4)
    def test_text(self): self.assertEqual(double('a'), 'aa')
"""
PYTEST = """
import pytest
from solution import double
def test_number(): assert double(2) == 4
def test_text(): assert double('a') == 'aa'
"""
ONE_FILE = UNITTEST.replace("from solution import double\n", "")
FUNCTIONS = PYTEST.replace("import pytest\nfrom solution import double\n", "")
TESTS = {
    "asserts": (Asserts(cases=("assert double(2) == 4", "assert double('a') == 'aa'")), ("0", "1")),
    "unittest": (UnitTests(source=UNITTEST), ("Doubles.test_number", "Doubles.test_text")),
    "unittest, one file": (UnitTests(source=ONE_FILE), ("Doubles.test_number", "Doubles.test_text")),
    "pytest": (UnitTests(source=PYTEST), ("test_number", "test_text")),
    "pytest, one file": (UnitTests(source=f"import pytest\n{FUNCTIONS}"), ("test_number", "test_text")),
    "functions": (UnitTests(source=FUNCTIONS), ("test_number", "test_text")),
    "another name": (
        UnitTests(source=UNITTEST.replace("solution", "doubling"), module="doubling"),
        ("Doubles.test_number", "Doubles.test_text"),
    ),
    "in a package": (
        UnitTests(source=UNITTEST.replace("solution", "a.b.c"), module="a.b.c"),
        ("Doubles.test_number", "Doubles.test_text"),
    ),
}
RIGHT = "def double(x): return x + x\n"


@pytest.fixture
def agree(judge):
    def grade(code, tests, **options):
        options = {"limits": LIMITS, "entry_point": "double", **options}
        return judge(Submission(code=code, tests=tests, mode=GradingMode.AGREEMENT, **options))

    return grade


@pytest.mark.parametrize("kind", TESTS)
def test_right_solution_passes_in_both(agree, kind):
    tests, names = TESTS[kind]
    graded = agree(RIGHT, tests)
    assert (graded.outcome, graded.disagreement, graded.mode) == (VerdictOutcome.PASSED, "", "agreement"), graded
    assert {case.name: case.outcome for case in graded.cases} == dict.fromkeys(names, CaseOutcome.PASSED)


@pytest.mark.parametrize("kind", TESTS)
def test_wrong_solution_never_meets_its_tests(agree, kind):
    tests, _ = TESTS[kind]
    graded = agree("import os\ndef double(x): return 4 if os.path.exists('/nonexistent') or x == 2 else 'b'\n", tests)
    assert (graded.outcome, graded.disagreement) == (VerdictOutcome.FAILED, "")
    assert [case.outcome for case in graded.cases] == [CaseOutcome.PASSED, CaseOutcome.FAILED]


@pytest.mark.parametrize("kind", TESTS)
def test_disagreement_fails_the_tests_concerned(agree, kind):
    tests, (first, second) = TESTS[kind]
    module = tests.module if isinstance(tests, UnitTests) else "solution"
    path = f"{module.replace('.', '/')}.py"
    graded = agree(f"import os\ndef double(x): return x + x if x == 2 or not os.path.exists({path!r}) else 0\n", tests)
    assert graded.outcome is VerdictOutcome.FAILED
    assert "in plain Python, it failed" in graded.disagreement
    assert {case.name: case.outcome for case in graded.cases} == {first: CaseOutcome.PASSED, second: CaseOutcome.FAILED}


HERE = "import os, sys, time, signal\ntogether = os.path.exists('solution.py')\n"
ENDS = {
    "an exit": ("if together: os._exit(0)", VerdictOutcome.KILLED),
    "a signal": ("if together: os.kill(os.getpid(), signal.SIGKILL)", VerdictOutcome.KILLED),
    "a loop": ("while together: pass", VerdictOutcome.TIMEOUT),
    "an exit of Python": ("if together: sys.exit(0)", VerdictOutcome.FAILED),
    "an exception": ("assert not together", VerdictOutcome.FAILED),
    "no entry point": ("if together: raise KeyboardInterrupt", VerdictOutcome.FAILED),
    "much output": ("if together: print('x' * 10_000_000); os._exit(1)", VerdictOutcome.KILLED),
}


@pytest.mark.parametrize("name", ENDS)
def test_end_of_the_second_run_is_the_verdict(agree, name):
    code, outcome = ENDS[name]
    tests, _ = TESTS["asserts"]
    graded = agree(f"{HERE}{code}\n{RIGHT}", tests, limits=GradingLimits(cpu_timeout=1, wall_timeout=60))
    assert graded.outcome is outcome
    assert graded.disagreement
    assert not any(case.outcome is CaseOutcome.PASSED for case in graded.cases)


# What submissions leave in their process, where they run together with the tests next.
LEFT = {
    "a mark": "import builtins\nassert not hasattr(builtins, 'loaded')\nbuiltins.loaded = True\n",
    "a directory": "import os\nos.mkdir('inner')\nos.chdir('inner')\n",
    "a thread": "import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()\n",
    "a lock": "import sys, threading\nlock = vars(sys).setdefault('_lock', threading.Lock())\nassert lock.acquire(timeout=0)\n",
    "a limit": "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (8, 8))\n",
}


@pytest.mark.parametrize("name", LEFT)
def test_what_the_run_apart_leaves_behind_fails_no_submission(agree, name):
    graded = agree(f"{LEFT[name]}print('loaded')\n{RIGHT}", TESTS["asserts"][0])
    assert (graded.outcome, graded.disagreement) == (VerdictOutcome.PASSED, ""), graded
    assert graded.stdout == "loaded\n"


def test_messages_and_names_are_those_of_the_run_apart(agree):
    # The process that sees the tests would hand on what it has seen.
    code = f"{HERE}if together:\n    import unittest\n    unittest.TestCase.id = lambda self: 'seen'\n    print(open('tests.py').read())\n"
    graded = agree(
        f"{code}def double(x):\n    assert not together, open('tests.py').read()\n    return x + x", TESTS["unittest"][0]
    )
    assert graded.outcome is VerdictOutcome.FAILED
    assert [case.name for case in graded.cases] == ["Doubles.test_number", "Doubles.test_text"]
    assert "assertEqual" not in repr(graded)


# State that tests share in plain Python, and not where each of them is alone.
def test_tests_of_a_module_share_its_state(agree):
    tests = Asserts(cases=("assert add(1) == [1]", "assert add(2) == [2]"))
    graded = agree("def add(x, seen=[]):\n    seen.append(x)\n    return list(seen)\n", tests, entry_point="add")
    assert graded.outcome is VerdictOutcome.FAILED


# Lines of the submission that only plain Python gets right.
PLAIN = {
    "documentation": ("def double(x):\n    'Double it.'\n    return 2 * x", "assert double.__doc__ == 'Double it.'"),
    "source": (
        "import inspect\ndef double(x): return inspect.getsource(double)\n",
        "assert double(0) == 'def double(x): return inspect.getsource(double)\\n'",
    ),
    "globals": ("LIMIT = 3\ndef double(x): return 2 * LIMIT", "assert double(0) == 2 * LIMIT == 6"),
    "main": ("def double(x): return 2 * x\nif __name__ == '__main__':\n    double = None", "assert double(1) == 2"),
    "future": ("from __future__ import annotations\ndef double(x: Missing): return 2 * x", "assert double(1) == 2"),
    "unicode": ("def double(x): return 'ä€😀'", "assert double(0) == 'ä€😀'"),
    "a module": ("import solution\ndef double(x): return solution.double is double", "assert double(0)"),
    "a pickle": (
        "import pickle\nclass Box: pass\ndef double(x): return type(pickle.loads(pickle.dumps(Box()))) is Box",
        "assert double(0)",
    ),
    "no line at the end": ("def double(x): return 2 * x", "assert double(1) == 2"),
}


@pytest.mark.parametrize("name", PLAIN)
def test_submission_is_a_module_with_a_file(agree, name):
    code, test = PLAIN[name]
    graded = agree(code, Asserts(cases=(test,)))
    assert (graded.outcome, graded.disagreement) == (VerdictOutcome.PASSED, ""), graded


# Tests, and the outcomes of the reference and of a wrong solution.
FIXTURES = {
    "class": (
        "import unittest\nfrom solution import double\nclass T(unittest.TestCase):\n"
        "    @classmethod\n    def setUpClass(cls): cls.value = double(2)\n    def test_it(self): self.assertEqual(self.value, 4)\n"
    ),
    "module": (
        "import unittest\nfrom solution import double\ndef setUpModule():\n    global value\n    value = double(2)\n"
        "class T(unittest.TestCase):\n    def test_it(self): self.assertEqual(value, 4)\n"
    ),
    "tear-down of a class": (
        "import unittest\nfrom solution import double\nclass T(unittest.TestCase):\n"
        "    @classmethod\n    def tearDownClass(cls): assert double(2) == 4\n    def test_it(self): pass\n"
    ),
    "subtests": (
        "import unittest\nfrom solution import double\nclass T(unittest.TestCase):\n    def test_it(self):\n"
        "        for n in range(2, 5):\n            with self.subTest(n): self.assertEqual(double(n), 2 * n)\n"
    ),
    "expected failure": (
        "import unittest\nfrom solution import double\nclass T(unittest.TestCase):\n"
        "    @unittest.expectedFailure\n    def test_it(self): self.assertNotEqual(double(2), 4)\n"
    ),
    "asynchronous": (
        "import unittest\nfrom solution import double\nclass T(unittest.IsolatedAsyncioTestCase):\n"
        "    async def test_it(self): self.assertEqual(double(2), 4)\n"
    ),
    "a skip": (
        "import unittest\nfrom solution import double\nclass T(unittest.TestCase):\n"
        "    @unittest.skip('later')\n    def test_other(self): self.fail()\n    def test_it(self): self.assertEqual(double(2), 4)\n"
    ),
    "main": (
        "import unittest\nfrom solution import double\nclass T(unittest.TestCase):\n"
        "    def test_it(self): self.assertEqual(double(2), 4)\nif __name__ == '__main__':\n    unittest.main()\n"
    ),
}


@pytest.mark.parametrize("name", FIXTURES)
def test_frameworks_run_as_they_do(agree, name):
    tests = UnitTests(source=FIXTURES[name])
    graded = agree(RIGHT, tests)
    assert (graded.outcome, graded.disagreement) == (VerdictOutcome.PASSED, ""), graded
    together = agree("import os\ndef double(x): return 2 * x if not os.path.exists('solution.py') else -1", tests)
    assert together.outcome is VerdictOutcome.FAILED
    assert together.disagreement


def test_files_of_the_task_are_beside_the_modules(agree):
    tests = UnitTests(
        source="import unittest\nfrom pathlib import Path\nfrom solution import double\nclass T(unittest.TestCase):\n"
        "    def test_it(self): self.assertEqual(double((Path(__file__).parent / 'in' / 'a.txt').read_text()), 'bb')\n"
        "    def test_listing(self): self.assertEqual(workspace.listdir(), ['in', 'tests.py'])\n"
    )
    graded = agree(RIGHT, tests, files={"in/a.txt": "b", "tests.py": "raise SystemExit"})
    assert (graded.outcome, graded.disagreement) == (VerdictOutcome.PASSED, ""), graded


def test_nothing_of_a_run_is_left_for_the_next(agree):
    code = f"import os\nleft = os.listdir()\ndef double(x): return left\n# {Path(__file__).name} {sys.version}"
    graded = agree(code, Asserts(cases=("assert double(0) == []",)))
    # Its own file only.
    assert graded.outcome is VerdictOutcome.FAILED
    assert agree(code, Asserts(cases=("assert double(0) in ([], ['solution.py'])",))).outcome is VerdictOutcome.PASSED


# Tests, by whether the submission, which uses math without importing it, finds the name in plain Python.
SHARED = {
    "asserts": (True, Asserts(setup="import math", cases=("assert double(4) == 4",))),
    "an assert": (True, Asserts(cases=("import math", "assert double(4) == 4"))),
    "from": (True, Asserts(setup="from os import path as math; import math", cases=("assert double(4) == 4",))),
    "one file": (True, UnitTests(source="import math\ndef test_it(): assert double(4) == 4")),
    "two files": (False, UnitTests(source="import math\nfrom solution import double\ndef test_it(): assert double(4) == 4")),
    "a function": (
        False,
        Asserts(
            setup="candidate = double",
            cases=("import math\nassert candidate(4) == 4",),
            whole="def check(candidate):\n    import math\n    assert candidate(4) == 4\ncheck(double)",
        ),
    ),
}


@pytest.mark.parametrize("name", SHARED)
def test_imports_of_tests_in_one_file_are_those_of_the_submission(agree, name):
    passes, tests = SHARED[name]
    graded = agree("def double(x): return math.isqrt(x) * 2", tests)
    assert (graded.outcome is VerdictOutcome.PASSED, graded.disagreement) == (passes, ""), graded


EVALUATING = Asserts(cases=tuple(f"assert eval(repr(double({n}))) == {2 * n}" for n in range(8)))


def test_tests_that_execute_a_value_are_followed_by_questions(agree):
    graded = agree("def double(x): return x + x", EVALUATING, reference=RIGHT)
    assert (graded.outcome, graded.mode, graded.executed) == (VerdictOutcome.PASSED, "faithful", "compile")
    forged = 'class Anything(int):\n    def __repr__(self): return \'type("A", (), {"__eq__": lambda *_: True})()\'\n'
    graded = agree(f"{forged}def double(x): return Anything()", EVALUATING, reference=RIGHT)
    assert (graded.outcome, graded.mode) == (VerdictOutcome.FAILED, "faithful")


def test_without_a_reference_such_tests_are_run_in_plain_python_only(agree):
    graded = agree(RIGHT, EVALUATING)
    assert (graded.outcome, graded.mode, graded.executed) == (VerdictOutcome.PASSED, "agreement", "compile")


# Submissions with tests of their own, which have the names of those that count.
OWN = "def test_number(): pass\ndef test_own(): assert 0\ndef testing(x): return x\n"
WRONG = "import os\ndef double(x): return x + x if not os.path.exists('solution.py') or x == 2 else 'b'\n"


@pytest.mark.parametrize("kind", ["functions", "unittest, one file", "pytest, one file", "unittest", "pytest"])
def test_tests_of_the_submission_are_none(agree, kind):
    tests, names = TESTS[kind]
    tests = UnitTests(source=tests.source.replace("from solution import double", "from solution import *"))
    graded = agree(RIGHT + OWN, tests)
    assert (graded.outcome, graded.disagreement) == (VerdictOutcome.PASSED, ""), graded
    assert tuple(case.name for case in graded.cases) == names
    for code in (WRONG + OWN, OWN + WRONG):
        graded = agree(code, tests)
        assert {case.name: case.outcome for case in graded.cases} == dict(zip(names, ("passed", "failed"), strict=True))


MAIN = {
    "an import of the main module": "import __main__\nLIMIT = 2\ndef double(x): return x * __main__.LIMIT\n",
    "a module that replaces itself": "import sys, types\nm = types.ModuleType('m')\nm.double = lambda x: x + x\nsys.modules[__name__] = m\n"
    "def double(x): return x + x\n",
    "no file": "def double(x): return x + x\ndel __file__\n",
}


@pytest.mark.parametrize("name", MAIN)
def test_plain_run_does_not_depend_on_names_of_the_module(agree, name):
    graded = agree(MAIN[name], UnitTests(source=ONE_FILE))
    assert graded.outcome is VerdictOutcome.PASSED or not graded.disagreement, graded
