"""``ScreenTests``: what a program with windows must show, and do when it is used.

The program runs in a session of its own, as an agent's would. Hands use it step by step, and after each step its screen is
looked at here, outside of the sandbox: what is expected never gets there, and all that the program can do about it is to draw.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec

from coding_gym.client.session import Session
from coding_gym.errors import ConfigurationError, ProtocolError
from coding_gym.frames import decode_pixels, shared_black
from coding_gym.looking import NO_PICTURE
from coding_gym.tasks.expectations import Exited, Expectation, Sight
from coding_gym_server.grading.messages import CaseOutcome, CaseResult, Graded, GradingLimits, VerdictOutcome
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
from coding_gym_server.workers.capture import cut_middle

__all__ = ["ScreenStep", "ScreenTests", "run_screen_tests"]

_RESET_TIMEOUT = 60.0
_LOOK_TIMEOUT = 15.0
_ANSWER_SLACK = 15.0
_FEWEST_OUTPUT_CHARS = 256

Side = Annotated[int, msgspec.Meta(ge=MIN_SCREEN_SIDE, le=MAX_SCREEN_SIDE)]

_LIMITS = {
    Outcome.TIMEOUT: CaseOutcome.TIMEOUT,
    Outcome.MEMORY: CaseOutcome.MEMORY,
    Outcome.KILLED: CaseOutcome.KILLED,
}


class ScreenStep(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A step: hands do something, the screen settles, and is looked at.

    Attributes:
        name: What it is called; its number if it is empty.
        events: What hands do, as the functions of ``coding_gym.inputs`` return it. Those of the first step come when the
            program has drawn its windows.
        settle: Seconds to wait at most for the screen to settle then.
        expect: What is to be true then.
    """

    name: str = ""
    events: tuple[InputEvent, ...] = ()
    settle: Annotated[float, msgspec.Meta(ge=0, le=60)] = 1.0
    expect: Annotated[tuple[Expectation, ...], msgspec.Meta(min_length=1)]


class ScreenTests(msgspec.Struct, tag="screen", tag_field="type", frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Steps that are taken with a program, one after the other, and what is seen after each.

    Attributes:
        steps: The tests. The program starts with the first.
        screen: Width and height of the screen in pixels.
        window_manager: Whether a window manager runs on it. Without one, windows are exactly where they want to be.

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
    """Run a program, and take the steps with it.

    Args:
        session: An open session that nobody else uses meanwhile. It is reset first, and neither opened nor closed.
        code: The program.
        tests: The steps.
        files: What its working directory holds.
        limits: What it may use. Each step may use ``cpu_timeout``, all together ``wall_timeout``.

    Returns:
        What came of it, with a case a step. A program that ends by an exception or a signal, or uses up a limit, takes no
        further steps; one that ends otherwise has the rest of them taken all the same, with what is left on the screen.

    Raises:
        ConfigurationError: The sandbox has no screen, or a step cannot be done by hands.
        TransportError: The session is lost.
        CapacityError: The server has no free session.
        ProtocolError: The server refused for another reason.
    """
    run = _Run(session, tests, limits or GradingLimits())
    try:
        run.begin(files or {})
        return run.grade(code)
    except _SandboxFault as fault:
        return Graded(outcome=VerdictOutcome.INFRASTRUCTURE, message=str(fault))
    except ProtocolError as error:
        if error.code == ErrorCode.VALIDATION_ERROR:
            message = f"These tests cannot be run in this sandbox: {error}"
            raise ConfigurationError(message) from error
        raise


class _SandboxFault(Exception):
    """A step failed for a reason that is not the program's."""


class _Run:
    """A run of a program, from its start to its last step.

    Args:
        session: Where it runs.
        tests: The steps.
        limits: What it may use.
    """

    def __init__(self, session: Session, tests: ScreenTests, limits: GradingLimits) -> None:
        self._session = session
        self._tests = tests
        self._limits = limits
        self._deadline = 0.0
        self._screen = shared_black(tests.screen[1], tests.screen[0])
        self._stdout = ""
        self._stderr = ""
        self._exit_code: int | None = None

    def begin(self, files: Mapping[str, str | bytes]) -> None:
        limits, contents = self._limits, files.items()
        options = ResetOptions(
            seed=0,
            step_timeout=limits.wall_timeout,
            cpu_timeout=limits.cpu_timeout,
            max_output_chars=max(limits.max_output_chars, _FEWEST_OUTPUT_CHARS),
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
                outcome, message = self._take(step, code if number == 0 else "")
            seconds = time.perf_counter() - started
            cases.append(CaseResult(name=step.name or str(number), outcome=outcome, message=message, seconds=seconds))
        verdict = _verdict(cases)
        return Graded(
            outcome=verdict,
            cases=tuple(cases),
            message=cases[0].message if verdict is VerdictOutcome.ERROR else "",
            stdout=cut_middle(self._stdout, self._limits.max_output_chars),
            stderr=cut_middle(self._stderr, self._limits.max_output_chars),
            load_seconds=cases[0].seconds,
            seconds=time.perf_counter() - began,
        )

    def _take(self, step: ScreenStep, code: str) -> tuple[CaseOutcome, str]:
        left = self._deadline - time.monotonic()
        if left <= 0:
            return CaseOutcome.TIMEOUT, f"the {self._limits.wall_timeout:g} s for all steps were over"
        self._session.ask_step(StepAction(code=code, timeout_s=left, inputs=list(step.events), settle_s=step.settle))
        observation = self._wait(left + _ANSWER_SLACK)
        self._stdout += observation.stdout
        self._stderr += observation.stderr
        outcome, ended_before = observation.metadata.outcome, self._exit_code is not None
        if outcome in _LIMITS:
            return _LIMITS[outcome], _last_line(observation.stderr)
        if not ended_before and outcome is not Outcome.RUNNING:
            self._exit_code = observation.exit_code
            wanted = {expected.code for expected in step.expect if isinstance(expected, Exited)}
            if outcome is Outcome.ERROR and observation.exit_code not in wanted:
                return CaseOutcome.ERROR, _last_line(observation.stderr) or f"exit code {observation.exit_code}"
        sight = self._look(observation, ended_before=ended_before)
        faults = [fault for expected in step.expect if (fault := expected.fault(sight)) is not None]
        return (CaseOutcome.FAILED, "; ".join(faults)) if faults else (CaseOutcome.PASSED, "")

    def _look(self, observation: Observation, *, ended_before: bool) -> Sight:
        # The picture of the step, for it has settled, and has what is gone by now.
        before, picture = self._screen, observation.screenshot
        if picture is not None:
            self._screen = decode_pixels(picture)
        windows = tuple(self._session.look(NO_PICTURE, timeout=_LOOK_TIMEOUT).windows)
        return Sight(
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
            raise _SandboxFault(observation.stderr.strip())
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
