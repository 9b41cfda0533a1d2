"""``AsyncCodingEnv``: the environment for asyncio; one event loop can run hundreds."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from coding_gym._validation import check_one_of
from coding_gym.client.processes import run_process
from coding_gym.envs.coding_env import CLOSED_DURING_RESET, CodingEnv
from coding_gym.envs.episode import Info, Obs, StepResult, Timing
from coding_gym.envs.options import CodingEnvKwargs, EnvOptions, split_options
from coding_gym.envs.screen_region import Region
from coding_gym.envs.snapshot import Snapshot
from coding_gym.errors import ConcurrentUseError, SandboxStartError, StepTimeoutError
from coding_gym.sandbox import Sandbox
from coding_gym.sandbox.config import SandboxConfig
from coding_gym.sandbox.pool import SandboxPool
from coding_gym.tracing import in_current_context
from coding_gym_server.protocol import Outcome, Widget, Window

if TYPE_CHECKING:
    from coding_gym.client.files import Files
    from coding_gym.client.processes import Command, Processes, ProcessResult, RunKwargs
    from coding_gym.doors.doors import Door, Doors
    from coding_gym.doors.targets import DoorTarget
    from coding_gym.media.marks import MarkedScreen

__all__ = ["AsyncCodingEnv"]

_ON_TIMEOUT = ("observation", "raise")

_T = TypeVar("_T")


class AsyncCodingEnv:
    """``CodingEnv`` for asyncio: the same environment, whose calls are made in a thread.

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
        own, _ = split_options(options, type(self), AsyncCodingEnv)
        EnvOptions(**own).check_without_window()
        self._use(CodingEnv(pool=pool, config=config, **options), on_timeout)

    def _use(self, env: CodingEnv, on_timeout: str) -> None:
        self._env = env
        self.on_timeout = on_timeout
        self._thread = _CallThread()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._beginnings: set[threading.Event] = set()
        self._is_closed = False

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
    def settings(self) -> EnvOptions:
        """The environment's options, except the sandbox configuration."""
        return self._env.settings

    @property
    def config(self) -> SandboxConfig:
        """The sandbox configuration."""
        return self._env.config

    @property
    def action_space(self) -> gym.Space[str]:
        """The space of actions."""
        return self._env.action_space

    @property
    def observation_space(self) -> gym.Space[Obs]:
        """The space of observations."""
        return self._env.observation_space

    @property
    def np_random(self) -> np.random.Generator:
        """The generator that seeds are drawn from."""
        return self._env.np_random

    @property
    def sandbox(self) -> Sandbox | None:
        """The sandbox, None before the start and after ``aclose``."""
        return self._env.sandbox

    @property
    def last_timing(self) -> Timing | None:
        """Duration of the last reset or step, None before the first."""
        return self._env.last_timing

    async def start(self) -> None:
        """Start the sandbox and begin a first episode. Idempotent.

        Raises:
            ProviderError: If no sandbox is available; with a pool, within its timeout.
        """
        await self._begin(self._env.begin_unless_begun)

    async def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[Obs, Info]:
        """Begin an episode: a new interpreter in an empty workspace; see ``CodingEnv.reset``.

        Raises:
            ConfigurationError: If the sandbox cannot fulfill an option, or an option is invalid.
            ProviderError: If no sandbox is available; with a pool, within its timeout.
            CapacityError: If the server has no free session.
            ConcurrentUseError: If the environment belongs to another event loop.
            gymnasium.error.ClosedEnvironmentError: If the environment is closed.
        """
        chosen = None if options is None else dict(options)
        return await self._begin(partial(self._env.reset, seed=seed, options=chosen))

    async def step(self, action: str) -> StepResult:
        """Run ``action``; see ``CodingEnv.step``.

        Raises:
            InvalidActionError: If it is not in the action space; nothing is run.
            gymnasium.error.ResetNeeded: If the environment was neither started nor reset.
            ConcurrentUseError: If the environment belongs to another event loop.
            gymnasium.error.ClosedEnvironmentError: If the environment is closed.
            StepTimeoutError: If the step times out and ``on_timeout`` is ``raise``.
        """
        self._env.check_action(action)
        canceled = threading.Event()
        result = await self._call(partial(_step, self._env, action, canceled), canceled)
        obs, _, _, _, info = result
        if self.on_timeout == "raise" and info["outcome"] == Outcome.TIMEOUT:
            raise StepTimeoutError(obs, info)
        return result

    async def windows(self) -> list[Window]:
        """Return the visible windows, the lowest first; see ``CodingEnv.windows``."""
        return await self._call(self._env.windows)

    async def capture(self, region: Region = None) -> NDArray[np.uint8]:
        """Return the current screen: uint8, shape (height, width, 3); see ``CodingEnv.capture``."""
        return await self._call(partial(self._env.capture, region))

    async def widgets(self) -> list[Widget]:
        """Return the visible widgets of graphical programs, in tree order; see ``CodingEnv.widgets``."""
        return await self._call(self._env.widgets)

    async def marked_screen(self) -> MarkedScreen:
        """Return the current screen with numbered boxes around widgets; see ``CodingEnv.marked_screen``."""
        return await self._call(self._env.marked_screen)

    async def exec(self, command: Command, **options: Unpack[RunKwargs]) -> ProcessResult:
        """Run a process to its end, beside the interpreter; see ``CodingEnv.exec``. Canceling the call kills the process."""
        return await run_process(self.processes, command, **options)

    @property
    def processes(self) -> Processes:
        """The processes that run beside the interpreter; their methods block. See ``CodingEnv.processes``."""
        return self._env.processes

    @property
    def files(self) -> Files:
        """The files of the working directory; their methods block. See ``CodingEnv.files``."""
        return self._env.files

    @property
    def doors(self) -> Doors:
        """The ports of the session that lead to the trainer's side; see ``CodingEnv.doors``."""
        return self._env.doors

    async def open_door(self, port: int, target: DoorTarget) -> Door:
        """Open a further port of the session that leads to the trainer's side; see ``CodingEnv.open_door``."""
        return await self._call(partial(self._env.open_door, port, target))

    async def clone_state(self, *, replay: bool | None = None) -> Snapshot:
        """Return a snapshot of the episode, which continues unchanged; see ``CodingEnv.clone_state``."""
        return await self._call(partial(self._env.clone_state, replay=replay))

    async def restore_state(
        self, snapshot: Snapshot, *, seed: int | None = None, replay: bool = False, release: bool = False
    ) -> tuple[Obs, Info]:
        """Continue from a snapshot of this environment, also of an earlier episode; see ``CodingEnv.restore_state``."""
        return await self._call(partial(self._env.restore_state, snapshot, seed=seed, replay=replay, release=release))

    async def fork(self, n: int, seeds: Sequence[int | None] | None = None) -> list[Self]:
        """Return environments that continue from the present state, each in its own session; see ``CodingEnv.fork``."""
        forks = []
        for env in await self._call(partial(self._env.fork, n, seeds)):
            fork = type(self).__new__(type(self))
            fork._use(env, self.on_timeout)
            forks.append(fork)
        return forks

    def render(self) -> str | NDArray[np.uint8] | None:
        """Render the episode in ``render_mode``: its transcript, an image of the screen or of the transcript, or None."""
        return self._env.render()

    async def aclose(self) -> None:
        """End the session and remove the sandbox, or return it to the pool. Idempotent.

        All other methods then raise ``gymnasium.error.ClosedEnvironmentError``.
        """
        self._is_closed = True
        self._env.refuse_use()
        for canceled in self._beginnings:
            canceled.set()
        self._env.stop_waiting()
        self._env.abort()
        closing = self._thread.submit(self._env.close)
        self._thread.end()
        await asyncio.shield(asyncio.wrap_future(closing))

    def __del__(self) -> None:
        # A partially constructed object lacks attributes.
        with contextlib.suppress(Exception):
            self._thread.end()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _begin(self, begin: Callable[[], _T]) -> _T:
        """Begin an episode."""
        canceled = threading.Event()
        self._beginnings.add(canceled)
        was_closed = self._is_closed
        try:
            result = await self._call(partial(self._env.begin_cancelable, begin, canceled), canceled)
        except gym.error.ClosedEnvironmentError:
            if was_closed:
                raise
            raise SandboxStartError(CLOSED_DURING_RESET) from None
        finally:
            self._beginnings.discard(canceled)
        if self._is_closed:
            raise SandboxStartError(CLOSED_DURING_RESET)
        return result

    async def _call(self, call: Callable[[], _T], canceled: threading.Event | None = None) -> _T:
        """Make a call in the thread of the environment.

        Args:
            call: The call.
            canceled: Is set if the task is canceled meanwhile.
        """
        self._check_loop()
        canceled = canceled or threading.Event()
        future = self._thread.submit(in_current_context(call))
        answer = asyncio.wrap_future(future)
        try:
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            answer.add_done_callback(_retrieve_error)
            if not future.cancel():
                canceled.set()
                self._env.stop_waiting()
                self._env.interrupt()
            raise

    def _check_loop(self) -> None:
        loop = asyncio.get_running_loop()
        self._loop = self._loop or loop
        if loop is not self._loop:
            state = "has ended" if self._loop.is_closed() else "is another one"
            message = (
                f"This environment belongs to the event loop in which it was started, which {state}: make an environment in "
                "each event loop, in the coroutine that is passed to asyncio.run()"
            )
            raise ConcurrentUseError(message)


