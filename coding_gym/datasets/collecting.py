"""``collect``: episodes of a policy, many at a time, into a directory."""

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

from coding_gym.datasets.card import write_card
from coding_gym.datasets.crew import Crew
from coding_gym.datasets.dataset import EPISODES_FILE, FAULTS_FILE, Dataset, dataset_hash
from coding_gym.datasets.episodes import plan_episode
from coding_gym.datasets.log import EpisodeLog
from coding_gym.datasets.making import EnvMaker, EnvSource, Wrapper
from coding_gym.datasets.manifest import Arguments, Manifest, Run, difference
from coding_gym.datasets.policies import as_policy
from coding_gym.datasets.progress import EpisodeBar
from coding_gym.datasets.records import Episode, encode_episode, plain
from coding_gym.errors import ConfigurationError, DatasetError
from coding_gym.pool import SandboxPool
from coding_gym.settings import check_count

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
    r"""Run episodes, many at a time, and write them to a directory as they end.

    Episode ``i`` depends on ``seed`` and ``i`` alone: not on how many run at a time, nor on the order in which they end. When
    all are there, the file of episodes is the same byte for byte. Whoever was interrupted, by SIGKILL too, calls ``collect``
    with the same arguments again: it goes on with what is missing. More ``episodes`` extend a dataset.

    Args:
        env: An environment's id, or a callable that returns one; it is called for each session.
        policy: A ``Policy``, ``"random"``, a list of actions, or a function of observation, info and a
            ``numpy.random.Generator`` that returns an action, or None to end the episode. It may be a coroutine function, and
            it may block: the other episodes go on. It is called by several threads.
        episodes: How many there are to be.
        seed: Of the dataset.
        path: The directory; it is made if there is none.
        env_options: What an environment with an id is made with: ``{"provider": "local", "screen": None}`` ...
        wrappers: What is put around each environment, the innermost first.
        tasks: Tasks or their ids, such as a ``TaskSuite``: episode ``i`` is reset with ``options={"task_id": ...}`` of task
            ``i % len(tasks)``.
        reset_options: What all episodes are reset with, such as ``{"files": {"data.csv": ...}}``.
        max_steps: Actions after which an episode is truncated.
        sessions: How many episodes to run at a time.
        sandboxes: How many sandboxes to run them in; one for each 16 sessions if None.
        pool: Sandboxes that are there already; as many episodes run at a time as it has places, at most.
        retries: How often an episode is tried again whose sandbox failed; such attempts are not recorded, but counted.
        most_policy_errors: In how many episodes the policy may raise before no others begin. Those are left out, and
            ``PolicyError`` is raised in the end.
        progress: Whether to show a progress bar; if stderr is a terminal if None.

    Returns:
        The dataset, complete.

    Raises:
        ConfigurationError: An argument cannot be.
        PolicyError: The policy raised, or chose what is no action. The other episodes are written.
        DatasetError: The directory has another dataset, or one that somebody else writes; or a sandbox fails time and again.
        ProviderError: There are no sandboxes to be had.

    Example:
        >>> dataset = collect("CodingEnv-v0", ["x = 6", "print(x * 7)"], 100, seed=1, path="runs/a")  # doctest: +SKIP
        >>> dataset[0].steps[2].observation["stdout"]  # doctest: +SKIP
        '42\n'
    """
    for name, value, smallest in (("episodes", episodes, 1), ("max_steps", max_steps, 1), ("sessions", sessions, 1)):
        check_count(name, value, smallest)
    check_count("seed", seed, 0)
    directory, chosen = Path(path), as_policy(policy)
    maker = EnvMaker(env, env_options, wrappers=wrappers, pool=pool)
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
    directory.mkdir(parents=True, exist_ok=True)
    with _only_writer(directory), _Writing(directory, arguments, episodes, progress=progress) as writing:
        missing = writing.missing
        if missing:
            crew_size = maker.most_sessions(min(sessions, len(missing)))
            with maker.open(crew_size, sandboxes=sandboxes) as (make, sandbox):
                writing.begin(Run.starting(had=len(writing.log.entries), sessions=crew_size, sandbox=sandbox))
                crew = Crew(
                    make,
                    chosen,
                    sessions=crew_size,
                    max_steps=max_steps,
                    retries=retries,
                    most_policy_errors=most_policy_errors,
                )
                plans = (plan_episode(seed, index, options=options, tasks=task_ids) for index in missing)
                crew.run(plans, on_episode=writing.add, on_fault=writing.note_fault)
        return writing.finish()


class _Writing:
    """A dataset that is being written."""

    def __init__(self, directory: Path, arguments: Arguments, episodes: int, *, progress: bool | None) -> None:
        self._directory = directory
        self.manifest = _manifest(directory, arguments, episodes)
        self.log = EpisodeLog(directory / EPISODES_FILE)
        self.missing = [index for index in range(episodes) if index not in self.log.entries]
        self._episodes = episodes
        self._lock = threading.Lock()
        self._bar = EpisodeBar(episodes, done=len(self.log.entries), is_shown=progress)

    def begin(self, run: Run) -> None:
        self.manifest.runs.append(run)
        self.manifest.episodes = self._episodes
        self.manifest.sha256 = None
        self.manifest.write(self._directory)

    def add(self, episode: Episode) -> None:
        self.log.append(episode.index, *encode_episode(episode))
        self._bar.advance()

    def note_fault(self, index: int, reason: str) -> None:
        fault = {"episode": index, "reason": reason, "at": datetime.now(UTC).isoformat(timespec="seconds")}
        with self._lock, (self._directory / FAULTS_FILE).open("ab") as file:
            file.write(msgspec.json.encode(fault) + b"\n")
            self._bar.count_fault()

    def finish(self) -> Dataset:
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


def _manifest(directory: Path, arguments: Arguments, episodes: int) -> Manifest:
    """Return the manifest of a directory, or a new one.

    Raises:
        DatasetError: It is that of another dataset.
    """
    manifest = Manifest.read(directory)
    if manifest is None:
        if (directory / EPISODES_FILE).exists():
            message = f"{directory} has episodes but no manifest that says what they are: choose another directory"
            raise DatasetError(message)
        manifest = Manifest(arguments=arguments, episodes=episodes)
        manifest.write(directory)
        return manifest
    differs = difference(manifest.arguments, arguments)
    if differs is not None:
        message = f"{directory} has a dataset that was made with other arguments: {differs}. Choose another directory"
        raise DatasetError(message)
    if episodes < manifest.episodes:
        message = (
            f"{directory} has a dataset of {manifest.episodes} episodes, {episodes} are asked for: ask for as many or more"
        )
        raise DatasetError(message)
    return manifest


@contextlib.contextmanager
def _only_writer(directory: Path) -> Iterator[None]:
    """Keep others from writing to a directory.

    Raises:
        DatasetError: Somebody does.
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
