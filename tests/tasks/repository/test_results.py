"""Results are read from what test runners print and write."""

from __future__ import annotations

import subprocess
import sys

import pytest

from coding_gym.tasks.repository.results import PARSERS, parse_junit, parse_reward
from coding_gym_server.protocol.grading import CaseOutcome

PASSED, FAILED, ERROR, NOT_RUN = CaseOutcome.PASSED, CaseOutcome.FAILED, CaseOutcome.ERROR, CaseOutcome.NOT_RUN
SOURCE = """
import unittest
import pytest

def test_passes():
    print("PASSED t.py::test_fails")

def test_fails():
    assert 1 == 2, "a - b"

@pytest.mark.parametrize("text", ["a b", "x - y", "é"])
def test_text(text):
    assert text != "x - y"

@pytest.mark.skip(reason="no")
def test_skipped():
    pass

@pytest.mark.xfail
def test_expected():
    assert False

@pytest.fixture
def broken():
    raise ValueError("no")

def test_error(broken):
    pass

class TestMethods:
    def test_method(self):
        pass
"""
EXPECTED = {
    "t.py::test_passes": PASSED,
    "t.py::test_fails": FAILED,
    "t.py::test_text[a b]": PASSED,
    "t.py::test_text[\\xe9]": PASSED,
    "t.py::test_expected": PASSED,
    "t.py::test_error": ERROR,
    "t.py::TestMethods::test_method": PASSED,
}
UNITTEST = '''
import unittest

class Tests(unittest.TestCase):
    def test_passes(self):
        pass

    def test_fails(self):
        self.fail("no")

    def test_error(self):
        raise ValueError

    def test_described(self):
        """What it is about."""

    @unittest.skip("no")
    def test_skipped(self):
        pass

    @unittest.expectedFailure
    def test_expected(self):
        self.fail()

    @unittest.expectedFailure
    def test_unexpected(self):
        pass

    def test_prints(self):
        print("between")
'''


@pytest.mark.parametrize("option", ["-rA", "-v", "-rA -v --color=yes"])
def test_pytest(tmp_path, option):
    (tmp_path / "t.py").write_text(SOURCE)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *option.split(), "t.py"]
    output = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False).stdout
    found = PARSERS["pytest"](output)
    assert EXPECTED.items() <= found.items(), output
    # What is printed may claim more, never less: of two results, the worse counts.
    assert all(outcome is not PASSED for name, outcome in found.items() if name not in EXPECTED)


def test_unittest(tmp_path):
    (tmp_path / "t.py").write_text(UNITTEST)
    command = [sys.executable, "-m", "unittest", "-v", "t"]
    output = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False).stderr
    found = {name.split(" ")[0]: outcome for name, outcome in PARSERS["unittest"](output).items()}
    assert found == {
        "test_passes": PASSED,
        "test_fails": FAILED,
        "test_error": ERROR,
        "test_described": PASSED,
        "What": PASSED,
        "test_skipped": NOT_RUN,
        "test_expected": PASSED,
        "test_unexpected": FAILED,
        "test_prints": PASSED,
    }


def test_django():
    output = """
test_a (app.tests.Cases) ... ok
test_b (app.tests.Cases)
What it does. ... ok
test_c (app.tests.Cases) ... FAIL
test_d (app.tests.Cases) ... skipped 'why'
test_e (app.tests.Cases.test_e) ... Deprecated: x
ok
"""
    found = PARSERS["unittest"](output)
    assert found["test_a (app.tests.Cases)"] is PASSED
    assert found["test_b (app.tests.Cases)"] is PASSED
    assert found["test_c (app.tests.Cases)"] is FAILED
    assert found["test_d (app.tests.Cases)"] is NOT_RUN


def test_junit(tmp_path):
    (tmp_path / "t.py").write_text(SOURCE)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--junit-xml", "results.xml", "t.py"]
    subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    found = parse_junit((tmp_path / "results.xml").read_bytes())
    assert found["t::test_passes"] is PASSED
    assert found["t::test_text[x - y]"] is FAILED
    assert found["t::test_error"] is ERROR
    assert found["t::test_skipped"] is NOT_RUN
    assert found["t.TestMethods::test_method"] is PASSED


@pytest.mark.parametrize(
    "content", [b"", b"<a", b"\xff\xfe", b"<!DOCTYPE a [<!ENTITY b SYSTEM 'file:///etc/passwd'>]><a>&b;</a>"]
)
def test_invalid_junit(content):
    with pytest.raises(ValueError, match="not a JUnit file"):
        parse_junit(content)


@pytest.mark.parametrize(("content", "reward"), [(b"1", 1.0), (b"0\n", 0.0), (b" 0.5 ", 0.5), (b"1e0", 1.0)])
def test_reward(content, reward):
    assert parse_reward(content) == reward


@pytest.mark.parametrize("content", [b"", b"2", b"-1", b"nan", b"inf", b"one", b"\xff", b"0 1"])
def test_invalid_reward(content):
    with pytest.raises(ValueError, match="a number from 0 to 1"):
        parse_reward(content)


@pytest.mark.parametrize(
    "line",
    [
        "SUBFAILED(i=1) tests/test_a.py::T::test_b - AssertionError: 1 != 2",
        "SUBFAILED[second] tests/test_a.py::T::test_b - assert 0",
        "SUBFAILED[second](i=1) tests/test_a.py::T::test_b",
        "SUBFAIL tests/test_a.py::T::test_b",
    ],
)
def test_test_with_a_subtest_that_fails(line):
    output = f"{line}\nPASSED tests/test_a.py::T::test_b\nPASSED tests/test_a.py::T::test_c\n"
    assert PARSERS["pytest"](output) == {"tests/test_a.py::T::test_b": "failed", "tests/test_a.py::T::test_c": "passed"}
