"""``watch``: begins to publish the environments of the process; continues in its forks."""

from __future__ import annotations

import atexit
import contextlib
import logging
import multiprocessing
import multiprocessing.util
import os
import sys
import threading
from pathlib import Path

from coding_gym.errors import ConfigurationError
from coding_gym.plugins import printable
from coding_gym.telemetry import Identity, observation
from coding_gym_studio.watching.publisher import Publisher
from coding_gym_studio.watching.session import WatchedSession
from coding_gym_studio.watching.table import SessionTable

__all__ = ["VARIABLE", "watch", "watch_if_asked"]

_log = logging.getLogger("coding_gym")

VARIABLE = "CODING_GYM_WATCH"
"""Environment variable that lets the environments of a process be watched: 1, or the name of the trainer."""

_ROOT_VARIABLE = "CODING_GYM_WATCH_ROOT"
"""Environment variable with the id of the trainer's first process, for its workers."""

_OFF = ("", "0", "false", "no", "off")
_ON = ("1", "true", "yes", "on")
_LONGEST_NAME = 80


def watch(name: str | None = None) -> None:
    """Let ``coding-gym watch`` show the environments and pools of this process, and of processes that are forked from it.

    They are published on a socket that only this user can access; nothing is sent before somebody watches. Environments that
    exist already appear with their next step or reset. Without a change of code, ``CODING_GYM_WATCH=1`` does the same, also in
    workers that are spawned, not forked.

    A further call changes the name. If the socket cannot be created, or watching fails later, a warning is logged to
    ``coding_gym``, and nothing else happens; a further call tries again.

    Args:
        name: Name of the trainer, at most 80 printable characters; that of its program if None.

    Raises:
        ConfigurationError: If the name is invalid.

    Example:
        >>> coding_gym_studio.watch("ppo, seed 3")  # doctest: +SKIP
    """
    found: object = name
    is_valid = found is None or (isinstance(found, str) and 0 < len(found) <= _LONGEST_NAME and found.isprintable())
    if not is_valid:
        message = f"Expected name= to be 1 to {_LONGEST_NAME} printable characters, or None, got {name!r:.200}"
        raise ConfigurationError(message)
    _process.begin(name, at_once=True)


def watch_if_asked() -> None:
    """Do what ``CODING_GYM_WATCH`` asks for: publish from the first environment of the process on."""
    value = os.environ.get(VARIABLE, "").strip()
    if value.lower() in _OFF:
        return
    name = "".join(filter(str.isprintable, value))[:_LONGEST_NAME]
    _process.begin(None if value.lower() in _ON else name, at_once=False)


class _Table(SessionTable):
    """Begins to publish with the first session.

    Args:
        process: The process.
    """

    def __init__(self, process: _Process) -> None:
        super().__init__()
        self._process = process

    def opened(self, identity: Identity) -> WatchedSession:
        self._process.publish()
        return super().opened(identity)


class _Process:
    """What is published of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._table: _Table | None = None
        self._publisher: Publisher | None = None
        self._name: str | None = None
        self._root = 0
        self._is_registered = False

    def begin(self, name: str | None, *, at_once: bool) -> None:
        """Observe the environments of the process; publish at once, or from the first one on."""
        self._name = name or self._name
        if self._table is None:
            self._root = _parent_root() or os.getpid()
            # For processes that are started instead of forked.
            os.environ[_ROOT_VARIABLE] = str(self._root)
            self._table = _Table(self)
        observation.begin(self._table)
        if self._publisher is not None:
            self._publisher.name = self._name or self._publisher.name
        if not self._is_registered:
            self._is_registered = True
            atexit.register(self._end)
            os.register_at_fork(after_in_child=self._after_fork)
        if at_once:
            self.publish()

    def publish(self) -> None:
        """Begin to publish, unless that has been done."""
        with self._lock:
            if self._table is None or (self._publisher is not None and not self._publisher.is_closed):
                return
            name = self._name or _program()
            self._publisher = Publisher(self._table, name=name, root=self._root)
            if multiprocessing.parent_process() is not None:
                # Such a process leaves by os._exit, without atexit. What its parent registered has been cleared since the fork.
                multiprocessing.util.Finalize(None, self._end, exitpriority=0)
            try:
                self._publisher.start()
            except Exception as error:  # noqa: BLE001 - no error of watching reaches the trainer
                observation.end(self._table)
                with contextlib.suppress(Exception):
                    self._publisher.close()
                # A further call tries again, with environments that appear anew.
                self._publisher = self._table = None
                _log.warning("this process cannot be watched: %s", error)

    def _end(self) -> None:
        observation.end(self._table)
        # No environment of another thread begins to publish again.
        self._table = None
        if self._publisher is not None:
            with contextlib.suppress(Exception):
                self._publisher.close()

    def _after_fork(self) -> None:
        """Publish nothing of the parent; an environment of the child begins anew."""
        # Another thread may have held it.
        self._lock = threading.Lock()
        publisher, self._publisher = self._publisher, None
        if publisher is not None:
            with contextlib.suppress(Exception):
                publisher.forget()
        if self._table in observation.observers:
            observation.end(self._table)
            self._table = _Table(self)
            observation.begin(self._table)


def _program() -> str:
    """Return the name of the program."""
    return printable(Path(next(iter(sys.argv), "")).name)[:_LONGEST_NAME] or "python"


def _parent_root() -> int | None:
    """Return the first process of the trainer that this one is a worker of; None if it is none."""
    text = os.environ.get(_ROOT_VARIABLE, "")
    return int(text) if text.isascii() and text.isdecimal() else None


_process = _Process()
