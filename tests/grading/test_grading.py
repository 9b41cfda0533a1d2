"""Grading of submissions: outcomes, limits, files, programs, fixtures, and the processes of the grader."""

from __future__ import annotations

import contextlib
import textwrap
import threading
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from coding_gym.errors import CodingGymError
from coding_gym.sandbox import start_sandbox
from coding_gym.sandbox.config import SandboxConfig
from coding_gym_server.protocol.grading import (
    CaseOutcome,
    FileContent,
    Graded,
    GradingLimits,
    ProgramCase,
    Programs,
    Submission,
    VerdictOutcome,
)
from tests.grading.judging import Judge
from tests.support.running_server import gone_within
from tests.support.sandbox_processes import processes_of, server_of
from tests.support.timing import eventually, promptly

ADD = "def add(a, b): return a + b"


def _outcomes(graded: Graded) -> dict[str, str]:
    return {case.name: case.outcome.value for case in graded.cases}


def _program(judge: Judge, code: str, *cases: tuple[str, str], tolerance: float | None = None, **options: Any) -> Graded:
    tests = Programs(cases=tuple(ProgramCase(stdin=stdin, stdout=stdout) for stdin, stdout in cases), tolerance=tolerance)
    return judge(Submission(code=textwrap.dedent(code), tests=tests, **options))


def test_correct_submission_passes(judge: Judge) -> None:
    graded = judge.asserts(ADD, "assert add(1, 2) == 3", "assert add('a', 'b') == 'ab'", entry_point="add")
    assert graded.outcome is VerdictOutcome.PASSED
    assert _outcomes(graded) == {"0": "passed", "1": "passed"}
    assert 0 < graded.load_seconds < graded.seconds


def test_failed_cases_are_reported_individually(judge: Judge) -> None:
    graded = judge.asserts(ADD, "assert add(1, 2) == 4", "assert add(1, 2) == 3", "add(1, 'a')", "assert missing() == 1")
    assert graded.outcome is VerdictOutcome.FAILED
    assert _outcomes(graded) == {"0": "failed", "1": "passed", "2": "error", "3": "error"}
    assert "assert add(1, 2) == 4" in graded.cases[0].message
    assert "unsupported operand" in graded.cases[2].message
    assert "missing" in graded.cases[3].message


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("def add(:", "SyntaxError"),
        ("raise ValueError('no')", "ValueError: no"),
        ("x = 1", "does not define 'add'"),
        ("import nothing_like_it", "ModuleNotFoundError"),
        ("raise SystemExit(0)", "SystemExit"),
        ("", "does not define 'add'"),
        ("raise ValueError('\\ud800')", "ValueError"),
    ],
)
def test_submission_that_fails_to_load_is_error(judge: Judge, code: str, said: str) -> None:
    graded = judge.asserts(code, "assert add(1, 2) == 3", "assert True", entry_point="add")
    assert graded.outcome is VerdictOutcome.ERROR
    assert set(_outcomes(graded).values()) == {"not_run"}
    assert said in graded.message


def test_failing_setup_is_reported_as_error(judge: Judge) -> None:
    graded = judge.asserts(ADD, "assert add(1, 2) == 3", "assert True", setup="1 / 0")
    assert _outcomes(graded) == {"0": "error", "1": "not_run"}
    assert "ZeroDivisionError" in graded.cases[0].message


def test_setup_runs_first_and_is_shared(judge: Judge) -> None:
    setup = "import math\ndef add(a, b): return 'of the tests'\nxs = []"
    graded = judge.asserts(ADD, "xs.append(add(1, 2))", "assert xs == ['of the tests'] and math.pi > 3", setup=setup)
    assert graded.outcome is VerdictOutcome.PASSED


def test_exit_in_case_is_reported_as_killed(judge: Judge) -> None:
    graded = judge.asserts(
        "import os\ndef f(x):\n    if x == 1: os._exit(0)\n    return x", *(f"assert f({n}) == {n}" for n in range(3))
    )
    assert graded.outcome is VerdictOutcome.KILLED
    assert _outcomes(graded) == {"0": "passed", "1": "killed", "2": "not_run"}


def test_sleep_hits_wall_timeout(judge: Judge) -> None:
    limits = GradingLimits(cpu_timeout=5, wall_timeout=0.5)
    with promptly():
        graded = judge.asserts("import time\ndef f(): time.sleep(60)", "f()", "assert True", limits=limits)
    assert graded.outcome is VerdictOutcome.TIMEOUT
    assert _outcomes(graded) == {"0": "timeout", "1": "not_run"}
    assert graded.cpu_seconds < 0.5


