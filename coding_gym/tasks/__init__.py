"""Programming tasks with hidden tests, and the grading of submissions to them."""

from __future__ import annotations

from coding_gym.tasks.grading import Grader
from coding_gym.tasks.loaders.registry import load_suite
from coding_gym.tasks.pass_at_k import estimate_pass_at_k, pass_at_k
from coding_gym.tasks.repository.tests import RepositoryCommand, RepositoryTests
from coding_gym.tasks.screen.assertions import (
    ChangedShare,
    ColorShare,
    Exited,
    Expectation,
    LooksLike,
    MainColor,
    Printed,
    Running,
    WindowCount,
    WindowShown,
)
from coding_gym.tasks.screen.tests import ScreenStep, ScreenTests, run_screen_tests
from coding_gym.tasks.suite import TaskSuite
from coding_gym.tasks.task import Task, Tests
from coding_gym.tasks.verdict import Verdict
from coding_gym_server.protocol.grading import (
    Asserts,
    CaseGroup,
    CaseOutcome,
    CaseResult,
    Checker,
    CheckerProtocol,
    GradingLimits,
    GradingMode,
    OutputRule,
    ProgramCase,
    Programs,
    Tolerance,
    UnitTests,
    VerdictOutcome,
)

__all__ = [
    "Asserts",
    "CaseGroup",
    "CaseOutcome",
    "CaseResult",
    "ChangedShare",
    "Checker",
    "CheckerProtocol",
    "ColorShare",
    "Exited",
    "Expectation",
    "Grader",
    "GradingLimits",
    "GradingMode",
    "LooksLike",
    "MainColor",
    "OutputRule",
    "Printed",
    "ProgramCase",
    "Programs",
    "RepositoryCommand",
    "RepositoryTests",
    "Running",
    "ScreenStep",
    "ScreenTests",
    "Task",
    "TaskSuite",
    "Tests",
    "Tolerance",
    "UnitTests",
    "Verdict",
    "VerdictOutcome",
    "WindowCount",
    "WindowShown",
    "estimate_pass_at_k",
    "load_suite",
    "pass_at_k",
    "run_screen_tests",
]
