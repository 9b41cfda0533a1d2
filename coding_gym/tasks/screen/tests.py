"""``ScreenTests``: tests of what a graphical program shows and how it reacts to input.

The program runs in a dedicated session, as an agent's would. Mouse and keyboard events drive it step by step, and after each
step its screen is checked outside the sandbox: the expectations never enter it, and the program can influence them only by
what it draws.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec

from coding_gym.client.session import Session
from coding_gym.envs.screen_region import WINDOWS_ONLY
from coding_gym.errors import ConfigurationError, ProtocolError
from coding_gym.media.frames import black_frame, decode_pixels
from coding_gym.tasks.screen.assertions import Exited, Expectation, ScreenSnapshot
from coding_gym_server.ipc.text import truncate_middle
from coding_gym_server.protocol import (
    DEFAULT_SCREEN,
    MAX_SCREEN_SIDE,
    MIN_SCREEN_SIDE,
    Capture,
    ErrorCode,
    FileContent,
    InputEvent,
    Observation,
    OnIdle,
    Outcome,
    ResetOptions,
    StepAction,
)
from coding_gym_server.protocol.grading import CaseOutcome, CaseResult, Graded, GradingLimits, VerdictOutcome

__all__ = ["ScreenStep", "ScreenTests", "run_screen_tests"]

_RESET_TIMEOUT = 60.0
_SCREEN_TIMEOUT = 15.0
_ANSWER_SLACK = 15.0
_MIN_OUTPUT_CHARS = 256

Side = Annotated[int, msgspec.Meta(ge=MIN_SCREEN_SIDE, le=MAX_SCREEN_SIDE)]

_LIMITS = {
    Outcome.TIMEOUT: CaseOutcome.TIMEOUT,
    Outcome.MEMORY: CaseOutcome.MEMORY,
    Outcome.KILLED: CaseOutcome.KILLED,
}


class ScreenStep(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A step: input events are sent, the screen settles, and is checked.

    Attributes:
        name: Name of the step; its index if empty.
        events: Input events, as returned by the functions of ``coding_gym.inputs``. Those of the first step are sent once the
            program has drawn its windows.
        settle: Maximum time to wait for the screen to settle after the events, in seconds.
        expect: Conditions that must hold after that.
    """

    name: str = ""
    events: tuple[InputEvent, ...] = ()
    settle: Annotated[float, msgspec.Meta(ge=0, le=60)] = 1.0
    expect: Annotated[tuple[Expectation, ...], msgspec.Meta(min_length=1)]


