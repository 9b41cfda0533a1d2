"""Environment variables of the programs of a session."""

from __future__ import annotations

from pathlib import Path

from coding_gym_server.workspace import directory as workspace

__all__ = ["MATPLOTLIB_BACKEND", "program_environment", "screen_environment", "session_environment", "working_directory"]

MATPLOTLIB_BACKEND = "TkAgg"
"""Matplotlib's backend for programs of a session with a screen."""


def working_directory(directory: Path, shared: str | None) -> str:
    """Return the working directory of a session.

    Args:
        directory: The workspace of the session.
        shared: The working directory that the session shares with others, or None for one in its workspace.
    """
    return shared or str(directory / workspace.WORK)


def session_environment(directory: Path, shared: str | None) -> dict[str, str]:
    """Return the variables that refer to directories of a session.

    Args:
        directory: The workspace of the session.
        shared: The working directory that the session shares with others, or None for one in its workspace.
    """
    return {
        "HOME": shared or str(directory / workspace.HOME),
        "TMPDIR": str(directory / workspace.TEMPORARY),
        "PWD": working_directory(directory, shared),
    }


def screen_environment(directory: Path, display: str) -> dict[str, str]:
    """Return the variables by which programs of a session find its screen.

    Args:
        directory: The workspace of the session.
        display: Name of the display.
    """
    return {"DISPLAY": display, "XAUTHORITY": str(directory / workspace.AUTHORITY)}


def program_environment(directory: Path, shared: str | None, display: str | None) -> dict[str, str]:
    """Return the variables of a program that runs beside the worker of a session.

    Args:
        directory: The workspace of the session.
        shared: The working directory that the session shares with others, or None for one in its workspace.
        display: Name of the display, or None without a screen.
    """
    environment = session_environment(directory, shared)
    if display is not None:
        environment |= {**screen_environment(directory, display), "MPLBACKEND": MATPLOTLIB_BACKEND}
    return environment
