"""Start of a session's spawner, in a process that was forked from the session root."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import coding_gym_server
from coding_gym_server.isolation.namespaces import COVERED
from coding_gym_server.isolation.profile import IsolationProfile

__all__ = ["Spawner"]


def _beyond_links(path: str) -> str:
    """Return a path by which user code cannot redirect its own session to other files."""
    real = os.path.realpath(path)
    return covered if os.path.exists(covered := f"{COVERED}{real}") else real


# Without the packages of site-packages.
_COMMAND = [
    _beyond_links(sys.executable),
    *("-I", "-S", "-c"),
    "import sys; sys.path.append(sys.argv[1]); from coding_gym_server.spawner.main import main; main(*sys.argv[2:])",
    _beyond_links(str(Path(coding_gym_server.__file__).parents[1])),
]


class Spawner:
    """Replaces a process that was forked from a session root by the session's spawner.

    Args:
        requests: Socket of the server's requests.
        profile: The isolation profile of the session.
        prepared: The Landlock ruleset from ``IsolationProfile.prepare_workers``, or None.
    """

    def __init__(self, requests: int, *, profile: IsolationProfile, prepared: int | None) -> None:
        self._requests = requests
        self._profile = profile
        self._prepared = prepared

    def run(self) -> None:
        """Execute the spawner."""
        try:
            # Each program enters its own signal scope, but for root's, which may signal others; the filters are inherited.
            scope = None if self._profile.is_root else self._prepared
            self._profile.apply_to_worker(self._prepared if scope is None else None)
            inherited = [self._requests, *([] if scope is None else [scope])]
            for descriptor in inherited:
                os.set_inheritable(descriptor, True)
            os.execv(_COMMAND[0], [*_COMMAND, *map(str, inherited)])
        except OSError as error:
            os.write(2, f"cannot start a spawner: {error}\n".encode())
        finally:
            os._exit(1)
