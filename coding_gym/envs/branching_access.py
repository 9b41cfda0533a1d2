"""``BranchingAccess``: snapshots and forks of an environment."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

from gymnasium.envs.registration import EnvSpec

from coding_gym.client.session import SNAPSHOT_TIMEOUT
from coding_gym.envs.episode import Info, Obs
from coding_gym.envs.replay import ReplayReport, check_seed
from coding_gym.envs.restoring import Restoring
from coding_gym.envs.session_access import SessionAccess
from coding_gym.envs.snapshot import Snapshot, check_snapshot
from coding_gym_server.protocol import ObservationData, ResetOptions

if TYPE_CHECKING:
    from coding_gym.sandbox import ManagedSandbox

__all__ = ["BranchingAccess"]


class BranchingAccess(Restoring, SessionAccess):
    """Snapshots and forks of an environment."""

    _slot: ManagedSandbox | None
    _owns_slot: bool
    _is_fork: bool
    # Whether its state cannot be copied, whatever it does.
    _clones_by_replay: ClassVar[bool] = False
    spec: EnvSpec | None
    _ezpickle_args: tuple[Any, ...]
    _ezpickle_kwargs: dict[str, Any]

    def clone_state(self, *, replay: bool | None = None) -> Snapshot:
        """Return a snapshot of the episode, which goes on unchanged: the interpreter's state and the session's files.

        Args:
            replay: Whether to take only a record of the episode, which ``restore_state`` replays: for states that cannot be
                copied, and for every backend. It does not involve the sandbox. By default, False; True in a
                ``CodingShellEnv``.

        Raises:
            SnapshotError: If a copy would not be faithful; ``reasons`` says why: threads, child processes, sockets ...
            ConcurrentUseError: If another thread is in a call of this environment.
            gymnasium.error.ResetNeeded: If ``reset`` was not called before.
            gymnasium.error.ClosedEnvironmentError: If the environment is closed.
            TransportError: If the session is lost.
        """
        with self._exclusive_use:
            if self._clones_by_replay if replay is None else replay:
                return self._record()
            session = self._open_session()
            with self._failing_with_connection():
                return Snapshot(session, session.clone(), self._episode.save())

    def restore_state(
        self, snapshot: Snapshot, *, seed: int | None = None, replay: bool = False, release: bool = False
    ) -> tuple[Obs, Info]:
        """Go on from a snapshot of this environment, or of another one in its sandbox. It can be restored any number of times.

        Args:
            snapshot: The snapshot.
            seed: Seeds ``random`` and ``numpy.random`` of the interpreter, which otherwise go on from their state.
            replay: Whether to begin a new episode with the same seed, options and files, and to run the recorded actions again,
                which works in any sandbox, for any backend, and when the snapshot is lost. A snapshot that is only a record is
                always replayed.
            release: Whether to release the snapshot, which then goes on itself instead of a copy: the fastest way back.

        Returns:
            An observation without output, and the info. After a replay, ``info["replay"]`` has the number of ``steps``, and
            the ``differences`` of their outputs: dicts of ``step``, ``field``, ``expected`` and ``found``.

        Raises:
            SnapshotError: If the snapshot is lost, was released, or is one that only ``replay`` can restore.
            ConfigurationError: If there are both a seed and a replay.
            TransportError: If the session is lost.
        """
        check_snapshot(snapshot)
        with self._exclusive_use:
            self._episode.check_open()
            if self._must_replay(snapshot, seed=seed, replay=replay):
                obs, info = self._replay(snapshot, release=release)
            else:
                session = self._open_session()
                with self._failing_with_connection():
                    session.ask_restore(snapshot.id, seed=seed, release=release)
                    data = session.wait(timeout=SNAPSHOT_TIMEOUT)
                obs, info = self._finish_restore(snapshot, data, release=release)
        return self._screenshot_for_caller(obs), info

    def fork(self, n: int, seeds: Sequence[int | None] | None = None) -> list[Self]:
        """Return environments that go on from the present state, each in a session of its own; this one goes on, too.

        They run in the same sandbox, which exists until the last of them is closed. Their files have the same paths, but a fork
        can neither access the files nor signal the processes of another session. A ``reset`` of one starts another sandbox.

        Args:
            n: Number of environments, 1 to 64.
            seeds: A seed of ``random`` and ``numpy.random`` of the interpreter for each of them, or None for one whose
                generators go on from their state. By default distinct seeds are drawn from ``np_random``.

        Raises:
            SnapshotError: If a copy would not be faithful, or the sandbox permits no further fork; ``reasons`` says why.
            ConfigurationError: If the number of environments or of seeds is invalid.
            ConcurrentUseError: If another thread is in a call of this environment.
            gymnasium.error.ResetNeeded: If ``reset`` was not called before.
            gymnasium.error.ClosedEnvironmentError: If the environment is closed.
            TransportError: If the session is lost.

        Example:
            >>> children = env.unwrapped.fork(4)  # doctest: +SKIP
            >>> results = [child.step("print(random.random())") for child in children]  # doctest: +SKIP
        """
        with self._exclusive_use:
            self._episode.check_begun()
            chosen = self._choose_seeds(n, seeds)
            if self._clones_by_replay:
                return self._fork_by_replay(n, seeds or ())
            return self._fork_by_copy(n, chosen)

    def _fork_by_copy(self, n: int, chosen: Sequence[int | None]) -> list[Self]:
        session = self._open_session()
        with self._failing_with_connection():
            tickets = session.fork(n)
        forks: list[Self] = []
        try:
            for ticket, seed in zip(tickets, chosen, strict=True):
                fork = self._make_alike()
                forks.append(fork)
                fork._begin_fork(self, ticket, seed)
            for fork, seed in zip(forks, chosen, strict=True):
                assert fork._session is not None
                fork._finish_fork_of(self, fork._session.wait(timeout=SNAPSHOT_TIMEOUT), seed)
        except BaseException:
            for fork in forks:
                fork.close()
            for ticket in tickets:
                session.release(ticket)
            raise
        return forks

    def _fork_by_replay(self, n: int, seeds: Sequence[int | None]) -> list[Self]:
        for seed in seeds:
            check_seed(seed)
        snapshot = self.clone_state()
        forks: list[Self] = []
        try:
            for _ in range(n):
                forks.append(self._make_alike())
                forks[-1].restore_state(snapshot)
        except BaseException:
            for fork in forks:
                fork.close()
            raise
        return forks

    def _make_alike(self) -> Self:
        """Return an environment with the same options, before its first reset."""
        alike = type(self)(*self._ezpickle_args, **self._ezpickle_kwargs)
        alike.spec = self.spec
        return alike

    def _begin_fork(self, origin: Self, ticket: str, seed: int | None) -> None:
        """Request the state of another environment."""
        assert origin._slot is not None
        assert origin._slot.sandbox is not None
        self._slot, self._owns_slot = origin._slot.share() if origin._owns_slot else origin._slot, origin._owns_slot
        self._is_fork = True
        self._session = origin._slot.sandbox.connect(fork_of=ticket)
        self._session.ask_restore(ticket, seed=seed)

    def _replay(self, snapshot: Snapshot, *, release: bool) -> tuple[Obs, Info]:
        """Begin an episode, and run the actions of a snapshot's."""
        self._failure = None
        request, steps = self._begin_replay(snapshot)
        self._request_episode(request)
        obs, info = self.finish_reset()
        report = ReplayReport()
        for recorded in steps:
            assert self._session is not None
            self._session.ask_step(recorded.request)
            report.add(recorded, self._wait_for_step().observation)
        self._finish_replay(snapshot, report, info, release=release)
        return obs, info

    @abstractmethod
    def close(self) -> None:
        """End the session."""

    @abstractmethod
    def finish_reset(self) -> tuple[Obs, Info]:
        """Wait for the beginning of an episode."""

    @abstractmethod
    def _request_episode(self, request: ResetOptions) -> None:
        """Request an episode."""

    @abstractmethod
    def _wait_for_step(self) -> ObservationData:
        """Wait for the response to a step."""

    @abstractmethod
    def _screenshot_for_caller(self, obs: Obs) -> Obs:
        """Return an observation that the caller may modify."""
