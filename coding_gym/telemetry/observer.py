"""``Observer``: receives the events of a process's environments."""

from __future__ import annotations

import itertools
import logging
from typing import Any, NamedTuple, Protocol

from coding_gym_server.protocol import Pixels

__all__ = ["Group", "Identity", "Observation", "Observer", "SessionObserver", "StepResult", "observation"]

_log = logging.getLogger("coding_gym")
_group_ids = itertools.count(1)


class Group:
    """The environments of one vector environment.

    Args:
        size: Number of them.

    Attributes:
        id: A number that no other group of the process has.
    """

    def __init__(self, size: int) -> None:
        self.id = next(_group_ids)
        self.size = size


class Identity(NamedTuple):
    """Identity of an environment.

    Attributes:
        kind: Its id, such as ``CodingEnv-v0``.
        language: Language of its actions, for highlighting.
        screen: Width and height of its screen; None without one.
        group: The vector environment that it is part of; None for a single environment.
        position: Its index in the group; None for a single environment.
    """

    kind: str
    language: str
    screen: tuple[int, int] | None
    group: Group | None
    position: int | None


StepResult = tuple[dict[str, Any], float, bool, bool, dict[str, Any]]
"""Result of ``step``."""


class SessionObserver(Protocol):
    """Is told what one environment does, by the thread that uses it. Its methods must return at once."""

    def waiting(self) -> None:
        """The environment waits for a sandbox, or for a free slot of one."""

    def resetting(self) -> None:
        """An episode has been requested from the sandbox."""

    def begun(self, label: str | None, picture: Pixels | str | None) -> None:
        """An episode has begun.

        Args:
            label: Name of the episode, such as the id of its task.
            picture: The screen; None if it is black.
        """

    def running(self, action: str) -> None:
        """An action runs, whose input events are comments at its end."""

    def stepped(self, result: StepResult, picture: Pixels | str | None) -> None:
        """A step has ended.

        Args:
            result: What it returned; its observation must not be kept, as its screenshot is large.
            picture: The screen; None if it is black.
        """

    def truncated(self) -> None:
        """The episode has ended with the last step, because of a limit of steps."""

    def abandoned(self) -> None:
        """A step or reset has ended with an error."""

    def closed(self) -> None:
        """The environment is closed."""


class Observer(Protocol):
    """Is told about the environments of the process."""

    def opened(self, identity: Identity) -> SessionObserver:
        """An environment exists; return what is told about it."""


class Observation:
    """Holds the observers of this process.

    An observer never disturbs what it observes: its first error ends its observation.

    Attributes:
        observers: The observers; empty while nobody watches.
    """

    __slots__ = ("observers",)

    def __init__(self) -> None:
        self.observers: tuple[Observer, ...] = ()

    def begin(self, observer: Observer) -> None:
        """Report to an observer from now on."""
        self.end(observer)
        self.observers += (observer,)

    def end(self, observer: Observer | None) -> None:
        """Report to an observer no more."""
        self.observers = tuple(other for other in self.observers if other is not observer)

    def fail(self, observer: Observer) -> None:
        """End the observation of an observer because of the error that is being handled."""
        self.end(observer)
        _log.warning("Watching has failed, and has been turned off in this process.", exc_info=True)


observation = Observation()
"""The observation of this process."""
