"""``collect``: concurrent collection of episodes into a dataset directory."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from coding_gym._validation import check_count
from coding_gym.datasets.card import write_card
from coding_gym.datasets.dataset import Dataset, dataset_hash
from coding_gym.datasets.dataset_files import EPISODES_FILE, FAULTS_FILE
from coding_gym.datasets.details import DetailsLog, EpisodeDetails
from coding_gym.datasets.env_factory import EnvFactory, EnvSource, Wrapper
from coding_gym.datasets.episode import Episode, encode_episode, plain
from coding_gym.datasets.episode_log import EpisodeLog, has_episodes
from coding_gym.datasets.episode_runner import EpisodeRunner
from coding_gym.datasets.manifest import Arguments, CollectionRun, Manifest, difference
from coding_gym.datasets.policies.base import as_policy
from coding_gym.datasets.progress import EpisodeBar
from coding_gym.datasets.rollout import plan_episode
from coding_gym.errors import ConfigurationError, DatasetError
from coding_gym.sandbox.pool import SandboxPool

__all__ = ["collect"]


def collect(
    env: EnvSource,
    policy: Any,
    episodes: int,
    *,
    seed: int,
    path: Path | str,
    env_options: Mapping[str, Any] | None = None,
    wrappers: Sequence[Wrapper] = (),
    tasks: Sequence[Any] = (),
    reset_options: Mapping[str, Any] | None = None,
    max_steps: int = 100,
    sessions: int = 16,
    sandboxes: int | None = None,
    pool: SandboxPool | None = None,
    retries: int = 5,
    most_policy_errors: int = 8,
    progress: bool | None = None,
) -> Dataset:
    r"""Run episodes concurrently and write them to a directory as they complete.

    Episode ``i`` is seeded by ``seed`` and ``i`` alone, not by the number of sessions or the order in which episodes complete.
    If environment and policy are deterministic, the episode log of a complete dataset is byte-identical across runs. To resume
    after an interruption, including SIGKILL, call ``collect`` again with the same arguments: it runs the missing episodes only.
    Until an episode is written, other arguments are accepted. A larger ``episodes`` extends the dataset.

    Args:
        env: Environment id, or a callable that returns an environment; it is called once per session, and again after
            infrastructure errors.
        policy: ``Policy``, ``"random"``, list of actions, or function of the observation, the info and a
            ``numpy.random.Generator`` that returns an action, or None to end the episode. A function may be a coroutine
            function, and may block without holding up other episodes. It is called from several threads.
        episodes: Total number of episodes in the dataset.
        seed: Seed of the dataset, at least 0.
        path: Directory of the dataset; created if it does not exist.
        env_options: Keyword arguments for an environment id, such as ``{"provider": "local", "screen": None}``.
        wrappers: Wrappers to apply to each environment, the innermost first.
        tasks: Tasks or their ids, such as a ``TaskSuite``: episode ``i`` is reset with ``options={"task_id": ...}`` of task
            ``i % len(tasks)``.
        reset_options: Reset options of all episodes, such as ``{"files": {"data.csv": ...}}``.
        max_steps: Number of actions after which an episode is truncated.
        sessions: Maximum number of concurrent episodes.
        sandboxes: Number of sandboxes; one per 16 sessions if None.
        pool: Existing sandbox pool to use; its number of slots limits the number of concurrent episodes, as that of the servers
            of ``base_urls`` in ``env_options`` does.
        retries: Maximum number of retries of an episode after infrastructure errors; failed attempts are counted, but not
            recorded.
        most_policy_errors: Number of episodes with policy errors after which no further episodes begin. Those episodes are
            not recorded, and ``PolicyError`` is raised at the end.
        progress: Whether to show a progress bar; if None, only if stderr is a terminal.

    Returns:
        The complete dataset.

    Raises:
        ConfigurationError: If an argument is invalid.
        PolicyError: If the policy raises or returns an invalid action. The other episodes are written.
        DatasetError: If the directory contains a different dataset, or one that another process is writing; or if the
            sandboxes of an episode fail more than ``retries`` times, or the disk is full.
        ProviderError: If no sandbox is available.

    Example:
        >>> dataset = collect("CodingEnv-v0", ["x = 6", "print(x * 7)"], 100, seed=1, path="runs/a")  # doctest: +SKIP
        >>> dataset[0].steps[2].observation["stdout"]  # doctest: +SKIP
        '42\n'
    """
    for name, value, smallest in (("episodes", episodes, 1), ("max_steps", max_steps, 1), ("sessions", sessions, 1)):
        check_count(name, value, smallest)
    check_count("seed", seed, 0)
    directory, chosen = Path(path), as_policy(policy)
    maker = EnvFactory(env, env_options, wrappers=wrappers, pool=pool)
    options = _reset_options(reset_options)
    task_ids = [str(getattr(task, "id", task)) for task in tasks]
    arguments = Arguments(
        env=maker.name,
        env_options=maker.describe_options(),
        wrappers=maker.wrapper_names,
        policy=chosen.describe(),
        seed=seed,
        max_steps=max_steps,
        reset_options=_hash_of(options) if options else "",
        tasks=task_ids,
    )
    with contextlib.ExitStack() as stack:
        with _writing(directory):
            directory.mkdir(parents=True, exist_ok=True)
            stack.enter_context(_writer_lock(directory))
            writer = stack.enter_context(_DatasetWriter(directory, arguments, episodes, progress=progress))
        missing = writer.missing
        if missing:
            with maker.open(min(sessions, len(missing)), sandboxes=sandboxes) as opened:
                had = len(writer.log.entries)
                writer.begin(CollectionRun.starting(had=had, sessions=opened.sessions, sandbox=opened.sandbox))
                runner = EpisodeRunner(
                    opened.make,
                    chosen,
                    sessions=opened.sessions,
                    max_steps=max_steps,
                    retries=retries,
                    most_policy_errors=most_policy_errors,
                )
                plans = (plan_episode(seed, index, options=options, tasks=task_ids) for index in missing)
                runner.run(plans, on_episode=writer.add, on_fault=writer.note_fault)
        return writer.finish()


class _DatasetWriter:
    """Writer of a dataset: its episode log, fault log and manifest."""

    def __init__(self, directory: Path, arguments: Arguments, episodes: int, *, progress: bool | None) -> None:
        self._directory = directory
        self.manifest = _manifest(directory, arguments, episodes)
        self.log = EpisodeLog(directory / EPISODES_FILE)
        self._details = DetailsLog(directory)
        self.missing = [index for index in range(episodes) if index not in self.log.entries]
        self._episodes = episodes
        self._lock = threading.Lock()
        self._bar = EpisodeBar(episodes, done=len(self.log.entries), is_shown=progress)

    def begin(self, run: CollectionRun) -> None:
        self.manifest.runs.append(run)
        self.manifest.episodes = self._episodes
        self.manifest.sha256 = None
        with _writing(self._directory):
            self.manifest.write(self._directory)

    def add(self, episode: Episode, details: EpisodeDetails) -> None:
        with _writing(self._directory):
            # First, so that a reader of the episode finds them.
            self._details.append(details)
            self.log.append(episode.index, *encode_episode(episode))
        self._bar.advance()

    def note_fault(self, index: int, reason: str) -> None:
        entry = {"episode": index, "reason": reason, "at": datetime.now(UTC).isoformat(timespec="seconds")}
        with self._lock:
            with _writing(self._directory), (self._directory / FAULTS_FILE).open("ab") as file:
                file.write(msgspec.json.encode(entry) + b"\n")
            self._bar.count_fault()

    def finish(self) -> Dataset:
        with _writing(self._directory):
            self.log.sort()
            sha256 = dataset_hash(self.log.entries)
            if self.manifest.sha256 != sha256:
                self.manifest.sha256 = sha256
                self.manifest.write(self._directory)
            dataset = Dataset(self._directory)
            write_card(dataset, self._directory)
        return dataset

    def __enter__(self) -> Self:
        self._bar.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._bar.__exit__(kind, error, trace)
        self.log.close()
        self._details.close()


def _manifest(directory: Path, arguments: Arguments, episodes: int) -> Manifest:
    """Return the manifest of a directory, writing a new one if there is none, or no episode yet.

    Raises:
        DatasetError: If the directory contains a different dataset, more episodes, or episodes without a manifest.
    """
    manifest = Manifest.read(directory)
    if manifest is None:
        if (directory / EPISODES_FILE).exists():
            message = f"{directory} has episodes but no manifest: choose another directory"
            raise DatasetError(message)
        manifest = Manifest(arguments=arguments, episodes=episodes)
        manifest.write(directory)
        return manifest
    if not has_episodes(directory / EPISODES_FILE):
        # The first call failed, perhaps because of its arguments: they may be corrected.
        manifest = Manifest(arguments=arguments, episodes=episodes)
        manifest.write(directory)
        return manifest
    differs = difference(manifest.arguments, arguments)
    if differs is not None:
        message = f"{directory} has a dataset with different arguments: {differs}. Choose another directory"
        raise DatasetError(message)
    if episodes < manifest.episodes:
        message = f"{directory} has a dataset of {manifest.episodes} episodes, got episodes={episodes}: pass at least as many"
        raise DatasetError(message)
    return manifest


@contextlib.contextmanager
def _writing(directory: Path) -> Iterator[None]:
    """Report what prevents a block from writing a dataset.

    Raises:
        DatasetError: If the disk is full, for example.
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        message = f"Cannot write {directory}: {reason}. Complete episodes are kept, and the same call continues after them"
        raise DatasetError(message) from error


@contextlib.contextmanager
def _writer_lock(directory: Path) -> Iterator[None]:
    """Hold an exclusive lock on a directory.

    Raises:
        DatasetError: If another process holds the lock.
    """
    with (directory / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            message = f"Another process collects into {directory}: wait for it, or choose another directory"
            raise DatasetError(message) from None
        yield


def _reset_options(options: Mapping[str, Any] | None) -> dict[str, Any]:
    try:
        plain(dict(options or {}))
    except (TypeError, ValueError) as error:
        message = f"Expected reset_options= to be data, which can be recorded: {error}"
        raise ConfigurationError(message) from error
    return dict(options or {})


def _hash_of(options: Mapping[str, Any]) -> str:
    return hashlib.sha256(msgspec.msgpack.encode(plain(dict(options)), order="deterministic")).hexdigest()
