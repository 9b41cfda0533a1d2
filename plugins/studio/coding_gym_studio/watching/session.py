"""``WatchedSession``: what is kept of one environment while it is watched."""

from __future__ import annotations

import time
from collections import deque

from coding_gym.telemetry import Identity, StepResult
from coding_gym_server.protocol import Pixels
from coding_gym_studio.watching.messages import SessionRow, StepRow

__all__ = ["LARGEST_ALLOWANCE", "Shared", "Totals", "WatchedSession"]

LARGEST_ALLOWANCE = 200_000
"""Number of characters that a session may keep if there are few of them."""

_RECENT = 512
_MOST_STEPS = 32
_LONGEST_TEXT = 8000
"""Characters that are kept of an action or output."""

_SHORTEST_WAIT = 0.02
"""Seconds below which a sandbox was ready: connecting to it takes some milliseconds."""

_CLIPPED_ACTION = 400
"""Characters of an action in a row."""


_Step = tuple[int, int, str, str, str, int, str, float, tuple[int, int] | None, float, float]
"""The fields of a ``StepRow``."""


class Shared:
    """What all sessions have in common.

    Attributes:
        allowance: Number of characters that each of them may keep.
        steps: Recent durations of steps in seconds, to which any thread appends.
        resets: The same of resets.
        waits: The same of waits for sandboxes.
    """

    def __init__(self) -> None:
        self.allowance = LARGEST_ALLOWANCE
        self.steps: deque[float] = deque(maxlen=_RECENT)
        self.resets: deque[float] = deque(maxlen=_RECENT)
        self.waits: deque[float] = deque(maxlen=_RECENT)


class Totals:
    """Counts of all sessions together."""

    def __init__(self) -> None:
        self.steps = self.episodes = self.waits = 0
        self.outcomes: dict[str, int] = {}


