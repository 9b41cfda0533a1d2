"""``AsyncCodingEnv``: the environment for an event loop, hundreds of them on one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import fields
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self

import numpy as np
from gymnasium.utils import seeding
from numpy.typing import NDArray

from coding_gym.config import SandboxConfig
from coding_gym.episode import (
    FIRST_RESET_TIMEOUT,
    LOOK_TIMEOUT,
    RESET_TIMEOUT,
    Episode,
    Info,
    Obs,
    ResetAttempts,
    StepResult,
    Timing,
    infrastructure_failure,
    own_screenshot,
)
from coding_gym.errors import (
    CapacityError,
    ConfigurationError,
    ProtocolError,
    SandboxStartError,
    StepTimeoutError,
    TransportError,
)
from coding_gym.frames import decode_pixels
from coding_gym.looking import NO_PICTURE, Region, look_at
from coding_gym.pool import SandboxPool, make_slot, resolve_config
from coding_gym.providers import Sandbox, SandboxSlot
from coding_gym.settings import EpisodeSettings
from coding_gym_server.protocol import LookOptions, ObservationData, Outcome, ResetOptions, Screen, StepAction, Window

if TYPE_CHECKING:
    from coding_gym.client.async_session import AsyncSession

__all__ = ["AsyncCodingEnv"]

_ON_TIMEOUT = ("observation", "raise")
_SETTINGS = frozenset(field.name for field in fields(EpisodeSettings))


class AsyncCodingEnv:
    """``CodingEnv`` for asyncio: the same actions, observations, rewards and infos, from coroutines.

    Calls of one environment run one after the other. Cancelling a ``step``, by ``asyncio.timeout`` for example, interrupts
    the code as Ctrl-C does; the environment stays usable, and what the namespace held is kept if the code gives in.

    Args:
        on_timeout: What a step that runs out of time does: ``observation`` returns one like any other, ``raise`` raises
            ``StepTimeoutError``. Either way the next step works.
        pool: Where to take a sandbox, and give it back at ``aclose``; the environment starts one of its own if None.
        config: The sandbox, as a ``SandboxConfig`` or a mapping of its fields.
        options: What ``CodingEnv`` takes: ``step_timeout=5``, ``screen=None`` ..., and fields of ``SandboxConfig``.

    Raises:
        ConfigurationError: A setting cannot be.

    Example:
        >>> async with AsyncCodingEnv(step_timeout=5) as env:  # doctest: +SKIP
        ...     observation, reward, terminated, truncated, info = await env.step("print('hello')")
    """

    def __init__(
        self,
        *,
        on_timeout: str = "observation",
        pool: SandboxPool | None = None,
        config: SandboxConfig | Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        if on_timeout not in _ON_TIMEOUT:
            message = f"Expected on_timeout= to be one of {', '.join(_ON_TIMEOUT)}, got {on_timeout!r}"
            raise ConfigurationError(message)
        self.settings = EpisodeSettings(**{name: options.pop(name) for name in list(options) if name in _SETTINGS})
        self.config = resolve_config(pool, config, options, backend=self.settings.backend)
        self.on_timeout = on_timeout
        self._pool = pool
        self._episode = Episode(self.settings)
        self.action_space = self._episode.action_space
        self.observation_space = self._episode.observation_space
        self.np_random, _ = seeding.np_random()
        self._slot: SandboxSlot | None = None
        self._session: AsyncSession | None = None
        self._fault = "the session is gone"
        self._turn = asyncio.Lock()

    @classmethod
    async def acquire(cls, pool: SandboxPool | None = None, **options: Any) -> Self:
        """Return an environment that is started and reset, ready for a step; ``aclose`` gives its sandbox back.

        Args:
            pool: Where to take the sandbox; it gets one of its own if None.
            options: What the class takes.

        Raises:
            PoolTimeoutError: The pool had none in time.
            ProviderError: A sandbox cannot be had.
        """
        env = cls(pool=pool, **options)
        await env.start()
        return env

    @property
    def sandbox(self) -> Sandbox | None:
        """The sandbox, None before the start and after ``aclose``."""
        return self._slot.sandbox if self._slot is not None else None

    @property
    def last_timing(self) -> Timing | None:
        """How long the last reset or step took, None before the first."""
        return self._episode.last_timing

    async def start(self) -> None:
        """Start the sandbox and begin a first episode; harmless when started already.

        Raises:
            ProviderError: A sandbox cannot be had; of a pool, in time.
        """
        async with self._turn:
            if self._session is None:
                await self._reset(None, None)

    async def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[Obs, Info]:
        """Begin an episode: a new interpreter in an empty workspace. What ``CodingEnv.reset`` says applies.

        Raises:
            ProviderError: A sandbox cannot be had; of a pool, in time.
            CapacityError: The server has no free session.
        """
        async with self._turn:
            return await self._reset(seed, options)

    async def step(self, action: str) -> StepResult:
        """Run ``action``. What ``CodingEnv.step`` says applies.

        Raises:
            InvalidActionError: It is not in the action space; nothing was run.
            gymnasium.error.ResetNeeded: The environment was neither started nor reset.
            StepTimeoutError: It ran out of time, and the environment was told to raise then.
        """
        self._episode.check_action(action)
        async with self._turn:
            data = await self._run(self._episode.step_begins(action))
            obs, reward, terminated, truncated, info = self._episode.step_ended(data)
        obs = own_screenshot(obs)
        if self.on_timeout == "raise" and info["outcome"] == Outcome.TIMEOUT:
            raise StepTimeoutError(obs, info)
        return obs, reward, terminated, truncated, info

    async def windows(self) -> list[Window]:
        """Return the windows that can be seen, the lowest first. What ``CodingEnv.windows`` says applies."""
        return (await self._look(NO_PICTURE)).windows

    async def capture(self, region: Region = None) -> NDArray[np.uint8]:
        """Return what the screen shows now: uint8, shape (height, width, 3). What ``CodingEnv.capture`` says applies."""
        return decode_pixels((await self._look(look_at(region))).screenshot)

    def render(self) -> str | NDArray[np.uint8] | None:
        """Return the episode as ``render_mode`` says: its transcript, a picture of the screen or of the transcript, or None."""
        return self._episode.render()

    async def aclose(self) -> None:
        """End the session and remove the sandbox, or give it back to the pool; harmless when closed already."""
        self._drop_session()
        self._fault = "the environment is closed"
        slot, self._slot = self._slot, None
        if slot is not None:
            await asyncio.shield(asyncio.to_thread(slot.close))

    def __del__(self) -> None:
        # A half-built object has no attributes, an event loop that is closed takes no calls.
        with contextlib.suppress(Exception):
            if self._session is not None:
                self._session.close_from_thread()
        with contextlib.suppress(Exception):
            if self._slot is not None:
                self._slot.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _reset(self, seed: int | None, options: Mapping[str, Any] | None) -> tuple[Obs, Info]:
        """Begin an episode; whoever calls has the turn."""
        if seed is not None:
            self.np_random, _ = seeding.np_random(seed)
        asked = self._episode.begin(seed=seed, np_random=self.np_random, options=options)
        if self._slot is None:
            self._slot = make_slot(self._pool, self.config)
        elif not self._slot.begin_episode():
            self._drop_session()
        slot, was_started = self._slot, self._session is not None
        try:
            obs, info = self._episode.begun(await self._begin(slot, asked))
        except BaseException:
            # Nobody may be left to close what did not start, or whose start was cancelled.
            if not (was_started and self._session):
                self._leave(slot)
            raise
        return own_screenshot(obs), info

    async def _begin(self, slot: SandboxSlot, options: ResetOptions) -> ObservationData:
        attempts = ResetAttempts()
        while True:
            timeout = FIRST_RESET_TIMEOUT if self._session is None else RESET_TIMEOUT
            try:
                if self._session is None:
                    session = await slot.connect_async()
                    if self._slot is not slot:
                        session.close()
                        self._closed_meanwhile()
                    self._session = session
                return await self._session.reset(options, timeout=timeout)
            except (CapacityError, TransportError, ProtocolError) as error:
                if self._slot is not slot:
                    self._closed_meanwhile()
                self._drop_session()
                await asyncio.sleep(attempts.pause_after(error))

    async def _look(self, options: LookOptions) -> Screen:
        self._episode.check_look()
        async with self._turn:
            if self._session is None:
                raise TransportError(self._fault)
            try:
                return await self._session.look(options, timeout=LOOK_TIMEOUT)
            except TransportError as error:
                self._fault = str(error)
                self._drop_session()
                raise

    async def _run(self, action: StepAction) -> ObservationData:
        if self._session is not None:
            try:
                return await self._session.step(action, timeout=self._episode.answer_within)
            except (TransportError, ProtocolError) as error:
                self._fault = str(error)
                self._drop_session()
        return infrastructure_failure(self._fault)

    def _drop_session(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def _leave(self, slot: SandboxSlot) -> None:
        if self._slot is slot:
            self._drop_session()
            self._slot = None
        asyncio.get_running_loop().run_in_executor(None, slot.close)

    def _closed_meanwhile(self) -> NoReturn:
        message = "The environment was closed during the reset."
        raise SandboxStartError(message)