class ScreenTests(msgspec.Struct, tag="screen", tag_field="type", frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tests of a graphical program: a sequence of steps, each followed by checks.

    Attributes:
        steps: The tests. The program starts with the first.
        screen: Width and height of the screen in pixels.
        window_manager: Whether a window manager runs on it. Without one, windows are exactly where they request to be.

    Example:
        >>> from coding_gym import inputs
        >>> from coding_gym.tasks import ColorShare, ScreenStep, ScreenTests, WindowCount
        >>> red = ColorShare(color="#ff0000", area=(0, 0, 100, 100), at_least=0.9)
        >>> tests = ScreenTests(
        ...     steps=(
        ...         ScreenStep(name="opens", expect=(WindowCount(count=1),)),
        ...         ScreenStep(name="turns red", events=(inputs.click(50, 50),), expect=(red,)),
        ...     )
        ... )
    """

    steps: Annotated[tuple[ScreenStep, ...], msgspec.Meta(min_length=1)]
    screen: tuple[Side, Side] = DEFAULT_SCREEN
    window_manager: bool = False


def run_screen_tests(
    session: Session,
    code: str,
    tests: ScreenTests,
    *,
    files: Mapping[str, str | bytes] | None = None,
    limits: GradingLimits | None = None,
) -> Graded:
    """Run a program and perform the steps of its tests.

    Args:
        session: An open session that no other client uses in the meantime. It is reset first, and neither opened nor closed.
        code: The program.
        tests: The steps.
        files: Initial content of the working directory.
        limits: Resource limits. ``cpu_timeout`` applies to each step, ``wall_timeout`` to all of them together.

    Returns:
        The result, with one case per step. If the program ends with an exception or a signal, or exceeds a limit, the
        remaining steps are not run; if it exits otherwise, they are run with the remaining screen content.

    Raises:
        ConfigurationError: If the sandbox has no screen, or the input events of a step are invalid.
        TransportError: If the session is lost.
        CapacityError: If the server has no free session.
        ProtocolError: If the server rejects a request for another reason.
    """
    run = _ScreenTestRun(session, tests, limits or GradingLimits())
    try:
        run.begin(files or {})
        return run.grade(code)
    except _SandboxError as mismatch:
        return Graded(outcome=VerdictOutcome.INFRASTRUCTURE, message=str(mismatch))
    except (ConfigurationError, ProtocolError) as error:
        if isinstance(error, ProtocolError) and error.code != ErrorCode.VALIDATION_ERROR:
            raise
        message = f"These tests cannot be run in this sandbox: {error}"
        raise ConfigurationError(message) from error


class _SandboxError(Exception):
    """A step failed because of the sandbox, not the program."""


class _ScreenTestRun:
    """Execution of a program, from its start to its last step.

    Args:
        session: Session in which it runs.
        tests: The steps.
        limits: Resource limits.
    """

    def __init__(self, session: Session, tests: ScreenTests, limits: GradingLimits) -> None:
        self._session = session
        self._tests = tests
        self._limits = limits
        self._deadline = 0.0
        self._screen = black_frame(tests.screen[1], tests.screen[0])
        self._stdout = ""
        self._stderr = ""
        self._exit_code: int | None = None

    def begin(self, files: Mapping[str, str | bytes]) -> None:
        limits, contents = self._limits, files.items()
        options = ResetOptions(
            seed=0,
            step_timeout=limits.wall_timeout,
            cpu_timeout=limits.cpu_timeout,
            max_output_chars=max(limits.max_output_chars, _MIN_OUTPUT_CHARS),
            show_value=False,
            backend="python",
            files={path: content if isinstance(content, str) else FileContent(content) for path, content in contents},
            screen=self._tests.screen,
            window_manager=self._tests.window_manager,
            capture=Capture.ALWAYS,
            on_idle=OnIdle.RETURN,
        )
        self._session.ask_reset(options)
        self._wait(_RESET_TIMEOUT)

    def grade(self, code: str) -> Graded:
        began = time.perf_counter()
        self._deadline = time.monotonic() + self._limits.wall_timeout
        cases: list[CaseResult] = []
        for number, step in enumerate(self._tests.steps):
            started = time.perf_counter()
            outcome, message = CaseOutcome.NOT_RUN, ""
            if all(case.outcome in (CaseOutcome.PASSED, CaseOutcome.FAILED) for case in cases):
                outcome, message = self._run_step(step, code if number == 0 else "")
            seconds = time.perf_counter() - started
            cases.append(CaseResult(name=step.name or str(number), outcome=outcome, message=message, seconds=seconds))
        verdict = _verdict(cases)
        return Graded(
            outcome=verdict,
            cases=tuple(cases),
            message=cases[0].message if verdict is VerdictOutcome.ERROR else "",
            stdout=truncate_middle(self._stdout, self._limits.max_output_chars),
            stderr=truncate_middle(self._stderr, self._limits.max_output_chars),
            load_seconds=cases[0].seconds,
            seconds=time.perf_counter() - began,
        )

    def _run_step(self, step: ScreenStep, code: str) -> tuple[CaseOutcome, str]:
        left = self._deadline - time.monotonic()
        if left <= 0:
            return CaseOutcome.TIMEOUT, f"the {self._limits.wall_timeout:g} s for all steps were used up"
        self._session.ask_step(StepAction(code=code, timeout_s=left, inputs=list(step.events), settle_s=step.settle))
        observation = self._wait(left + _ANSWER_SLACK)
        self._stdout += observation.stdout
        self._stderr += observation.stderr
        outcome, ended_before = observation.metadata.outcome, self._exit_code is not None
        if outcome in _LIMITS:
            return _LIMITS[outcome], _last_line(observation.stderr)
        if not ended_before and outcome is not Outcome.RUNNING:
            self._exit_code = observation.exit_code
            expected_codes = {expected.code for expected in step.expect if isinstance(expected, Exited)}
            if outcome is Outcome.ERROR and observation.exit_code not in expected_codes:
                return CaseOutcome.ERROR, _last_line(observation.stderr) or f"exit code {observation.exit_code}"
        snapshot = self._snapshot(observation, ended_before=ended_before)
        mismatches = [mismatch for expected in step.expect if (mismatch := expected.mismatch(snapshot)) is not None]
        return (CaseOutcome.FAILED, "; ".join(mismatches)) if mismatches else (CaseOutcome.PASSED, "")

    def _snapshot(self, observation: Observation, *, ended_before: bool) -> ScreenSnapshot:
        # The screenshot of the step: it has settled, and includes windows that are closed by now.
        before, picture = self._screen, observation.screenshot
        if picture is not None:
            self._screen = decode_pixels(picture)
        windows = tuple(self._session.request_screen(WINDOWS_ONLY, timeout=_SCREEN_TIMEOUT).windows)
        return ScreenSnapshot(
            screen=self._screen,
            before=before,
            windows=windows,
            stdout=self._stdout,
            exit_code=self._exit_code,
            ended_before=ended_before,
        )

    def _wait(self, timeout: float) -> Observation:
        observation = self._session.wait(timeout=timeout).observation
        if observation.metadata.outcome is Outcome.INFRASTRUCTURE:
            raise _SandboxError(observation.stderr.strip())
        return observation


def _verdict(cases: Sequence[CaseResult]) -> VerdictOutcome:
    outcomes = [case.outcome for case in cases]
    for outcome in _LIMITS.values():
        if outcome in outcomes:
            return VerdictOutcome(outcome)
    if outcomes[0] is CaseOutcome.ERROR:
        return VerdictOutcome.ERROR
    return VerdictOutcome.PASSED if set(outcomes) == {CaseOutcome.PASSED} else VerdictOutcome.FAILED


def _last_line(text: str) -> str:
    return text.rstrip().rpartition("\n")[2]
