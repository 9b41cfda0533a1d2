"""Makes the questions of tasks, and asks them, in processes of this machine: enough for code that is not hostile.

As a program, it is what forks these processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import subprocess
import sys
import tempfile
from typing import BinaryIO

import msgspec

from coding_gym_server.ipc.question_messages import AskQuestions, QuestionReport, question_reports
from coding_gym_server.protocol.grading import Asserts, CaseOutcome, GradingLimits, GradingMode, Submission, UnitTests
from coding_gym_server.server.grading.faithful.questions import Questions, make_questions
from coding_gym_server.submission import pytest_framework
from coding_gym_server.submission.asking import run_questions

__all__ = ["Examiner"]

_LIMITS = GradingLimits(cpu_timeout=5.0)
_HEADER_BYTES = 8

_encoder = msgspec.msgpack.Encoder()
_requests = msgspec.msgpack.Decoder(tuple[AskQuestions, GradingLimits])


class Examiner:
    """Asks questions in processes of its own."""

    def __init__(self) -> None:
        command = [sys.executable, "-c", "from tests.grading import asking; asking.serve()"]
        environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": os.pathsep.join(sys.path)}
        self._server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)

    def questions(
        self, tests: Asserts | UnitTests | str, reference: str, *, key: bytes = b"key", entry_point: str | None = None
    ) -> Questions:
        """Make the questions of a task. A text is a module of tests."""
        source = UnitTests(source=tests) if isinstance(tests, str) else tests
        submission = Submission(
            code="", tests=source, entry_point=entry_point, mode=GradingMode.FAITHFUL, reference=reference, limits=_LIMITS
        )
        return asyncio.run(make_questions(submission, self._run, key))

    def outcomes(self, questions: Questions, code: str) -> dict[str, CaseOutcome]:
        """Ask a submission all questions; return the outcomes of the tests."""
        return questions.judge(self.report(questions, code))

    def report(self, questions: Questions, code: str) -> QuestionReport:
        """Ask a submission all questions; return what its process reports."""
        report, _ = asyncio.run(self._run(questions.request(code, None), _LIMITS))
        assert report is not None
        return report

    def passes(self, questions: Questions, code: str) -> bool:
        """Return whether a submission answers all questions rightly."""
        outcomes = self.outcomes(questions, code)
        return bool(outcomes) and set(outcomes.values()) == {CaseOutcome.PASSED}

    def close(self) -> None:
        """End the processes."""
        self._server.communicate()

    async def _run(self, request: AskQuestions, limits: GradingLimits) -> tuple[QuestionReport | None, float]:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        _send(self._server.stdin, _encoder.encode((request, limits)))
        report = _receive(self._server.stdout)
        cpu_seconds = float(_receive(self._server.stdout))
        return question_reports.decode(report) if report else None, cpu_seconds


def serve() -> None:
    """Fork a process for each request."""
    for library in ("pandas", "unittest.mock"):
        __import__(library)
    pytest_framework.warm_up()
    requests, reports = sys.stdin.buffer, sys.stdout.buffer
    while frame := _receive(requests):
        request, limits = _requests.decode(frame)
        reading, writing = os.pipe()
        with tempfile.TemporaryDirectory() as directory:
            process = os.fork()
            if not process:
                os.close(reading)
                _answer(request, limits, directory, writing)
            os.close(writing)
            with open(reading, "rb") as file:
                report = file.read()
            with contextlib.suppress(OSError):
                os.killpg(process, signal.SIGKILL)
            _, _, used = os.wait4(process, 0)
        _send(reports, report)
        _send(reports, str(used.ru_utime + used.ru_stime).encode())


def _answer(request: AskQuestions, limits: GradingLimits, directory: str, report: int) -> None:
    os.setsid()
    signal.setitimer(signal.ITIMER_PROF, limits.cpu_timeout)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.chdir(directory)
    null = os.open("/dev/null", os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    run_questions(request, lambda answers: _write(report, _encoder.encode(answers)))


def _write(descriptor: int, data: bytes) -> None:
    with open(descriptor, "wb") as file:
        file.write(data)


def _send(stream: BinaryIO, data: bytes) -> None:
    stream.write(len(data).to_bytes(_HEADER_BYTES, "big") + data)
    stream.flush()


def _receive(stream: BinaryIO) -> bytes:
    return stream.read(int.from_bytes(stream.read(_HEADER_BYTES), "big"))
