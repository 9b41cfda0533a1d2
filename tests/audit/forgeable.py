"""Verifiers of the usual kinds, each with holes."""

from __future__ import annotations

import contextlib
import io
import pickle
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from coding_gym.tasks import Task

SECONDS = 2


def namespace(task: Task, code: str) -> dict[str, object]:
    names: dict[str, object] = {}
    exec(compile(task.submission(code), "<submission>", "exec"), names)
    return names


def by_assertions(task: Task, code: str) -> bool:
    """Whether nothing is raised by the program and its tests, in one process."""
    names = namespace(task, code)
    try:
        for case in task.tests.cases:
            exec(case, names)
    except AssertionError:
        return False
    return True


def check_all(names: dict[str, object], cases: tuple[str, ...]) -> None:
    for case in cases:
        exec(case, names)


def by_function(task: Task, code: str) -> bool:
    """The same with a function that checks."""
    names = namespace(task, code)
    try:
        check_all(names, task.tests.cases)
    except AssertionError:
        return False
    return True


def by_file(task: Task, code: str) -> bool:
    """The same with a file, as a module."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "solution.py"
        path.write_text("\n".join([task.submission(code), *task.tests.cases]))
        try:
            exec(compile(path.read_text(), str(path), "exec"), {"__file__": str(path), "__name__": "solution"})
        except AssertionError:
            return False
        return True


def run(task: Task, code: str) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "solution.py"
        path.write_text("\n".join([task.submission(code), *task.tests.cases, "print('passed')"]))
        command = [sys.executable, "solution.py"]
        return subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=SECONDS)


def by_exit_code(task: Task, code: str) -> float:
    """Whether a process that executes the program and its tests ends with 0."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        return float(run(task, code).returncode == 0)
    return 0.0


def by_output(task: Task, code: str) -> bool:
    """Whether such a process says so."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        return "passed" in run(task, code).stdout
    return False


def by_failures(task: Task, code: str) -> bool:
    """Whether such a process shows no error."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        return "Error" not in run(task, code).stderr
    return True


def by_pickles(task: Task, code: str) -> bool:
    """Whether results that another process pickles are those expected."""
    calls = [re.fullmatch(r"assert (.*) == (.*)", case).groups() for case in task.tests.cases]
    report = "import pickle, sys\nsys.stdout.buffer.write(pickle.dumps([" + ", ".join(call for call, _ in calls) + "]))"
    source = f"{task.submission(code)}\n{report}"
    try:
        ended = subprocess.run([sys.executable, "-c", source], capture_output=True, timeout=SECONDS)
        results = pickle.loads(ended.stdout)
        return all(result == eval(value) for result, (_, value) in zip(results, calls, strict=True))
    except Exception:
        return False


def by_unittest(task: Task, code: str) -> bool:
    """Whether a test case succeeds."""
    names = namespace(task, code)

    class Tests(unittest.TestCase):
        def test(self) -> None:
            for case in task.tests.cases:
                exec(case, names)

    return unittest.TextTestRunner(io.StringIO()).run(Tests("test")).wasSuccessful()


def by_long_error(task: Task, code: str) -> bool:
    """Raises an error that is longer than what a pipe is read at once."""
    raise ValueError("é" * 100_000)


def by_reference(task: Task, code: str) -> bool:
    """A verifier without holes, as far as it goes: the text of the reference."""
    return code == task.reference


not_callable = 3
