"""The user that a request to ``files_agent`` is for: relative paths begin in their home directory, and new files are theirs.

The gateway sends it along with that program, so it imports the standard library only.
"""

from __future__ import annotations

import os
import pwd

__all__ = ["FileOwner"]


class FileOwner:
    """A user.

    Args:
        name: Their name; empty for that of the program itself.

    Raises:
        KeyError: If the user does not exist.
    """

    def __init__(self, name: str = "") -> None:
        self.home = os.environ.get("HOME", "/home/user")
        self._ids: tuple[int, int] | None = None
        if name:
            user = pwd.getpwnam(name)
            self.home, self._ids = user.pw_dir, (user.pw_uid, user.pw_gid)

    def make_directories(self, path: str) -> None:
        """Make a directory, and those above it, as far as they do not exist."""
        if os.path.isdir(path):
            return
        self.make_directories(os.path.dirname(path))
        try:
            os.mkdir(path)
        except FileExistsError:
            # Another program may have made it in the meantime.
            if not os.path.isdir(path):
                raise
            return
        if self._ids is not None:
            os.chown(path, *self._ids, follow_symlinks=False)

    def take(self, descriptor: int) -> None:
        """Become the owner of a new file."""
        if self._ids is not None:
            os.fchown(descriptor, *self._ids)
