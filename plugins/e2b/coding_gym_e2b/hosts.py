"""The sandboxes that E2B's sandboxes are sessions of."""

from __future__ import annotations

import asyncio
import dataclasses
from concurrent.futures import Executor, ThreadPoolExecutor

from coding_gym.errors import (
    CodingGymError,
    ConfigurationError,
    ProtocolError,
    SnapshotError,
    TransportError,
    TransportTimeoutError,
)
from coding_gym.sandbox import Sandbox
from coding_gym.sandbox.config import SandboxConfig
from coding_gym.sandbox.managed import ManagedSandbox
from coding_gym_e2b.async_session import AsyncSession
from coding_gym_e2b.failures import ApiError
from coding_gym_e2b.settings import GatewaySettings
from coding_gym_server.protocol import ResetOptions

__all__ = ["Host", "Hosts"]

_CONNECT_SECONDS = 5.0
"""Connection timeout, after which a sandbox is considered dead."""

_GONE = "The sandbox has ended"
_BEGIN_SECONDS = 60.0
_FORK_SECONDS = 60.0
_OUTPUT_CHARS = 4 << 20
_NOTICE_SECONDS = 0.1
"""Time in which the end of a sandbox is noticed."""
_THREADS = 8


class Host:
    """A sandbox, and what is known of it.

    Args:
        config: Its configuration.
        is_own: Whether it is for a single E2B sandbox and its forks.
        executor: Starts and removes it.

    Attributes:
        managed: The sandbox.
        used: Number of sessions that are not forks.
        forks: Number of sessions that are.
    """

    def __init__(self, config: SandboxConfig, *, is_own: bool, executor: Executor) -> None:
        self.config = config
        self.is_own = is_own
        # A shared one has one more session, which keeps it from ending by itself while no other one is open.
        sessions = config.sessions if is_own else config.sessions + 1
        self.managed = ManagedSandbox(dataclasses.replace(config, sessions=sessions))
        self._executor = executor
        self.used = 0
        self.forks = 0
        self._keepalive: AsyncSession | None = None
        self._starting: asyncio.Task[None] | None = None

    async def connect(self) -> AsyncSession:
        """Open a session, in a new sandbox if the old one has ended; one that answers too late is kept.

        Raises:
            ProviderError: If a new sandbox cannot be started.
            TransportError: If it does not answer.
        """
        if self.is_own:
            return await self._connect_or_replace()
        await self._keep_alive()
        try:
            return await self.connect_present()
        except (TransportError, ProtocolError):
            await asyncio.sleep(_NOTICE_SECONDS)
            if not self._is_lost:
                raise
        await self._keep_alive()
        return await self.connect_present()

    async def connect_present(self, *, fork_of: str | None = None) -> AsyncSession:
        """Open a session in the present sandbox, which is kept even if it does not answer.

        Args:
            fork_of: See ``Session``.

        Raises:
            TransportError: If there is no sandbox, or it does not answer.
        """
        sandbox = self.managed.obtain_free()
        if sandbox is None:
            raise TransportError(_GONE)
        return await AsyncSession.connect(sandbox.address, timeout=_CONNECT_SECONDS, fork_of=fork_of)

    async def obtain(self) -> Sandbox:
        """Return the sandbox, dead or alive; start one if there is none.

        Raises:
            ProviderError: If it cannot be started.
        """
        return await asyncio.get_running_loop().run_in_executor(self._executor, self.managed.obtain)

    async def _connect_or_replace(self) -> AsyncSession:
        """Open a session, in a new sandbox if the old one does not answer."""
        sandbox = await self.obtain()
        try:
            return await AsyncSession.connect(sandbox.address, timeout=_CONNECT_SECONDS)
        except (TransportError, ProtocolError):
            await asyncio.get_running_loop().run_in_executor(self._executor, self.managed.give_up, sandbox)
        sandbox = await self.obtain()
        return await AsyncSession.connect(sandbox.address, timeout=_CONNECT_SECONDS)

    @property
    def _is_lost(self) -> bool:
        return self._keepalive is None or self._keepalive.is_lost

    async def _keep_alive(self) -> None:
        """Start the sandbox unless it lives; calls at the same time share the start, and its failure."""
        if not self._is_lost:
            return
        if self._starting is None:
            self._starting = asyncio.create_task(self._start())
            # Retrieved here as well: the calls that waited for it may have been canceled.
            self._starting.add_done_callback(lambda task: task.cancelled() or task.exception())
        await asyncio.shield(self._starting)

    async def _start(self) -> None:
        try:
            self._keepalive = await self._connect_or_replace()
        finally:
            self._starting = None

    def close(self) -> None:
        """Remove the sandbox, from any thread."""
        if self._keepalive is not None:
            self._keepalive.close()
        self.managed.close()

    def has_room(self, image: str | None) -> bool:
        """Return whether another E2B sandbox with an image can be a session of it."""
        return not self.is_own and self.config.image == image and self.used < self.config.sessions


