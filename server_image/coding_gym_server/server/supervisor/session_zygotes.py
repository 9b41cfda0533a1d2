"""``SessionZygotes``: the zygotes that session roots are forked from."""

from __future__ import annotations

import logging

from coding_gym_server.server.supervisor.zygote_handle import ForkError, ZygoteHandle

__all__ = ["SessionZygotes"]

_log = logging.getLogger(__name__)


class SessionZygotes:
    """One zygote per backend, so that what one backend imports and patches does not exist in sessions of another.

    IPython, for example, adds functions to ``builtins`` and hooks to matplotlib.

    Args:
        first: Zygote of the server's default backend. The others are started by the first session of their backend.

    Attributes:
        first: The zygote of the server's default backend.
    """

    def __init__(self, first: ZygoteHandle) -> None:
        self.first = first
        self._others: dict[str, ZygoteHandle] = {}

    def of(self, backend: str) -> ZygoteHandle:
        """Return the zygote of a backend.

        Raises:
            ForkError: If it cannot be started.
        """
        if backend == self.first.backend:
            return self.first
        if backend not in self._others:
            try:
                zygote = self.first.start_for(backend)
            except (OSError, EOFError) as error:
                message = f"the zygote of the backend {backend!r} cannot be started: {error}"
                raise ForkError(message) from error
            zygote.attach(on_gone=lambda: self._forget(backend))
            self._others[backend] = zygote
        return self._others[backend]

    def close(self) -> None:
        """End all zygotes."""
        for zygote in (self.first, *self._others.values()):
            zygote.close()

    def _forget(self, backend: str) -> None:
        _log.error("the zygote of the backend %r died too often; the next session of that backend starts another one", backend)
        del self._others[backend]
