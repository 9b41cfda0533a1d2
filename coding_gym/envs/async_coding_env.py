"""``AsyncCodingEnv``: the environment for asyncio; one event loop can run hundreds."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, Unpack

import numpy as np
from gymnasium.utils import seeding
from numpy.typing import NDArray

from coding_gym._validation import check_one_of
from coding_gym.client.async_processes import run_process
from coding_gym.envs.async_branching_access import AsyncBranchingAccess
from coding_gym.envs.episode import (
    FIRST_RESET_TIMEOUT,
    RESET_TIMEOUT,
    SCREEN_TIMEOUT,
    EpisodeState,
    Info,
    Obs,
    StepResult,
    Timing,
    infrastructure_failure,
    own_screenshot,
    refuse_action,
)
from coding_gym.envs.loop_lock import LoopLock
from coding_gym.envs.options import CodingEnvKwargs, EnvOptions, split_options
from coding_gym.envs.reset_retry import ResetRetryPolicy
from coding_gym.envs.screen_region import WIDGETS_AND_SCREEN, WIDGETS_ONLY, WINDOWS_ONLY, Region, screen_request
from coding_gym.errors import (
    CapacityError,
    ProtocolError,
    SandboxStartError,
    StepTimeoutError,
    TransportError,
)
from coding_gym.media.frames import decode_pixels
from coding_gym.media.marks import MarkedScreen, mark_widgets
from coding_gym.sandbox import ManagedSandbox, Sandbox
from coding_gym.sandbox.config import SandboxConfig
from coding_gym.sandbox.pool import SandboxPool, managed_sandbox, resolve_config
from coding_gym_server.protocol import (
    ObservationData,
    Outcome,
    ResetOptions,
    Screen,
    ScreenRequestOptions,
    StepAction,
    Widget,
    Window,
)

if TYPE_CHECKING:
    from coding_gym.client.async_session import AsyncSession
    from coding_gym.client.files import Files
    from coding_gym.client.process_request import Command, RunKwargs
    from coding_gym.client.processes import Processes, ProcessResult

__all__ = ["AsyncCodingEnv"]

_ON_TIMEOUT = ("observation", "raise")


class AsyncCodingEnv(AsyncBranchingAccess):
    """``CodingEnv`` for asyncio: the same actions, observations, rewards and infos, from coroutines.

    Calls on one environment are serialized; it belongs to the event loop of the first one. Canceling a ``step``, for example by
    ``asyncio.timeout``, interrupts the code as Ctrl-C does; the environment stays usable, and the namespace is preserved if the
    code stops on the interrupt.

    Args:
        on_timeout: Behavior of a step that times out: ``observation`` returns a regular observation, ``raise`` raises
            ``StepTimeoutError``. The environment stays usable in both cases.
        pool: Pool to lease a sandbox from until ``aclose``; the environment starts its own sandbox if None.
        config: The sandbox, as a ``SandboxConfig`` or a mapping of its fields.
        options: Options of ``CodingEnv``: ``step_timeout=5``, ``screen=None`` ..., and fields of ``SandboxConfig``.

    Raises:
        ConfigurationError: If an option is invalid.

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
        **options: Unpack[CodingEnvKwargs],
    ) -> None:
        check_one_of("on_timeout", on_timeout, _ON_TIMEOUT)
        self._arguments = {"on_timeout": on_timeout, "pool": pool, "config": config, **options}
        own, sandbox_options = split_options(options, type(self), AsyncCodingEnv)
        self.settings = EnvOptions(**own)
        self.settings.check_without_window()
        self.config = resolve_config(pool, config, sandbox_options, backend=self.settings.backend)
        self.on_timeout = on_timeout
        self._pool = pool
        self._episode = EpisodeState(self.settings)
        self.action_space = self._episode.action_space
        self.observation_space = self._episode.observation_space
        self.np_random, _ = seeding.np_random()
        self._slot: ManagedSandbox | None = None
        self._session: AsyncSession | None = None
        self._failure = "the session is gone"
        self._turn = LoopLock()
        self._is_fork = False

    @classmethod
    async def acquire(cls, pool: SandboxPool | None = None, **options: Any) -> Self:
        """Create, start and reset an environment; ``aclose`` returns its sandbox to the pool.

        Args:
            pool: Pool to lease the sandbox from; the environment starts its own sandbox if None.
            options: Arguments of the class.

        Raises:
            PoolTimeoutError: If the pool has no free slot in time.
            ProviderError: If no sandbox is available.
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
        """Duration of the last reset or step, None before the first."""
        return self._episode.last_timing

    async def start(self) -> None:
        """Start the sandbox and begin a first episode. Idempotent.

        Raises:
            ProviderError: If no sandbox is available; with a pool, within its timeout.
        """
        async with self._turn:
            if self._session is None:
                await self._reset(None, None)

    async def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[Obs, Info]:
        """Begin an episode: a new interpreter in an empty workspace; see ``CodingEnv.reset``.

        Raises:
            ConfigurationError: If the sandbox cannot fulfill an option, or an option is invalid.
            ProviderError: If no sandbox is available; with a pool, within its timeout.
            CapacityError: If the server has no free session.
            ConcurrentUseError: If the environment belongs to another event loop.
            gymnasium.error.ClosedEnvironmentError: If the environment is closed.
        """
        async with self._turn:
            return await self._reset(seed, options)

    async def step(self, action: str) -> StepResult:
        """Run ``action``; see ``CodingEnv.step``.

        Raises:
            InvalidActionError: If it is not in the action space; nothing is run.
            gymnasium.error.ResetNeeded: If the environment was neither started nor reset.
            ConcurrentUseError: If the environment belongs to another event loop.
            gymnasium.error.ClosedEnvironmentError: If the environment is closed.
            StepTimeoutError: If the step times out and ``on_timeout`` is ``raise``.
        """
        self._episode.check_action(action)
        async with self._turn:
            self._episode.check_open()
            try:
                data = await self._run(self._episode.begin_step(action))
                obs, reward, terminated, truncated, info = self._episode.finish_step(data)
            except BaseException as error:
                self._episode.reports.failed(error)
                raise
        obs = own_screenshot(obs)
        if self.on_timeout == "raise" and info["outcome"] == Outcome.TIMEOUT:
            raise StepTimeoutError(obs, info)
        return obs, reward, terminated, truncated, info

    async def windows(self) -> list[Window]:
        """Return the visible windows, the lowest first; see ``CodingEnv.windows``."""
        return (await self._request_screen(WINDOWS_ONLY)).windows

    async def capture(self, region: Region = None) -> NDArray[np.uint8]:
        """Return the current screen: uint8, shape (height, width, 3); see ``CodingEnv.capture``."""
        return decode_pixels((await self._request_screen(screen_request(region))).screenshot)

    async def widgets(self) -> list[Widget]:
        """Return the visible widgets of graphical programs, in tree order; see ``CodingEnv.widgets``."""
        return (await self._request_screen(WIDGETS_ONLY)).widgets

    async def marked_screen(self) -> MarkedScreen:
        """Return the current screen with numbered boxes around widgets; see ``CodingEnv.marked_screen``."""
        screen = await self._request_screen(WIDGETS_AND_SCREEN)
        return mark_widgets(decode_pixels(screen.screenshot), screen.widgets)

    async def exec(self, command: Command, **options: Unpack[RunKwargs]) -> ProcessResult:
        """Run a process to its end, beside the interpreter; see ``CodingEnv.exec``. Canceling the call kills the process."""
        return await run_process(self.processes, command, **options)

    @property
    def processes(self) -> Processes:
        """The processes that run beside the interpreter; their methods block. See ``CodingEnv.processes``."""
        return self._open_session().http.processes

    @property
    def files(self) -> Files:
        """The files of the working directory; their methods block. See ``CodingEnv.files``."""
        return self._open_session().http.files

    def render(self) -> str | NDArray[np.uint8] | None:
        """Render the episode in ``render_mode``: its transcript, an image of the screen or of the transcript, or None."""
        return self._episode.render()

    async def aclose(self) -> None:
        """End the session and remove the sandbox, or return it to the pool. Idempotent.

        All other methods then raise ``gymnasium.error.ClosedEnvironmentError``.
        """
        self._episode.close()
        self._drop_session()
        self._failure = "the environment is closed"
        slot, self._slot = self._slot, None
        if slot is not None:
            await asyncio.shield(asyncio.to_thread(slot.close))

    def __del__(self) -> None:
        # A partially constructed object lacks attributes; a closed event loop accepts no calls.
        with contextlib.suppress(Exception):
            if self._session is not None:
                self._session.close()
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
        """Begin an episode; the caller holds the lock."""
        self._episode.check_reset(options)
        if seed is not None:
            self.np_random, _ = seeding.np_random(seed)
        request = self._episode.begin(seed=seed, np_random=self.np_random, options=options)
        if self._is_fork and self._slot is not None:
            self._is_fork = False
            self._release(self._slot)
        if self._slot is None:
            self._slot = managed_sandbox(self._pool, self.config)
            self._episode.reports_loss = self._slot.may_lose_servers
        elif not self._slot.begin_episode():
            self._drop_session()
        slot, was_started = self._slot, self._session is not None
        try:
            obs, info = self._episode.finish_begin(await self._begin(slot, request))
        except BaseException as error:
            self._episode.reports.failed(error)
            # Close it here: after a failed or canceled start, the caller may not do so.
            if not (was_started and self._session):
                self._release(slot)
            raise
        return own_screenshot(obs), info

    async def _begin(self, slot: ManagedSandbox, options: ResetOptions) -> ObservationData:
        attempts = ResetRetryPolicy()
        while True:
            timeout = FIRST_RESET_TIMEOUT if self._session is None else RESET_TIMEOUT
            try:
                if self._session is None:
                    self._episode.reports.watched.waiting()
                    session = await slot.connect_async()
                    self._episode.reports.watched.resetting()
                    if self._slot is not slot:
                        session.close()
                        self._raise_closed()
                    self._session = session
                return await self._session.reset(options, timeout=timeout)
            except (CapacityError, TransportError, ProtocolError) as error:
                if self._slot is not slot:
                    self._raise_closed()
                self._drop_session()
                if not (isinstance(error, CapacityError) and slot.leave_full()):
                    await asyncio.sleep(attempts.pause_after(error))

    def _open_session(self) -> AsyncSession:
        self._episode.check_begun()
        if self._session is None:
            raise TransportError(self._failure)
        return self._session

    async def _request_screen(self, options: ScreenRequestOptions) -> Screen:
        self._episode.check_screen_available()
        async with self._turn:
            session = self._open_session()
            try:
                return await session.request_screen(options, timeout=SCREEN_TIMEOUT)
            except TransportError as error:
                self._fail(error)
                raise

    async def _run(self, action: StepAction) -> ObservationData:
        if self._session is not None:
            try:
                return await self._session.step(action, timeout=self._episode.response_timeout)
            except (TransportError, ProtocolError) as error:
                refuse_action(error)
                self._fail(error)
        return infrastructure_failure(self._failure)

    def _fail(self, error: Exception) -> None:
        self._failure = str(error)
        self._drop_session()

    def _drop_session(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def _release(self, slot: ManagedSandbox) -> None:
        if self._slot is slot:
            self._drop_session()
            self._slot = None
        asyncio.get_running_loop().run_in_executor(None, slot.close)

    def _raise_closed(self) -> NoReturn:
        message = "The environment was closed during the reset."
        raise SandboxStartError(message)