class WatchedSession:
    """Is told what an environment does by the thread that uses it; others read it at any time, without locks.

    A method costs some assignments. ``version`` changes after each of them.

    Args:
        id: Its number in the process.
        identity: What the environment is.
        index: Its index in its vector environment, or among the single ones.
        shared: What it has in common with the other sessions.
    """

    def __init__(self, id: int, identity: Identity, index: int, *, shared: Shared) -> None:
        self.id = id
        self.version = 0
        self.is_closed = False
        self.closed_at = 0.0
        self.all_steps = self.episodes = self.waits = 0
        self.outcomes: dict[str, int] = {}
        self._identity = identity
        self._index = index
        self._shared = shared
        self._state = "idle"
        self._since = time.time()
        self._label: str | None = None
        self._steps = 0
        self._action = ""
        self._outcome: str | None = None
        self._reward = self._return = self._seconds = 0.0
        self._tests: tuple[int, int] | None = None
        self._picture: Pixels | None = None
        self._pictures = 0
        self._history: deque[_Step] = deque()
        self._size = 0
        self._began = self._reset_began = 0.0
        self._counted = Totals()
        self._counted_version = 0

    # The interface of environments.

    def waiting(self) -> None:
        self._begin_reset()
        self._set("waiting")
        self._began = time.perf_counter()

    def resetting(self) -> None:
        self._begin_reset()
        if self._state == "waiting":
            self._end_wait()
        self._set("resetting")

    def begun(self, label: str | None, picture: Pixels | str | None) -> None:
        if self._reset_began:
            self._shared.resets.append(time.perf_counter() - self._reset_began)
            self._reset_began = 0.0
        self.episodes += 1
        self._steps = 0
        self._label = label
        self._return = self._reward = 0.0
        self._outcome = self._tests = None
        self._action = ""
        self._show(picture)
        self._set("idle")

    def running(self, action: str) -> None:
        self._action = action if len(action) <= _LONGEST_TEXT else _shortened(action)
        self._began = time.perf_counter()
        self._set("running")

    def stepped(self, result: StepResult, picture: Pixels | str | None) -> None:
        obs, reward, terminated, truncated, info = result
        now = time.time()
        seconds = self._seconds = time.perf_counter() - self._began
        self._shared.steps.append(seconds)
        self._steps += 1
        self.all_steps += 1
        outcome = self._outcome = info["outcome"]
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
        self._reward = reward = float(reward)
        self._return += reward
        tests = (info["tests_passed"], info["tests_total"]) if info.get("graded") else None
        if tests is not None:
            self._tests = tests
        if picture is not self._picture:
            self._show(picture)
        action, stdout, stderr = self._action, obs["stdout"], obs["stderr"]
        exit_code = int(obs["exit_code"])
        self._keep((self._steps, self.episodes, action, stdout, stderr, exit_code, outcome, reward, tests, seconds, now))
        self._state = "ended" if terminated or truncated else "idle"
        self._since = now
        self.version += 1

    def truncated(self) -> None:
        self._set("ended")

    def abandoned(self) -> None:
        if self._state == "waiting":
            self._end_wait()
        self._reset_began = 0.0
        self._set("idle")

    def closed(self) -> None:
        self.closed_at = time.monotonic()
        self.is_closed = True
        self._set("closed")

    # The interface of the publisher.

    @property
    def state(self) -> str:
        """Its state; see ``SessionRow``."""
        return self._state

    def count_into(self, totals: Totals) -> None:
        """Add what has happened since the last call to totals: sums over thousands of sessions would take too long."""
        if self._counted_version == self.version:
            return
        self._counted_version = self.version
        counted = self._counted
        steps, episodes, waits = self.all_steps, self.episodes, self.waits
        totals.steps += steps - counted.steps
        totals.episodes += episodes - counted.episodes
        totals.waits += waits - counted.waits
        counted.steps, counted.episodes, counted.waits = steps, episodes, waits
        # A copy, as the session's thread may add an outcome in the meantime.
        for outcome, count in self.outcomes.copy().items():
            if recent := count - counted.outcomes.get(outcome, 0):
                totals.outcomes[outcome] = totals.outcomes.get(outcome, 0) + recent
                counted.outcomes[outcome] = count

    def row(self) -> SessionRow:
        """Return its state for transmission."""
        identity = self._identity
        return SessionRow(
            self.id,
            identity.kind,
            identity.language,
            identity.group.id if identity.group is not None else None,
            self._index,
            identity.screen is not None,
            self._state,
            self._since,
            self._label,
            self.episodes,
            self._steps,
            self.all_steps,
            self._action[:_CLIPPED_ACTION],
            self._outcome,
            self._reward,
            self._return,
            self._tests,
            self._seconds,
            self._pictures if self._picture is not None else 0,
        )

    def history(self) -> list[StepRow]:
        """Return its last steps, the oldest first."""
        return [StepRow(*step) for step in self._history.copy()]

    def picture(self) -> tuple[int, Pixels | None]:
        """Return the number of the screen's current picture, and the picture; None if it is black."""
        return self._pictures, self._picture

    def _begin_reset(self) -> None:
        if not self._reset_began:
            self._reset_began = time.perf_counter()

    def _end_wait(self) -> None:
        seconds = time.perf_counter() - self._began
        if seconds >= _SHORTEST_WAIT:
            self.waits += 1
            self._shared.waits.append(seconds)

    def _show(self, picture: Pixels | str | None) -> None:
        if picture is not self._picture:
            self._picture = picture if isinstance(picture, Pixels) else None
            self._pictures += 1

    def _set(self, state: str) -> None:
        if state != self._state:
            self._state = state
            self._since = time.time()
        self.version += 1

    def _keep(self, step: _Step) -> None:
        number, episode, action, stdout, stderr, *rest = step
        if len(stdout) > _LONGEST_TEXT or len(stderr) > _LONGEST_TEXT:
            stdout, stderr = _shortened(stdout), _shortened(stderr)
            step = (number, episode, action, stdout, stderr, *rest)  # type: ignore[assignment]
        history = self._history
        history.append(step)
        self._size += len(action) + len(stdout) + len(stderr)
        while len(history) > _MOST_STEPS or (self._size > self._shared.allowance and len(history) > 1):
            _, _, action, stdout, stderr, *_ = history.popleft()
            self._size -= len(action) + len(stdout) + len(stderr)


def _shortened(text: str) -> str:
    """Cut a text in the middle, if it is long."""
    if len(text) <= _LONGEST_TEXT:
        return text
    half = _LONGEST_TEXT // 2
    return f"{text[:half]}\n... [{len(text) - 2 * half} characters are left out] ...\n{text[-half:]}"
