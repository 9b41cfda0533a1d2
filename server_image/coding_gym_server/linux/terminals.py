"""Pseudoterminals (see pty(7))."""

from __future__ import annotations

import fcntl
import os
import struct
import termios

__all__ = ["open_terminal", "set_size"]

_WINDOW_SIZE = struct.Struct("4H")


def open_terminal(rows: int, columns: int) -> tuple[int, int]:
    """Open a pseudoterminal of the calling process's user; return the end that controls it and the end for programs.

    Raises:
        OSError: If there are too many, or the process may not open one.
    """
    controller, terminal = os.openpty()
    set_size(controller, rows, columns)
    return controller, terminal


def set_size(terminal: int, rows: int, columns: int) -> None:
    """Change the size of a terminal, given by either end, and tell its programs by a signal.

    Raises:
        OSError: If the terminal does not exist any more.
    """
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, _WINDOW_SIZE.pack(rows, columns, 0, 0))