class Hosts:
    """The sandboxes of a gateway, which are started as they are needed.

    Args:
        settings: The gateway's settings.
    """

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        self._hosts: list[Host] = []
        # Starting a container takes a while, for which it would keep others from the threads of the event loop.
        self._executor = ThreadPoolExecutor(_THREADS, "hosts")

    @property
    def all(self) -> list[Host]:
        """The current sandboxes."""
        return [*self._hosts]

    @property
    def limit(self) -> int:
        """Maximum number of sandboxes."""
        return self._settings.hosts

    @property
    def free_places(self) -> int:
        """Number of E2B sandboxes that there is room for, in these sandboxes and in those that may still be started."""
        each = 1 if self._settings.root else self._settings.config.sessions
        left = sum(host.config.sessions - host.used for host in self._hosts)
        return left + (self.limit - len(self._hosts)) * each

    async def open(self, image: str | None, *, is_own: bool, is_root: bool = False) -> tuple[Host, AsyncSession]:
        """Begin a session, in a new sandbox if necessary.

        Args:
            image: Image of the sandbox, None for the default one.
            is_own: Whether it must be a new one, for this session alone.
            is_root: Whether programs of it can be root, for which it must be one for this session alone, too.

        Raises:
            ApiError: If there is no room for it, or the sandbox does not start.
        """
        host = self._choose(image, is_own=is_own or is_root, is_root=is_root)
        host.used += 1
        try:
            session = await host.connect()
            try:
                options = ResetOptions(show_value=False, max_output_chars=_OUTPUT_CHARS, screen=None)
                await session.reset(options, timeout=_BEGIN_SECONDS)
            except BaseException:
                session.close()
                raise
        except ConfigurationError as error:
            self.release(host)
            raise ApiError(400, str(error)) from error
        except TransportTimeoutError as error:
            self.release(host)
            message = f"The sandbox is busy: {error}. Try again"
            raise ApiError(503, message) from error
        except CodingGymError as error:
            self.release(host)
            message = f"No sandbox could be started: {error}"
            raise ApiError(503, message) from error
        except BaseException:
            self.release(host)
            raise
        return host, session

    async def fork(self, host: Host, session: AsyncSession, count: int) -> list[AsyncSession | ApiError]:
        """Begin sessions that continue from the state of one.

        Args:
            host: The sandbox of the session.
            session: The session.
            count: Number of forks.

        Returns:
            The new sessions, or why there is none.

        Raises:
            ApiError: If the session cannot be copied.
        """
        try:
            tickets = await session.fork(count, timeout=_FORK_SECONDS)
        except SnapshotError as error:
            message = f"The sandbox cannot be copied: {'; '.join(error.reasons)}"
            raise ApiError(409, message) from error
        except CodingGymError as error:
            message = f"The sandbox cannot be copied: {error}"
            raise ApiError(500, message) from error
        return await asyncio.gather(*(self._begin_fork(host, session, ticket) for ticket in tickets))

    async def _begin_fork(self, host: Host, origin: AsyncSession, ticket: str) -> AsyncSession | ApiError:
        host.forks += 1
        try:
            fork = await host.connect_present(fork_of=ticket)
            try:
                await fork.restore(ticket, seed=None, timeout=_FORK_SECONDS)
            except BaseException:
                fork.close()
                raise
        except CodingGymError as error:
            origin.release(ticket)
            self.release(host, is_fork=True)
            return ApiError(500, f"The fork failed: {error}")
        except BaseException:
            self.release(host, is_fork=True)
            raise
        return fork

    def release(self, host: Host, *, is_fork: bool = False) -> None:
        """Called when a session has ended; a sandbox without sessions ends, unless it is the last shared one."""
        if is_fork:
            host.forks -= 1
        else:
            host.used -= 1
        if host.used + host.forks == 0 and host in self._hosts and (host.is_own or self._has_another(host)):
            self._hosts.remove(host)
            asyncio.get_running_loop().run_in_executor(self._executor, host.close)

    async def warm_up(self) -> str:
        """Start the first sandbox, and return its description.

        Raises:
            ProviderError: If it does not start.
        """
        # The first sandbox of a client then takes its place: sandboxes for one session are not kept.
        is_root = self._settings.root
        config = self._settings.root_config if is_root else self._settings.config
        host = Host(config, is_own=is_root, executor=self._executor)
        sandbox = await host.obtain()
        self._hosts.append(host)
        return sandbox.description

    async def close(self) -> None:
        """Remove all sandboxes."""
        hosts, self._hosts = self._hosts, []
        loop = asyncio.get_running_loop()
        await asyncio.gather(*(loop.run_in_executor(self._executor, host.close) for host in hosts))
        await asyncio.to_thread(self._executor.shutdown)

    def _choose(self, image: str | None, *, is_own: bool, is_root: bool) -> Host:
        if not is_own:
            for host in self._hosts:
                if host.has_room(image):
                    return host
        if len(self._hosts) >= self._settings.hosts:
            idle = next((host for host in self._hosts if host.used + host.forks == 0), None)
            if idle is None:
                message = (
                    f"All {self._settings.hosts} sandboxes of this server are full, with {self._settings.config.sessions} "
                    "sessions each: kill some, or raise --hosts or --sessions"
                )
                raise ApiError(429, message)
            self._hosts.remove(idle)
            asyncio.get_running_loop().run_in_executor(self._executor, idle.close)
        sessions = 1 if is_own else self._settings.config.sessions
        config = dataclasses.replace(self._settings.config, image=image, sessions=sessions, root=is_root)
        host = Host(config, is_own=is_own, executor=self._executor)
        self._hosts.append(host)
        return host

    def _has_another(self, host: Host) -> bool:
        return any(not other.is_own and other.config == host.config for other in self._hosts if other is not host)
