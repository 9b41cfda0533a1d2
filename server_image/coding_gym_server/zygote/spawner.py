"""Start of a session's spawner, in a process that was forked from the session root."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import coding_gym_server
from coding_gym_server.isolation.namespaces import COVERED
from coding_gym_server.isolation.profile import IsolationProfile
from coding_gym_server.workspace.image_programs import ImagePrograms

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
        programs: How programs run if they are those of another image, else None.
    """

    def __init__(
        self, requests: int, *, profile: IsolationProfile, prepared: int | None, programs: ImagePrograms | None = None
    ) -> None:
        self._requests = requests
        self._profile = profile
        self._prepared = prepared
        account = None if programs is None else programs.account
        self._user = () if account is None else (account.user, account.group, *account.groups)

    def run(self) -> None:
        """Execute the spawner."""
        try:
            # Each program enters its own signal scope, but for root's, which may signal others; the filters are inherited.
            scope = None if self._profile.is_root else self._prepared
            self._profile.apply_to_worker(self._prepared if scope is None else None)
            for descriptor in (self._requests, scope):
                if descriptor is not None:
                    os.set_inheritable(descriptor, True)
            ruleset = "" if scope is None else str(scope)
            os.execv(_COMMAND[0], [*_COMMAND, str(self._requests), ruleset, *map(str, self._user)])
        except OSError as error:
            os.write(2, f"cannot start a spawner: {error}\n".encode())
        finally:
            os._exit(1)
