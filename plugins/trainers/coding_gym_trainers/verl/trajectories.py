"""``Trajectories``: a session for each trajectory, which nobody closes. This module does not import verl."""

from __future__ import annotations

import asyncio
import contextlib
import time
import weakref
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from coding_gym.envs.async_coding_env import AsyncCodingEnv
from coding_gym.envs.options import split_options
from coding_gym.errors import ConfigurationError, ProtocolError, ProviderError, TransportError
from coding_gym.plugins import check_count
from coding_gym.sandbox.pool import SandboxPool
from coding_gym_server.protocol import Outcome

__all__ = ["Trajectories", "TrajectoryStep"]

_SESSIONS_PER_SANDBOX = 16
_FAULTS = (ProviderError, ProtocolError, TransportError)


class TrajectoryStep(NamedTuple):
    """Result of a step.

    Attributes:
        observation: The observation; None after an infrastructure error, or if nothing was run.
        outcome: ``info["outcome"]`` of the step.
        is_restarted: Whether an earlier session of the trajectory, and with it its variables and files, has been lost.
    """

    observation: Mapping[str, Any] | None
    outcome: str
    is_restarted: bool


@dataclass(eq=False)
class _Trajectory:
    env: AsyncCodingEnv
    uses: int = 0
    last_used: float = field(default_factory=time.monotonic)


class Trajectories:
    """Sessions by the keys of trajectories. All calls come from one event loop.

    A session ends with the object that owns its trajectory; when it was idle for some time; or, if all are taken, when it was
    idle for longest. The next step of a trajectory whose session has ended begins another one, and says so.

    Args:
        sessions: Maximum number of sessions at a time.
        idle_seconds: Number of seconds after which an idle session ends.
        options: Options of ``AsyncCodingEnv``, and fields of ``SandboxConfig``.

    Raises:
        ConfigurationError: If an option is invalid.
    """

    def __init__(self, *, sessions: int = 64, idle_seconds: float = 600.0, **options: Any) -> None:
        check_count("sessions", sessions, 1)
        seconds: Any = idle_seconds
        if not (isinstance(seconds, int | float) and seconds > 0):
            message = f"Expected idle_seconds to be a positive number of seconds, got {idle_seconds!r}"
            raise ConfigurationError(message)
        self._limit, self._idle_seconds = sessions, idle_seconds
        self._options, sandbox_options = split_options(options, AsyncCodingEnv, AsyncCodingEnv)
        slots = min(sessions, _SESSIONS_PER_SANDBOX)
        self._pool = SandboxPool(-(-sessions // slots), **{"sessions": slots, **sandbox_options})
        # The one that has been used last is the last.
        self._open: dict[Hashable, _Trajectory] = {}
        self._begun: set[Hashable] = set()
        # Ids of objects are given out again; these are not.
        self._tokens: weakref.WeakKeyDictionary[object, object] = weakref.WeakKeyDictionary()
        self._freed = asyncio.Event()
        self._sweeper: asyncio.Task[None] | None = None
        self.action_space = AsyncCodingEnv(pool=self._pool, **self._options).action_space

    def __len__(self) -> int:
        """Number of open sessions."""
        return len(self._open)

    async def step(self, key: Hashable, code: str, *, owner: object = None) -> TrajectoryStep:
        """Run code in the session of a trajectory.

        Args:
            key: Key of the trajectory. Those of different owners are different trajectories, even if their keys are equal.
            code: The code, which is in ``action_space``.
            owner: Object that lives as long as the trajectory; None if ``close`` is called.
        """
        if owner is not None:
            key = key, self._tokens.setdefault(owner, object())
        trajectory, is_restarted = await self._use(key, owner)
        try:
            await trajectory.env.start()
            observation, _, terminated, truncated, info = await trajectory.env.step(code)
        except _FAULTS:
            await self._end(key, trajectory)
            return TrajectoryStep(None, Outcome.INFRASTRUCTURE, is_restarted)
        finally:
            trajectory.uses -= 1
            trajectory.last_used = time.monotonic()
            self._freed.set()
        if terminated or truncated:
            await self._end(key, trajectory)
        is_lost = info["outcome"] == Outcome.INFRASTRUCTURE
        return TrajectoryStep(None if is_lost else observation, info["outcome"], is_restarted)

    async def close(self, key: Hashable) -> None:
        """End a trajectory. Does nothing if there is none with the key."""
        self._begun.discard(key)
        if (trajectory := self._open.get(key)) is not None:
            await self._end(key, trajectory)

    async def aclose(self) -> None:
        """End all trajectories, and remove the sandboxes. Idempotent."""
        for key in list(self._open):
            await self.close(key)
        if self._sweeper is not None:
            self._sweeper.cancel()
        await asyncio.to_thread(self._pool.close)

    async def _use(self, key: Hashable, owner: object) -> tuple[_Trajectory, bool]:
        """Return the trajectory with a key, and whether a session of it has ended before."""
        while (trajectory := self._open.get(key)) is None and len(self._open) >= self._limit:
            await self._make_room()
        is_restarted = trajectory is None and key in self._begun
        if trajectory is None:
            trajectory = _Trajectory(AsyncCodingEnv(pool=self._pool, **self._options))
            if owner is not None and key not in self._begun:
                weakref.finalize(owner, _call, asyncio.get_running_loop(), self._forget, key).atexit = False
            self._begun.add(key)
        # Reinsertion makes it the last.
        self._open.pop(key, None)
        self._open[key] = trajectory
        trajectory.uses += 1
        if self._sweeper is None or self._sweeper.done():
            self._sweeper = asyncio.create_task(self._end_idle())
        return trajectory, is_restarted

    async def _make_room(self) -> None:
        """End the session that has been idle for longest; if all are in use, wait until one is not."""
        idle = next((key for key, trajectory in self._open.items() if not trajectory.uses), None)
        if idle is not None:
            await self._end(idle, self._open[idle])
            return
        self._freed.clear()
        await self._freed.wait()

    async def _end(self, key: Hashable, trajectory: _Trajectory) -> None:
        if self._open.get(key) is trajectory:
            del self._open[key]
            self._freed.set()
        await trajectory.env.aclose()

    async def _end_idle(self) -> None:
        while self._open:
            await asyncio.sleep(self._idle_seconds / 4)
            latest = time.monotonic() - self._idle_seconds
            for key, trajectory in list(self._open.items()):
                if not trajectory.uses and trajectory.last_used < latest:
                    await self._end(key, trajectory)

    def _forget(self, key: Hashable) -> None:
        ending = asyncio.ensure_future(self.close(key))
        # A reference, until it is done.
        ending.add_done_callback(lambda _: ending)


def _call(loop: asyncio.AbstractEventLoop, function: Any, key: Hashable) -> None:
    """Call a function in an event loop, from any thread, unless the loop is closed."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(function, key)
