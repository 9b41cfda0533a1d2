"""Runs programs that draw, and compares their screenshots with reference pictures of undisturbed programs."""

from __future__ import annotations

import base64
import io
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageColor

from coding_gym.envs.coding_env import CodingEnv
from coding_gym.errors import ConfigurationError
from coding_gym.sandbox.pool import SandboxPool
from coding_gym_server.protocol import Outcome, Rectangle

from .gui_programs import Program, Scene

__all__ = ["SIZE", "Gallery", "Picture", "difference"]

SIZE = (640, 480)
"""Width and height of the screen."""

_REFERENCE_WITHIN = 30.0
_LOOK_AGAIN_AFTER = 0.1
_MAX_OUTPUT_CHARS = 4_000_000

# Takes the picture through the X server, as any program can, independently of the sandbox's own capture. It is complete if it
# has all colors and equals the previous picture: the interval between the two is longer than any drawing takes.
_WATCH = """
def _watch():
    import base64, io, os, time
    from PIL import ImageGrab

    before = None
    while True:
        time.sleep(0.5)
        now = ImageGrab.grab(xdisplay=os.environ["DISPLAY"]).convert("RGB")
        found = {{color for _, color in now.getcolors(1 << 24)}}
        if found >= {colors!r} and before and now.tobytes() == before.tobytes():
            break
        before = now
    file = io.BytesIO()
    now.save(file, "PNG")
    print("<" + base64.b64encode(file.getvalue()).decode() + ">", flush=True)

import threading
threading.Thread(target=_watch, daemon=True).start()
"""


@dataclass(frozen=True)
class Picture:
    """Result of a program.

    Attributes:
        program: The program.
        pixels: The screenshot of its step; uint8, shape (height, width, 3).
        fault: Description of a wrong screenshot or outcome; None if both are correct.
        seconds: Duration of the step.
    """

    program: Program
    pixels: NDArray[np.uint8]
    fault: str | None
    seconds: float


class Gallery:
    """Context manager that runs programs in the sessions of one sandbox. Its methods are thread-safe.

    Args:
        provider: ``docker``, ``local`` or ``auto``.
        sessions: Maximum number of concurrent programs.

    Raises:
        ProviderError: If no sandbox is available.
    """

    def __init__(self, provider: str, *, sessions: int = 4) -> None:
        self._pool = SandboxPool(provider=provider, sessions=sessions, idle_timeout=600)
        self._lock = threading.Lock()
        self._references: dict[str, NDArray[np.uint8]] = {}
        self._missing: dict[tuple[str, bool], str | None] = {}

    def __enter__(self) -> Gallery:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.close()

    def missing(self, scene: Scene) -> str | None:
        """Return what the sandbox lacks for a scene; None if nothing."""
        needs = scene.needs, scene.window_manager
        if needs not in self._missing:
            self._missing[needs] = self._find_missing(*needs)
        return self._missing[needs]

    def _find_missing(self, code: str, window_manager: bool) -> str | None:
        try:
            with self._env(window_manager=window_manager) as env:
                observation, *_ = env.step(code)
        except ConfigurationError as error:
            return str(error)
        return observation["stderr"].strip().rpartition("\n")[2] if observation["exit_code"] else None

    def reference(self, scene: Scene) -> NDArray[np.uint8]:
        """Return the picture of a scene that is left on the screen, taken from the X server.

        Raises:
            RuntimeError: The scene does not show all of its colors within 30 s.
        """
        with self._lock:
            known = self._references.get(scene.name)
        if known is None:
            known = self._hold(scene)
            with self._lock:
                self._references[scene.name] = known
        return known

    def run(self, program: Program) -> Picture:
        """Run a program in a new episode, and check its screenshot and outcome."""
        reference = self.reference(program.scene)
        with self._env(window_manager=program.scene.window_manager, step_timeout=program.step_timeout) as env:
            start = time.perf_counter()
            observation, _, _, _, info = env.step(program.code)
            seconds = time.perf_counter() - start
        expected = f"{program.outcome}, exit code {program.exit_code}, idle {program.idle}"
        found = f"{info['outcome']}, exit code {observation['exit_code']}, idle {info.get('idle')}"
        fault = difference(observation["screenshot"], reference, program.scene)
        if fault is None and found != expected:
            fault = f"expected {expected}; found {found}: {observation['stderr'].strip().rpartition(chr(10))[2]}"
        return Picture(program, observation["screenshot"], fault, seconds)

    def _hold(self, scene: Scene) -> NDArray[np.uint8]:
        options = {"window_manager": scene.window_manager, "on_idle": "return", "max_output_chars": _MAX_OUTPUT_CHARS}
        with self._env(**options) as env:
            watch = _WATCH.format(colors={ImageColor.getrgb(color) for color in scene.colors})
            observation, _, _, _, info = env.step(f"{watch}\n{scene.code}\n{scene.hold}")
            output = observation["stdout"]
            deadline = time.monotonic() + _REFERENCE_WITHIN
            while ">" not in output and time.monotonic() < deadline and info["outcome"] == Outcome.RUNNING:
                time.sleep(_LOOK_AGAIN_AFTER)
                observation, _, _, _, info = env.step("")
                output += observation["stdout"]
        if ">" not in output:
            message = f"{scene.name} did not show all of {', '.join(scene.colors)}: {info}, {observation['stderr'][-2000:]}"
            raise RuntimeError(message)
        png = base64.b64decode(output[output.index("<") + 1 : output.index(">")])
        return np.array(Image.open(io.BytesIO(png)).convert("RGB"))

    @contextmanager
    def _env(self, **options: Any) -> Iterator[CodingEnv]:
        with closing(CodingEnv(pool=self._pool, screen=SIZE, **options)) as env:
            env.reset(seed=0)
            yield env


def difference(picture: NDArray[np.uint8], reference: NDArray[np.uint8], scene: Scene) -> str | None:
    """Describe how a picture differs from the reference picture of its scene; None if it does not."""
    if picture.shape != reference.shape:
        return f"the shape is {picture.shape}, not {reference.shape}"
    if not picture.any():
        return "it is black"
    differs = (picture != reference).any(axis=2)
    if scene.blinking is not None:
        differs[_area(scene.blinking)] = False
    if scene.moving is not None:
        area = _area(scene.moving)
        differs[area] = False
        if not np.array_equal(_sorted_colors(picture[area]), _sorted_colors(reference[area])):
            return "what moves is not whole"
    if not differs.any():
        return None
    rows, columns = np.nonzero(differs)
    return f"{len(rows)} pixels differ, from {columns.min()}, {rows.min()} to {columns.max()}, {rows.max()}"


def _area(part: Rectangle) -> tuple[slice, slice]:
    return slice(part.y, part.y + part.height), slice(part.x, part.x + part.width)


def _sorted_colors(pixels: NDArray[np.uint8]) -> NDArray[np.uint32]:
    return np.sort((pixels.astype(np.uint32) @ np.array([65536, 256, 1], np.uint32)).ravel())
