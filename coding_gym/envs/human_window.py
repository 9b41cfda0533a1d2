"""``HumanWindow``: the window of ``render_mode="human"``."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coding_gym.errors import ConfigurationError

__all__ = ["HUMAN", "HumanWindow", "RenderModes"]

HUMAN = "human"
"""The render mode with a window on this machine, for one environment."""

_SCREENS = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")
_ALTERNATIVE = "or pass render_mode='rgb_array' and show what render() returns"


def _has_screen() -> bool:
    return any(os.environ.get(name) for name in _SCREENS)


class RenderModes(list[str]):
    """The render modes of an environment: those that work on this machine, and ``human``.

    Gymnasium's ``check_env`` makes an environment for each of them, so ``human`` is not among them without a screen. If
    Gymnasium found that it does not exist, it would open a window itself, and fail at the first ``reset``.

    Args:
        others: The render modes besides ``human``.
    """

    def __init__(self, others: Iterable[str]) -> None:
        super().__init__([*([HUMAN] if find_spec("pygame") is not None and _has_screen() else []), *others])

    def __contains__(self, mode: object) -> bool:
        return mode == HUMAN or super().__contains__(mode)


class HumanWindow:
    """A window on this machine that shows frames. Opened by the first frame.

    Args:
        title: Title of the window.

    Raises:
        ConfigurationError: If pygame is not installed, or there is no screen.
    """

    def __init__(self, title: str) -> None:
        if not _has_screen():
            # SDL would draw to memory.
            message = f"render_mode='human' requires a screen on this machine: set DISPLAY, {_ALTERNATIVE}"
            raise ConfigurationError(message)
        try:
            self._pygame: Any = importlib.import_module("pygame")
        except ImportError as error:
            message = f"render_mode='human' requires pygame: pip install 'coding-gym[human]', {_ALTERNATIVE}"
            raise ConfigurationError(message) from error
        try:
            self._pygame.display.init()
        except self._pygame.error as error:
            message = f"render_mode='human' cannot open a window on this machine: {error}. Correct DISPLAY, {_ALTERNATIVE}"
            raise ConfigurationError(message) from error
        self._title = title
        self._surface: Any = None

    def show(self, frame: NDArray[np.uint8]) -> None:
        """Show a frame: uint8, shape (height, width, 3)."""
        size = frame.shape[1::-1]
        if self._surface is None or self._surface.get_size() != size:
            self._surface = self._pygame.display.set_mode(size)
            self._pygame.display.set_caption(self._title)
        self._pygame.surfarray.blit_array(self._surface, frame.swapaxes(0, 1))
        # The events are not handled, but a window that never reads them counts as hanging.
        self._pygame.event.pump()
        self._pygame.display.flip()

    def close(self) -> None:
        """Close the window. Idempotent."""
        self._pygame.display.quit()
