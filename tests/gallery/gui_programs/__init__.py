"""Programs that draw, and the results expected of them.

A scene draws something, and processes the events required for that. A program is a scene followed by an ending; the screenshot
of its step must show the whole scene, whatever the ending does to the windows.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from coding_gym_server.protocol import Outcome, Rectangle

__all__ = ["PROGRAMS", "SCENES", "Program", "Scene"]

_DIRECTORY = Path(__file__).parent / "scenes"


@dataclass(frozen=True, kw_only=True)
class Scene:
    """Code that draws something.

    Attributes:
        name: The name of its file in ``scenes``.
        hold: Code that processes events until the windows are closed, which keeps the scene on the screen.
        colors: The colors of the last strokes, as ``#rrggbb``: a picture without them is incomplete.
        needs: Code that fails if the scene's libraries are missing.
        window_manager: Whether it requires a window manager.
        blinking: Region that blinks, such as a cursor, and is excluded from comparisons.
        moving: Region in which things move without leaving it, so its pixels always have the same colors, in another order.
    """

    name: str
    hold: str
    colors: tuple[str, ...]
    needs: str = "import tkinter"
    window_manager: bool = False
    blinking: Rectangle | None = None
    moving: Rectangle | None = None

    @property
    def code(self) -> str:
        """Source code of the scene."""
        return (_DIRECTORY / f"{self.name}.py").read_text()


@dataclass(frozen=True, kw_only=True)
class Program:
    """A scene and an ending.

    Attributes:
        name: The name of the program.
        scene: The scene that it draws.
        ending: The code after the scene.
        outcome: The expected outcome of the step.
        exit_code: Its expected exit code.
        idle: Its expected ``info["idle"]``.
        step_timeout: The step's wall-clock limit in seconds.
        in_child: Whether the code runs in a child process, for which the worker waits.
    """

    name: str
    scene: Scene
    ending: str = ""
    outcome: Outcome = Outcome.OK
    exit_code: int = 0
    idle: Literal["closed", "animating"] | None = None
    step_timeout: float = 30.0
    in_child: bool = False

    @property
    def code(self) -> str:
        """Source code of the step."""
        source = f"{self.scene.code}\n{self.ending}\n"
        if self.in_child:
            return f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {source!r}], check=True) and None"
        return source


_MAINLOOP = "root.mainloop()"
_QT = "import ctypes, PySide6.QtWidgets; ctypes.CDLL('libxcb-cursor.so.0')"
_MATPLOTLIB = "import matplotlib, tkinter"
_PYGAME_LOOP = "while not pygame.event.get(pygame.QUIT):\n    pygame.time.wait(10)"
_NEXT_EVENTS = "while True:\n    next_event()"
_RED, _GREEN, _BLUE, _YELLOW = "#d62728", "#2ca02c", "#1f77b4", "#ffd700"

_CARD = Scene(name="tk_card", hold=_MAINLOOP, colors=(_RED, _GREEN, _BLUE, _YELLOW))
_WINDOWS = Scene(name="tk_windows", hold=_MAINLOOP, colors=(_RED, _GREEN, _BLUE, _YELLOW))
_ENTRY = Scene(name="tk_entry", hold=_MAINLOOP, colors=("#4a6984",), blinking=Rectangle(130, 40, 180, 30))
_DIALOG = Scene(
    name="tk_dialog", hold="messagebox.showinfo('Saved', 'All is well', parent=root)", colors=(_BLUE, _YELLOW, "#000000")
)
_UNICODE = Scene(name="tk_unicode", hold=_MAINLOOP, colors=(_RED,))
_FULLSCREEN = Scene(name="tk_fullscreen", hold=_MAINLOOP, colors=(_BLUE, _YELLOW), window_manager=True)
_TK_BALL = Scene(name="tk_ball", hold=_MAINLOOP, colors=(_RED, _GREEN), moving=Rectangle(20, 120, 400, 40))
_TURTLE = Scene(name="turtle_star", hold="turtle.done()", colors=(_RED, _YELLOW))
_QT_FORM = Scene(name="qt_form", hold="app.exec()", colors=(_YELLOW,), needs=_QT)
_PLOT = Scene(name="mpl_line", hold="plt.show()", colors=(_RED, _YELLOW), needs=_MATPLOTLIB)
_PLOTS = Scene(name="mpl_grid", hold="plt.show()", colors=(_BLUE, _YELLOW), needs=_MATPLOTLIB)
_SHAPES = Scene(name="pygame_shapes", hold=_PYGAME_LOOP, colors=(_RED, _BLUE, _YELLOW), needs="import pygame")
_PYGAME_BALL = Scene(
    name="pygame_ball", hold=_PYGAME_LOOP, colors=(_RED, _GREEN), needs="import pygame", moving=Rectangle(120, 240, 400, 40)
)
_BARE = Scene(name="xcb_window", hold=_NEXT_EVENTS, colors=(_RED, _GREEN, _BLUE), needs="import xcffib")

SCENES = (
    _CARD,
    _WINDOWS,
    _ENTRY,
    _DIALOG,
    _UNICODE,
    _FULLSCREEN,
    _TK_BALL,
    _TURTLE,
    _QT_FORM,
    _PLOT,
    _PLOTS,
    _SHAPES,
    _PYGAME_BALL,
    _BARE,
)
"""All scenes."""

PROGRAMS = (
    Program(name="tk-destroyed-at-once", scene=_CARD, ending="root.destroy()"),
    Program(name="tk-destroyed-after-5-ms", scene=_CARD, ending="import time; time.sleep(0.005); root.destroy()"),
    Program(name="tk-left-open", scene=_CARD),
    Program(name="tk-mainloop", scene=_CARD, ending=_MAINLOOP, idle="closed"),
    Program(name="tk-exception", scene=_CARD, ending="raise ValueError('midway')", outcome=Outcome.ERROR, exit_code=1),
    Program(name="tk-exit", scene=_CARD, ending="import os; os._exit(3)", outcome=Outcome.KILLED, exit_code=3),
    Program(name="tk-killed", scene=_CARD, ending="import os; os.kill(os.getpid(), 9)", outcome=Outcome.KILLED, exit_code=137),
    Program(
        name="tk-segfault", scene=_CARD, ending="import ctypes; ctypes.string_at(0)", outcome=Outcome.KILLED, exit_code=139
    ),
    Program(
        name="tk-computing-until-the-deadline",
        scene=_CARD,
        ending="while True: pass",
        outcome=Outcome.TIMEOUT,
        exit_code=124,
        step_timeout=3,
    ),
    Program(
        name="tk-animation",
        scene=_TK_BALL,
        ending="roll(); root.mainloop()",
        idle="animating",
        step_timeout=4,
    ),
    Program(name="tk-several-windows", scene=_WINDOWS, ending=_MAINLOOP, idle="closed"),
    Program(name="tk-blinking-cursor", scene=_ENTRY, ending=_MAINLOOP, idle="closed"),
    Program(name="tk-dialog", scene=_DIALOG, ending=_DIALOG.hold, idle="closed"),
    Program(name="tk-unicode", scene=_UNICODE, ending="root.destroy()"),
    Program(name="tk-fullscreen", scene=_FULLSCREEN, ending="root.destroy()"),
    Program(name="turtle-done", scene=_TURTLE, ending="turtle.done()", idle="closed"),
    Program(name="turtle-bye", scene=_TURTLE, ending="turtle.bye()"),
    Program(name="qt-exec", scene=_QT_FORM, ending="app.exec()", idle="closed"),
    Program(
        name="qt-process-events",
        scene=_QT_FORM,
        ending="from PySide6.QtTest import QTest; QTest.qWaitForWindowExposed(form); app.processEvents(); form.close()",
    ),
    Program(name="matplotlib-show", scene=_PLOT, ending="plt.show()", idle="closed"),
    Program(name="matplotlib-nine-plots", scene=_PLOTS, ending="plt.show()", idle="closed"),
    Program(name="matplotlib-pause-and-close", scene=_PLOT, ending="plt.show(block=False); plt.pause(0.5); plt.close()"),
    Program(name="pygame-loop", scene=_SHAPES, ending=_PYGAME_LOOP, idle="closed"),
    Program(name="pygame-quit", scene=_SHAPES, ending="pygame.quit()"),
    Program(
        name="pygame-animation",
        scene=_PYGAME_BALL,
        ending="left = 0\nwhile True:\n    pygame.event.pump(); left = (left + 4) % 360; show(left); clock.tick(60)",
        idle="animating",
        outcome=Outcome.ERROR,
        exit_code=130,
        step_timeout=6,
    ),
    Program(name="xcb-closed", scene=_BARE, ending="connection.disconnect()"),
    Program(name="xcb-deaf-to-closing", scene=_BARE, ending=_NEXT_EVENTS, idle="closed", outcome=Outcome.ERROR, exit_code=130),
    Program(name="child-mainloop", scene=_CARD, ending=_MAINLOOP, in_child=True, idle="closed"),
    Program(name="child-destroyed-at-once", scene=_CARD, ending="root.destroy()", in_child=True),
)
"""All programs."""
