"""``SessionReporter``: an environment's reports to the observer of the process."""

from __future__ import annotations

import contextlib

from coding_gym.telemetry.observer import Group, Identity, Observer, SessionObserver, StepResult, observation
from coding_gym_server.protocol import Pixels

__all__ = ["SessionReporter"]

_KERNEL = "jupyter:"
_LANGUAGES = {"deno": "typescript", "python3": "python"}
"""Languages of kernels that are called differently."""


class SessionReporter:
    """Reports what an environment does to the observer of the process.

    Without one, each method returns after a comparison with None. Methods never raise.

    Args:
        kind: Id of the environment.
        backend: What executes its actions; None for Python.
        screen: Width and height of its screen; None without one.
    """

    __slots__ = ("_identity", "_observer", "_session")

    def __init__(self, kind: str, *, backend: str | None = None, screen: tuple[int, int] | None = None) -> None:
        self._identity = Identity(kind, _language_of(backend), screen, None, None)
        self._observer: Observer | None = None
        self._session: SessionObserver | None = None

    def place(self, group: Group, index: int) -> None:
        """Make the environment the one with an index in a vector environment."""
        self._identity = self._identity._replace(group=group, position=index)
        if observation.observer is not None:
            # Shown from the beginning, as the others of the group may take long to start.
            try:
                self._observed()
            except Exception:  # noqa: BLE001 - no error of watching reaches the trainer
                observation.fail()

    def waiting(self) -> None:
        """Report that the environment waits for a sandbox, or for a free slot of one."""
        if observation.observer is not None:
            try:
                self._observed().waiting()
            except Exception:  # noqa: BLE001 - no error of watching reaches the trainer
                observation.fail()

    def resetting(self) -> None:
        """Report that an episode has been requested from the sandbox."""
        if observation.observer is not None:
            try:
                self._observed().resetting()
            except Exception:  # noqa: BLE001 - no error of watching reaches the trainer
                observation.fail()

    def begun(self, label: str | None, picture: Pixels | str | None) -> None:
        """Report that an episode has begun; see ``SessionObserver``."""
        if observation.observer is not None:
            try:
                self._observed().begun(label, picture)
            except Exception:  # noqa: BLE001 - no error of watching reaches the trainer
                observation.fail()

    def running(self, action: str) -> None:
        """Report that an action runs."""
        if observation.observer is not None:
            try:
                self._observed().running(action)
            except Exception:  # noqa: BLE001 - no error of watching reaches the trainer
                observation.fail()

    def stepped(self, result: StepResult, picture: Pixels | str | None) -> None:
        """Report that a step has ended.

        Args:
            result: What it returned.
            picture: The screen; None if it is black.
        """
        if observation.observer is not None:
            try:
                self._observed().stepped(result, picture)
            except Exception:  # noqa: BLE001 - no error of watching reaches the trainer
                observation.fail()

    def truncated(self) -> None:
        """Report that the episode has ended with the last step, because of a limit of steps."""
        if observation.observer is not None:
            try:
                self._observed().truncated()
            except Exception:  # noqa: BLE001 - no error of watching reaches the trainer
                observation.fail()

    def abandoned(self) -> None:
        """Report that a step or reset has ended with an error."""
        if observation.observer is not None:
            try:
                self._observed().abandoned()
            except Exception:  # noqa: BLE001 - no error of watching reaches the trainer
                observation.fail()

    def closed(self) -> None:
        """Report that the environment is closed."""
        if observation.observer is not None and self._session is not None and self._observer is observation.observer:
            try:
                self._session.closed()
            except Exception:  # noqa: BLE001 - no error of watching reaches the trainer
                observation.fail()

    def __del__(self) -> None:
        # An interpreter that shuts down lacks modules.
        with contextlib.suppress(Exception):
            self.closed()

    def _observed(self) -> SessionObserver:
        observer = observation.observer
        # After a fork, the process has an observer of its own.
        if self._session is None or self._observer is not observer:
            assert observer is not None
            self._session, self._observer = observer.opened(self._identity), observer
        return self._session


def _language_of(backend: str | None) -> str:
    if backend is not None and backend.startswith(_KERNEL):
        kernel = backend.removeprefix(_KERNEL)
        return _LANGUAGES.get(kernel, kernel)
    return "bash" if backend == "bash" else "python"
