"""Directories of a session as its programs see them, and the environment variables that name them."""

from __future__ import annotations

import os

import msgspec

from coding_gym_server.workspace import directory as workspace

__all__ = ["MATPLOTLIB_BACKEND", "MOUNTABLE", "MOUNTED", "PRIVATE", "Layout", "directories_of_image"]

MATPLOTLIB_BACKEND = "TkAgg"
"""Matplotlib's backend for programs of a session with a screen."""


class Layout(msgspec.Struct, kw_only=True, frozen=True):
    """Paths of a session's directories, as its programs see them.

    Attributes:
        work: The working directory.
        home: The home directory.
        temporary: The directory for temporary files.
        authority: The X authority file of the screen.
        others: Other directories of the session, such as ``/mnt``.
        environment: All environment variables of programs; None for those of the sandbox and those that name directories.
    """

    work: str
    home: str
    temporary: str
    authority: str
    others: tuple[str, ...] = ()
    environment: dict[str, str] | None = None

    @classmethod
    def below(cls, directory: str) -> Layout:
        """Return the layout of directories that have no namespaces to be at the same paths in."""
        work, temporary = f"{directory}/{workspace.WORK}", f"{directory}/{workspace.TEMPORARY}"
        return cls(work=work, home=work, temporary=temporary, authority=f"{temporary}/.Xauthority")

    def at(self, directory: str | None) -> Layout:
        """Return the layout with another working directory, or unchanged if it is None."""
        return self if directory is None else msgspec.structs.replace(self, work=directory)

    def writable(self) -> tuple[str, ...]:
        """Return the directories whose files are those of the session."""
        shared_memory = {"/dev/shm"} if self.temporary == PRIVATE.temporary else set()
        return tuple({self.work, self.home, self.temporary, *self.others} | shared_memory)

    def directories(self) -> dict[str, str]:
        """Return the environment variables that name the directories."""
        return {"HOME": self.home, "TMPDIR": self.temporary, "PWD": self.work}

    def variables(self) -> dict[str, str]:
        """Return the environment variables of user code."""
        if self.environment is not None:
            return dict(self.environment)
        # Matplotlib warns about a directory that it may not write.
        return {**self.directories(), "MPLCONFIGDIR": f"{self.temporary}/.matplotlib"}

    def screen_variables(self, display: str) -> dict[str, str]:
        """Return the environment variables by which programs find the screen.

        Args:
            display: Name of the display.
        """
        return {"DISPLAY": display, "XAUTHORITY": self.authority}

    def program_variables(self, display: str | None) -> dict[str, str]:
        """Return the environment variables of a program that runs beside the worker.

        Args:
            display: Name of the display, or None without a screen.
        """
        if display is None:
            return self.variables()
        return {**self.variables(), **self.screen_variables(display), "MPLBACKEND": MATPLOTLIB_BACKEND}


PRIVATE = Layout(work="/home/user", home="/home/user", temporary="/tmp", authority="/tmp/.Xauthority")
"""Layout of a session: the same paths in every one."""

MOUNTED = {
    workspace.WORK: (PRIVATE.work, 0o700),
    workspace.TEMPORARY: (PRIVATE.temporary, 0o1777),
    "shm": ("/dev/shm", 0o1777),
}
"""Directories that every session has, by name, each with the path where the session sees it and its mode."""

_FOR_DATA = {"mnt": ("/mnt", 0o1777), "data": ("/data", 0o1777)}
"""Directories in which programs expect or put data, likewise."""

MOUNTABLE = MOUNTED | _FOR_DATA
"""All directories that a session with mounts of its own can have, likewise."""


def directories_of_image() -> dict[str, tuple[str, int]]:
    """Return the part of ``MOUNTABLE`` that sessions have: of the directories for data, those that are there, and empty."""
    return MOUNTED | {name: (path, mode) for name, (path, mode) in _FOR_DATA.items() if _is_empty(path)}


def _is_empty(path: str) -> bool:
    try:
        return not os.path.islink(path) and not os.listdir(path)
    except OSError:
        return False