def _retrieve_error(answer: asyncio.Future[Any]) -> None:
    """Retrieve the error of an abandoned call, which asyncio would log otherwise."""
    if not answer.cancelled():
        answer.exception()


def _step(env: CodingEnv, action: str, canceled: threading.Event) -> StepResult:
    with env.exclusive_use:
        env.check_action(action)
        env.begin_step(action)
        if canceled.is_set():
            # Before there was a step to interrupt.
            env.interrupt()
        return env.finish_step(canceled)


class _CallThread:
    """A daemon thread that makes calls one after the other. It starts with the first one."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] | None = None

    def submit(self, call: Callable[[], _T]) -> Future[_T]:
        """Make a call when those before it have returned."""
        if self._calls is None:
            self._calls = SimpleQueue()
            threading.Thread(target=_make_calls, args=(self._calls,), name="coding_gym_env", daemon=True).start()
        future: Future[_T] = Future()
        self._calls.put((future, call))
        return future

    def end(self) -> None:
        """End the thread when its calls have returned; the next call starts another."""
        calls, self._calls = self._calls, None
        if calls is not None:
            calls.put(None)


def _make_calls(calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]) -> None:
    while (entry := calls.get()) is not None:
        future, call = entry
        if future.set_running_or_notify_cancel():
            outcome = error = None
            try:
                outcome = call()
            except BaseException as caught:  # noqa: BLE001 - raised where the call is awaited
                error = caught
            # The environment may be collected as soon as its last call has returned.
            del entry, call
            future.set_exception(error) if error is not None else future.set_result(outcome)
            del outcome, error
        else:
            del entry, call
        del future