def test_busy_loop_hits_cpu_timeout(judge: Judge) -> None:
    limits = GradingLimits(cpu_timeout=0.3, wall_timeout=30)
    graded = judge.asserts("def f():\n    while True: pass", "f()", limits=limits)
    assert graded.outcome is VerdictOutcome.TIMEOUT
    assert 0.25 < graded.cpu_seconds < 2


def test_cpu_time_includes_children(judge: Judge) -> None:
    code = "import os\ndef f():\n    if not os.fork():\n        while True: pass\n    os.wait()"
    graded = judge.asserts(code, "f()", limits=GradingLimits(cpu_timeout=0.3, wall_timeout=30))
    assert graded.outcome is VerdictOutcome.TIMEOUT


def test_cpu_time_excludes_other_submissions(judges: Callable[[], Judge]) -> None:
    """On a busy machine, wall-clock time passes faster than CPU time."""
    code = "import time\ndef f(n):\n    end = time.process_time() + n\n    while time.process_time() < end: pass\n    return n"
    limits = GradingLimits(cpu_timeout=1.0, wall_timeout=60)
    found: list[Graded] = []

    def grade() -> None:
        found.append(judges().asserts(code, "assert f(0.4) == 0.4", limits=limits))

    threads = [threading.Thread(target=grade) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [graded.outcome for graded in found] == [VerdictOutcome.PASSED] * 6


def test_hanging_test_process_is_replaced(judge: Judge) -> None:
    limits = GradingLimits(cpu_timeout=5, wall_timeout=0.5)
    graded = judge.asserts(ADD, "while True: pass", limits=limits)
    assert graded.outcome is VerdictOutcome.TIMEOUT
    assert judge.asserts(ADD, "assert add(1, 2) == 3").outcome is VerdictOutcome.PASSED


def test_hanging_test_process_ends_with_server() -> None:
    with contextlib.closing(start_sandbox(SandboxConfig(provider="local", preload=()))) as sandbox:
        session = sandbox.connect()

        def grade() -> None:
            with contextlib.suppress(CodingGymError):
                Judge(session).asserts(ADD, "while True: pass", limits=GradingLimits(cpu_timeout=60, wall_timeout=60))

        def is_busy() -> bool:
            with contextlib.suppress(psutil.NoSuchProcess):
                return any(process.cpu_times().user > 1 for process in processes_of(sandbox))
            return False

        thread = threading.Thread(target=grade)
        thread.start()
        assert eventually(is_busy, 60)
        family = processes_of(sandbox)
        server_of(sandbox).kill()
        assert gone_within(family) == []
        thread.join()
        session.close()


def test_output_is_captured_and_truncated(judge: Judge) -> None:
    limits = GradingLimits(max_output_chars=100)
    code = "import sys\nprint('begin')\ndef f():\n    print('x' * 100_000)\n    print('end', file=sys.stderr)"
    graded = judge.asserts(code, "f()", limits=limits)
    assert graded.stdout.startswith("begin")
    assert len(graded.stdout) < 300
    assert graded.stderr == "end\n"


def test_submission_and_tests_share_files(judge: Judge) -> None:
    code = "def f():\n    open('out.txt', 'w').write(open('a/in.txt').read() * 2)\n    return open('b.bin', 'rb').read()"
    files = {"a/in.txt": "né", "b.bin": FileContent(base64=b"\x00\xff")}
    cases = (
        "assert f() == b'\\x00\\xff' and workspace.read_text('out.txt') == 'néné'",
        "assert workspace.listdir() == ['a', 'b.bin', 'out.txt'] and workspace.exists('a/in.txt') and not workspace.exists('c')",
        "workspace.write_text('d/e.txt', 'x')\nassert workspace.read_bytes('d/e.txt') == b'x'",
    )
    assert judge.asserts(code, *cases, files=files).outcome is VerdictOutcome.PASSED
    assert judge.asserts(code, "assert workspace.listdir() == []").outcome is VerdictOutcome.PASSED


def test_submissions_leave_nothing_for_next_one(judge: Judge) -> None:
    planted = (
        "import os, subprocess\nfor d in ('.', os.environ['TMPDIR'], '..', '../home'):\n"
        "    try: open(d + '/numpy.py', 'w').write('array = 5')\n    except OSError: pass\n"
        "os.environ['MARK'] = '1'\nsubprocess.Popen(['sleep', '1000'])\ndef f(): pass"
    )
    judge.asserts(planted, "f()")
    code = (
        "import os\ndef f():\n    names = os.listdir('.') + os.listdir(os.environ['TMPDIR'])\n"
        "    return 'numpy.py' in names, 'MARK' in os.environ\n"
        "def g():\n    import numpy\n    return numpy.array([1]).tolist()"
    )
    graded = judge.asserts(
        code, "assert f() == (False, False)", "assert g() == [1]", "import os\nassert 'MARK' not in os.environ"
    )
    assert graded.outcome is VerdictOutcome.PASSED, graded.cases


def test_random_numbers_are_reproducible(judge: Judge) -> None:
    code = "import random\ndef f(): return random.random()"
    cases = ("import random\nprint(f())\nassert random.random() == f()",)
    outcomes = {judge.asserts(code, *cases).outcome for _ in range(2)}
    assert len(outcomes) == 1


FIXTURES = """
import unittest
log = []
def setUpModule(): log.append("module")
class A(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        log.append("class")
        cls.addClassCleanup(log.append, "cleanup")
    @classmethod
    def tearDownClass(cls): log.append("down")
    def setUp(self): log.append("up")
    def tearDown(self): log.append("off")
    def test_1(self): self.assertEqual(log, ["module", "class", "up"])
    def test_2(self): self.assertEqual(log, ["module", "class", "up", "off", "up"])
class B(unittest.TestCase):
    def test_3(self): self.assertEqual(log[-3:], ["off", "down", "cleanup"])
    def test_subtests(self):
        for n in range(3):
            with self.subTest(n=n): self.assertEqual(add(n, 0), n)
    def test_failing_subtest(self):
        for n in range(3):
            with self.subTest(n=n): self.assertEqual(add(n, 0), 1)
    @unittest.skip("later")
    def test_skipped(self): raise AssertionError
    @unittest.expectedFailure
    def test_expected(self): self.assertEqual(add(1, 1), 3)
    @unittest.expectedFailure
    def test_unexpected(self): self.assertEqual(add(1, 1), 2)
    def test_skips_itself(self): self.skipTest("why not")
    def test_error(self): add(1, "a")
class C(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self): self.value = add(1, 1)
    async def test_async(self): self.assertEqual(self.value, 2)
    async def test_async_failing(self): self.assertEqual(self.value, 3)
@unittest.skip("never")
class D(unittest.TestCase):
    def test_never(self): raise AssertionError
def test_function(): assert add(2, 2) == 4
def helper(): raise AssertionError
"""


@pytest.mark.parametrize(
    "definition",
    [
        "def tearDownModule(): assert False",
        "import unittest\ndef setUpModule(): unittest.addModuleCleanup(exec, 'assert False')",
    ],
)
def test_module_is_torn_down_after_last_test(judge: Judge, definition: str) -> None:
    graded = judge.unit_tests(ADD, f"{definition}\ndef test_1(): assert add(1, 1) == 2\ndef test_2(): assert add(1, 2) == 3")
    assert [case.outcome for case in graded.cases] == [CaseOutcome.PASSED, CaseOutcome.FAILED]


def test_unit_test_features_are_judged(judge: Judge) -> None:
    graded = judge.unit_tests(ADD, FIXTURES)
    assert _outcomes(graded) == {
        "A.test_1": "passed",
        "A.test_2": "passed",
        "B.test_3": "passed",
        "B.test_error": "error",
        "B.test_expected": "passed",
        "B.test_failing_subtest": "failed",
        "B.test_skips_itself": "failed",
        "B.test_subtests": "passed",
        "B.test_unexpected": "failed",
        "C.test_async": "passed",
        "C.test_async_failing": "failed",
        "test_function": "passed",
    }


def test_failing_set_up_class_fails_its_tests(judge: Judge) -> None:
    source = (
        "import unittest\nclass A(unittest.TestCase):\n    @classmethod\n    def setUpClass(cls): 1 / 0\n    def test_1(self): pass\n"
        "    def test_2(self): pass\ndef test_3(): pass"
    )
    graded = judge.unit_tests(ADD, source)
    assert _outcomes(graded) == {"A.test_1": "error", "A.test_2": "error", "test_3": "passed"}


@pytest.mark.parametrize("source", ["", "def test(:", "import nothing_like_it\ndef test_a(): pass", "def helper(): pass"])
def test_modules_without_valid_tests_fail(judge: Judge, source: str) -> None:
    graded = judge.unit_tests(ADD, source)
    assert graded.outcome is VerdictOutcome.FAILED
    assert "passed" not in _outcomes(graded).values()


def test_program_output_is_compared(judge: Judge) -> None:
    graded = _program(
        judge, "a, b = map(int, input().split())\nprint(a + b, '  ')\nprint()", ("1 2\n", "3\n"), ("4 5", "9"), ("1 1\n", "3")
    )
    assert graded.outcome is VerdictOutcome.FAILED
    assert _outcomes(graded) == {"0": "passed", "1": "passed", "2": "failed"}
    assert graded.stdout == "2   \n\n"


@pytest.mark.parametrize(
    ("code", "outcome", "said"),
    [
        ("raise SystemExit(3)", "error", "exit code 3"),
        ("print(1)\nraise SystemExit", "passed", ""),
        ("print(1)\nimport sys; sys.exit('why')", "error", "why"),
        ("print(1)\n1 / 0", "error", "ZeroDivisionError"),
        ("import os\nprint(1, flush=True)\nos.kill(os.getpid(), 9)", "killed", "signal 9"),
        ("import os\nos.write(1, b'1')\nos._exit(0)", "passed", ""),
        (
            "import atexit, threading, time\natexit.register(print, end='')\nthreading.Thread(target=lambda: (time.sleep(.1), print(1))).start()",
            "passed",
            "",
        ),
        ("if __name__ == '__main__': print(1)", "passed", ""),
        ("import sys\nprint(len(sys.stdin.read()) + len(sys.argv))", "passed", ""),
        ("def :", "error", "SyntaxError"),
        ("open(0).read(); print(1)", "passed", ""),
        ("import subprocess\nsubprocess.run(['echo', '1'])", "passed", ""),
    ],
)
def test_program_exit_decides_outcome(judge: Judge, code: str, outcome: str, said: str) -> None:
    graded = _program(judge, code, ("", "1\n"))
    assert _outcomes(graded) == {"0": outcome}, graded
    assert said in graded.cases[0].message


def test_endless_program_times_out(judge: Judge) -> None:
    limits = GradingLimits(cpu_timeout=0.3, wall_timeout=10)
    graded = _program(judge, "while True: pass", ("", "1"), ("", "2"), limits=limits)
    assert graded.outcome is VerdictOutcome.TIMEOUT
    assert _outcomes(graded) == {"0": "timeout", "1": "not_run"}


def test_programs_with_tolerance(judge: Judge) -> None:
    code = "print(0.1 + 0.2, 'x', 1e9 + 1)"
    assert _program(judge, code, ("", "0.3 x 1000000000.0"), tolerance=1e-6).outcome is VerdictOutcome.PASSED
    assert _program(judge, code, ("", "0.3 x 1000000000.0")).outcome is VerdictOutcome.FAILED
    assert _program(judge, code, ("", "0.3 x 1000000000"), tolerance=1e-6).outcome is VerdictOutcome.FAILED
    assert _program(judge, code, ("", "0.3 y 1000000000.0"), tolerance=1e-6).outcome is VerdictOutcome.FAILED
    assert _program(judge, "print('nan')", ("", "1"), tolerance=1e-6).outcome is VerdictOutcome.FAILED


def test_every_program_case_gets_fresh_files(judge: Judge) -> None:
    code = "print(open('in.txt').read(), end='')\nopen('in.txt', 'w').write('changed')"
    graded = _program(judge, code, ("", "text"), ("", "text"), files={"in.txt": "text"})
    assert graded.outcome is VerdictOutcome.PASSED


def test_program_handles_large_input_and_output(judge: Judge) -> None:
    text = "line of text\n" * 100_000
    graded = _program(judge, "import sys\nsys.stdout.write(sys.stdin.read())", (text, text))
    assert graded.outcome is VerdictOutcome.PASSED
    graded = _program(judge, "print(1)", (text, "1"))
    assert graded.outcome is VerdictOutcome.PASSED


def test_assertion_in_callback_fails_case(judge: Judge) -> None:
    code = "def call(f):\n    try: return f(1)\n    except AssertionError as error: return str(error)"
    case = "def check(x): assert x == 2, 'wanted 2'\nassert call(check) in ('', None)"
    graded = judge.asserts(code, case, "assert call(str) == '1'")
    assert _outcomes(graded) == {"0": "failed", "1": "passed"}


def test_stop_iteration_never_ends_loop_of_tests(judge: Judge) -> None:
    code = "def f(x): raise StopIteration"
    graded = judge.asserts(code, "assert list(map(f, [1])) == []")
    assert _outcomes(graded) == {"0": "error"}
    graded = judge.asserts(code, "try: f(1)\nexcept StopIteration: pass\nelse: raise AssertionError")
    assert graded.outcome is VerdictOutcome.PASSED


def test_connections_grade_concurrently(judges: Callable[[], Judge]) -> None:
    found: dict[int, Graded] = {}

    def grade(number: int) -> None:
        judge = judges()
        for _ in range(5):
            found[number] = judge.asserts(f"def f(): return {number}", f"assert f() == {number}")
            assert found[number].outcome is VerdictOutcome.PASSED

    threads = [threading.Thread(target=grade, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    with promptly():
        for thread in threads:
            thread.join()
    assert sorted(found) == list(range(6))
    assert all(graded.outcome is VerdictOutcome.PASSED for graded in found.values())


def test_case_outcomes_match_verdict(judge: Judge) -> None:
    graded = judge.asserts("def f(): return 1", "assert f() == 1")
    assert [case.outcome for case in graded.cases] == [CaseOutcome.PASSED]
    assert not graded.cases[0].message
