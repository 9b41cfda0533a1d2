"""Problems with hidden tests, and what grades solutions of them."""

from __future__ import annotations

from coding_gym.tasks.expectations import (
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
from coding_gym.tasks.grader import Grader
from coding_gym.tasks.loaders import load_suite
from coding_gym.tasks.pass_at_k import estimate_pass_at_k, pass_at_k
from coding_gym.tasks.screen_tests import ScreenStep, ScreenTests, run_screen_tests
from coding_gym.tasks.suite import TaskSuite
from coding_gym.tasks.task import Task, Tests
from coding_gym.tasks.verdict import Verdict
from coding_gym_server.grading.messages import (
    Asserts,
    CaseOutcome,
    CaseResult,
    GradingLimits,
    ProgramCase,
    Programs,
    UnitTests,
    VerdictOutcome,
)

__all__ = [
    "Asserts",
    "CaseOutcome",
    "CaseResult",
    "ChangedShare",
    "ColorShare",
    "Exited",
    "Expectation",
    "Grader",
    "GradingLimits",
    "LooksLike",
    "MainColor",
    "Printed",
    "ProgramCase",
    "Programs",
    "Running",
    "ScreenStep",
    "ScreenTests",
    "Task",
    "TaskSuite",
    "Tests",
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
