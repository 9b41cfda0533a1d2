"""The files of a session whose programs are root."""

from __future__ import annotations

import contextlib

from coding_gym_server.workspace.layout import Layout
from coding_gym_server.workspace.session_directory import MountedDirectory

__all__ = ["RootDirectory"]


class RootDirectory(MountedDirectory):
    """File system of a session whose programs are root: they may give its directories to other users.

    Args:
        tree: As for other sessions.
        layout: Directories of programs.
    """

    def __init__(self, tree: int, layout: Layout) -> None:
        super().__init__(tree)
        self._layout = layout

    @property
    def layout(self) -> Layout:
        return self._layout

    def repair(self) -> None:
        # The server has no access to files of users other than root.
        with contextlib.suppress(OSError):
            super().repair()
