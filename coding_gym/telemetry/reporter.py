"""``SessionReporter``: an environment's reports to the observers of the process."""

from __future__ import annotations

import contextlib
from typing import Any

from coding_gym.telemetry.observer import Group, Identity, Observer, SessionObserver, StepResult, observation
from coding_gym_server.protocol import Pixels
from coding_gym_server.protocol.backends import JUPYTER_PREFIX, canonical_backend, language_of_programs

__all__ = ["SessionReporter"]

_LANGUAGES = {"deno": "typescript", "python3": "python"}
"""Languages of kernels that are called differently."""


class SessionReporter:
    """Reports what an environment does to the observers of the process.

    Methods never raise.

    Args:
        kind: Id of the environment.
        backend: What executes its actions; None for Python.
        screen: Width and height of its screen; None without one.
    """

    __slots__ = ("_identity", "_told")

    def __init__(self, kind: str, *, backend: str | None = None, screen: tuple[int, int] | None = None) -> None:
        self._identity = Identity(kind, _language_of(backend), screen, None, None)
        self._told: list[tuple[Observer, SessionObserver]] = []

    def place(self, group: Group, index: int) -> None:
        """Make the environment the one with an index in a vector environment."""
        self._identity = self._identity._replace(group=group, position=index)
        # Shown from the beginning, as the others of the group may take long to start.
        self._tell(None)

    def waiting(self) -> None:
        """Report that the environment waits for a sandbox, or for a free slot of one."""
        self._tell("waiting")

    def resetting(self) -> None:
        """Report that an episode has been requested from the sandbox."""
        self._tell("resetting")

    def begun(self, label: str | None, picture: Pixels | str | None) -> None:
        """Report that an episode has begun; see ``SessionObserver``."""
        self._tell("begun", label, picture)

    def running(self, action: str) -> None:
        """Report that an action runs."""
        self._tell("running", action)

    def stepped(self, result: StepResult, picture: Pixels | str | None) -> None:
        """Report that a step has ended.

        Args:
            result: What it returned.
            picture: The screen; None if it is black.
        """
        self._tell("stepped", result, picture)

    def truncated(self) -> None:
        """Report that the episode has ended with the last step, because of a limit of steps."""
        self._tell("truncated")

    def abandoned(self) -> None:
        """Report that a step or reset has ended with an error."""
        self._tell("abandoned")

    def closed(self) -> None:
        """Report that the environment is closed."""
        if self._told:
            self._tell("closed")

    def __del__(self) -> None:
        # An interpreter that shuts down lacks modules.
        with contextlib.suppress(Exception):
            self.closed()

    def _tell(self, event: str | None, *arguments: Any) -> None:
        for observer in observation.observers:
            try:
                session = self._session(observer, may_open=event != "closed")
                if session is not None and event is not None:
                    getattr(session, event)(*arguments)
            except Exception:  # noqa: BLE001 - no error of watching reaches the trainer
                observation.fail(observer)

    def _session(self, observer: Observer, *, may_open: bool) -> SessionObserver | None:
        found = next((session for known, session in self._told if known is observer), None)
        if found is None and may_open:
            found = observer.opened(self._identity)
            # Others have ended: after a fork, the process has its own observers.
            self._told = [entry for entry in self._told if any(entry[0] is other for other in observation.observers)]
            self._told.append((observer, found))
        return found


def _language_of(backend: str | None) -> str:
    name = "python" if backend is None else canonical_backend(backend)
    if name.startswith(JUPYTER_PREFIX):
        kernel = name.removeprefix(JUPYTER_PREFIX)
        return _LANGUAGES.get(kernel, kernel)
    return name if name == "bash" or language_of_programs(name) else "python"
