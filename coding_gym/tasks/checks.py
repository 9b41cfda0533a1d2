"""Checks of tasks: which mode a task permits, found out once by grading its reference, and kept across runs."""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

import msgspec

import coding_gym_server
from coding_gym.cache import cache_directory
from coding_gym.sandbox.config import SandboxConfig
from coding_gym.tasks.repository.tests import RepositoryTests
from coding_gym.tasks.screen.tests import ScreenTests
from coding_gym.tasks.task import Task
from coding_gym_server.protocol.errors import DECODING_ERRORS
from coding_gym_server.protocol.grading import GradingMode, TaskCheck

__all__ = ["check_of", "is_checkable", "record_mode", "recorded_mode"]

_log = logging.getLogger(__name__)

_encoder = msgspec.msgpack.Encoder(order="deterministic")
_decoder = msgspec.json.Decoder(TaskCheck)

_known: dict[str, TaskCheck] = {}
_locks: weakref.WeakValueDictionary[str, threading.Lock] = weakref.WeakValueDictionary()
_lock = threading.Lock()


def is_checkable(task: Task) -> bool:
    """Return whether grading the reference of a task tells how its submissions are graded."""
    return task.reference is not None and task.grading is None and not isinstance(task.tests, ScreenTests | RepositoryTests)


def check_of(task: Task, config: SandboxConfig, check: Callable[[], TaskCheck]) -> TaskCheck:
    """Return the result of the check of a task, of which threads perform one at a time.

    It is read from the directory ``tasks`` of the cache, ``~/.cache/coding_gym``, if this or an earlier process has performed
    the check of a task with the same content in the same kind of sandbox.

    Args:
        task: The task, which has a reference.
        config: Configuration of the sandbox.
        check: Performs the check.

    Raises:
        Exception: As ``check``.
    """
    key = _key(task, config)
    with _lock:
        lock = _locks.setdefault(key, threading.Lock())
    with lock:
        if key not in _known:
            found = _read(_path(key))
            if found is None:
                found = check()
                _write(_path(key), found)
            if found.broken:
                _log.warning("the reference of task %r fails its tests, so no submission can pass: %s", task.id, found.broken)
            _known[key] = found
        return _known[key]


def recorded_mode(task: Task) -> GradingMode | None:
    """Return the strictest mode in which the reference of a task of a repository is known to pass; None if it is unknown."""
    found = _read(_path(_key_of_repository(task)))
    return None if found is None else found.mode


def record_mode(task: Task, mode: GradingMode) -> None:
    """Keep the strictest mode in which the reference of a task of a repository has passed, for this and later processes."""
    _write(_path(_key_of_repository(task)), TaskCheck(mode=mode))


def _key_of_repository(task: Task) -> str:
    return hashlib.sha256(_encoder.encode((_digest_of_grader(), task.content_digest))).hexdigest()


def _path(key: str) -> Path:
    return cache_directory() / "tasks" / f"{key}.json"


def _key(task: Task, config: SandboxConfig) -> str:
    sandbox = (config.provider, config.image, config.base_url, config.base_urls, config.packages, config.debian_packages)
    return hashlib.sha256(_encoder.encode((_digest_of_grader(), sandbox, task.content_digest, task.limits))).hexdigest()


@functools.cache
def _digest_of_grader() -> bytes:
    """Return what identifies the server's code: another version may find out something else."""
    digest = hashlib.sha256()
    for path in sorted(Path(coding_gym_server.__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.digest()


def _read(path: Path) -> TaskCheck | None:
    try:
        return _decoder.decode(path.read_bytes())
    except (OSError, *DECODING_ERRORS):
        # Not written yet, or by a process that was killed: it is written again.
        return None


def _write(path: Path, check: TaskCheck) -> None:
    temporary = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(msgspec.json.encode(check))
        temporary.replace(path)
    except OSError as error:
        _log.warning("the check of a task is not kept, and will be performed again: %s", error)
