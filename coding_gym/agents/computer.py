"""Computer use: the actions of OpenAI's and Anthropic's models on the screen of an environment.

The actions are those of the types of both SDKs: ``openai.types.responses.ComputerAction`` (openai 3.57); the tool
``computer_20251124`` and the toolset ``computer_toolset_20260801``, whose actions are tools of their own (anthropic 2.15).
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from coding_gym import inputs
from coding_gym._html import png
from coding_gym.envs.coding_env import CodingEnv
from coding_gym.envs.episode import StepResult
from coding_gym.envs.gui_env import CodingEnvGUI
from coding_gym.errors import ConfigurationError, InvalidActionError
from coding_gym.inputs import InputEvent
from coding_gym_server.protocol import Button

__all__ = ["Computer"]

_PIXELS_PER_CLICK = 100
"""Number of pixels by which a click of the wheel scrolls, for the ``scroll_x`` and ``scroll_y`` of OpenAI's actions."""

_DRAG_PAUSE = 0.05
_MAX_CLICKS = 100
_MAX_TEXT = 10_000
_MAX_WAIT = 60
_WAIT_SECONDS = 2.0
"""Seconds that OpenAI's action ``wait`` waits."""

_OPENAI_BUTTONS: dict[str, Button] = {"left": "left", "right": "right", "wheel": "middle", "middle": "middle"}
_HISTORY_KEYS = {"back": "alt+Left", "forward": "alt+Right"}
_CLICKS: dict[str, tuple[Button, int]] = {
    "left_click": ("left", 1),
    "right_click": ("right", 1),
    "middle_click": ("middle", 1),
    "double_click": ("left", 2),
    "triple_click": ("left", 3),
}
_DIRECTIONS = {"up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0)}
_TOOL = "computer"
_CORNERS = 4


class Computer:
    """The screen of an environment, as a computer that models operate by the tools of their vendors.

    Each call of the model is one step of the environment, without code; its result is in ``last``. What a model does wrong,
    such as an unknown key or a point outside of the picture, is an answer to the model, and nothing is performed.

    Args:
        env: A ``CodingEnvGUI``, maybe in wrappers that keep its actions, in an episode.
        size: Width and height of the pictures that the model sees, and of its coordinates; those of the screen if None.

    Attributes:
        size: The same.
        last: The result of the last step: observation, reward, terminated, truncated, info; None before the first.
        problem: What was wrong with the last call of the model; empty if nothing was.

    Raises:
        ConfigurationError: If the environment is another one, or a size is invalid.
    """

    def __init__(self, env: gym.Env[Any, Any], *, size: tuple[int, int] | None = None) -> None:
        gui = env.unwrapped
        if not isinstance(gui, CodingEnvGUI):
            message = f"Expected a CodingEnvGUI, maybe in wrappers, got {type(gui).__name__}"
            raise ConfigurationError(message)
        screen = gui.settings.screen_size
        assert screen is not None
        sides: Any = screen if size is None else size
        is_size = isinstance(sides, tuple) and len(sides) == len(screen)
        if not is_size or not all(isinstance(side, int) and side > 0 for side in sides):
            message = f"Expected size= to be a width and a height in pixels, got {size!r}"
            raise ConfigurationError(message)
        self._env = env
        self._gui: CodingEnv = gui
        self._screen = screen
        self.size = screen if size is None else size
        # Where the pointer of a new screen is.
        self._pointer = (self.size[0] // 2, self.size[1] // 2)
        self.last: StepResult | None = None
        self.problem = ""

    # OpenAI

    @property
    def openai_tool(self) -> dict[str, Any]:
        """The tool for OpenAI's requests."""
        return {"type": _TOOL}

    def answer_openai(self, call: Any) -> dict[str, Any]:
        """Perform the actions of a ``computer_call``, and return the ``computer_call_output`` with the screen.

        Pending safety checks are acknowledged: the computer is a sandbox. What was wrong is in ``problem``, as the protocol has
        no place for it.

        Args:
            call: The item of the response, as a mapping or an object of the SDK.
        """
        item = _mapping(call)
        actions = item.get("actions") or [item.get("action") or {}]
        self._perform(lambda: [event for action in actions for event in self._openai_events(_mapping(action))])
        return {
            "type": "computer_call_output",
            "call_id": item.get("call_id"),
            "acknowledged_safety_checks": [_mapping(check) for check in item.get("pending_safety_checks") or []],
            "output": {"type": "computer_screenshot", "image_url": f"data:image/png;base64,{_encoded(self.screenshot())}"},
        }

    def _openai_events(self, action: Mapping[str, Any]) -> Iterator[InputEvent]:
        kind = action.get("type")
        keys = [str(key) for key in action.get("keys") or []]
        match kind:
            case "screenshot":
                return
            case "wait":
                yield inputs.wait(_WAIT_SECONDS)
            case "keypress":
                yield inputs.key("+".join(keys))
            case "type":
                yield from _typed(action.get("text"))
            case "click" if action.get("button") in _HISTORY_KEYS:
                yield inputs.key(_HISTORY_KEYS[action["button"]])
            case "click" | "double_click" | "move" | "scroll" | "drag":
                yield from _held(keys, self._openai_pointer_events(kind, action))
            case _:
                message = f"unknown action {kind!r:.100}"
                raise InvalidActionError(message)

    def _openai_pointer_events(self, kind: str, action: Mapping[str, Any]) -> Iterator[InputEvent]:
        if kind == "drag":
            path = [self._point([_mapping(point).get("x"), _mapping(point).get("y")]) for point in action.get("path") or []]
            if not path:
                message = "the path of a drag has no points"
                raise InvalidActionError(message)
            yield from _dragged(path)
            return
        x, y = self._point([action.get("x"), action.get("y")])
        match kind:
            case "click":
                button = _OPENAI_BUTTONS.get(action.get("button", "left"))
                if button is None:
                    message = f"unknown button {action.get('button')!r:.100}"
                    raise InvalidActionError(message)
                yield inputs.click(x, y, button=button)
            case "double_click":
                yield inputs.double_click(x, y)
            case "move":
                yield inputs.move(x, y)
            case "scroll":
                yield inputs.scroll(x, y, dx=_wheel(action.get("scroll_x")), dy=_wheel(action.get("scroll_y")))

    # Anthropic

    @property
    def anthropic_tool(self) -> dict[str, Any]:
        """The tool ``computer_20251124`` for Anthropic's requests."""
        width, height = self.size
        return {
            "type": "computer_20251124",
            "name": _TOOL,
            "display_width_px": width,
            "display_height_px": height,
            "enable_zoom": True,
        }

    @property
    def anthropic_toolset(self) -> dict[str, Any]:
        """The toolset ``computer_toolset_20260801`` for Anthropic's requests, instead of the tool."""
        return {"type": "computer_toolset_20260801"}

    def answer_anthropic(self, block: Any) -> dict[str, Any]:
        """Perform the action of a ``tool_use`` block, and return the ``tool_result`` block with the screen, or what was wrong.

        Args:
            block: The block of the response, of the tool or the toolset, as a mapping or an object of the SDK.
        """
        item = _mapping(block)
        action = dict(_mapping(item.get("input") or {}))
        name = action.pop("action", None) if item.get("name") == _TOOL else item.get("name")
        picture: NDArray[np.uint8] | None = None
        text = None
        match name:
            case "cursor_position":
                self.problem = ""
                text = "X={},Y={}".format(*self._pointer)
            case "zoom":
                picture = self._zoomed(action.get("region"))
            case _:
                self._perform(lambda: list(self._anthropic_events(name, action)))
        result = {"type": "tool_result", "tool_use_id": item.get("id")}
        if self.problem:
            return {**result, "is_error": True, "content": [{"type": "text", "text": self.problem}]}
        if text is not None:
            return {**result, "content": [{"type": "text", "text": text}]}
        source = {
            "type": "base64",
            "media_type": "image/png",
            "data": _encoded(self.screenshot() if picture is None else picture),
        }
        return {**result, "content": [{"type": "image", "source": source}]}

    def _anthropic_events(self, name: Any, action: Mapping[str, Any]) -> Iterator[InputEvent]:
        text = action.get("text")
        match name:
            case "screenshot":
                return
            case "key":
                repeat = action.get("repeat")
                for _ in range(1 if repeat is None else _number(repeat, 1, _MAX_CLICKS)):
                    yield from map(inputs.key, _texts(text).split())
            case "type":
                yield from _typed(text)
            case "wait":
                yield inputs.wait(_number(action.get("duration"), 0, _MAX_WAIT))
            case "hold_key":
                seconds = _number(action.get("duration"), 0, _MAX_WAIT)
                yield inputs.key_down(_texts(text))
                yield inputs.wait(seconds)
                yield inputs.key_up(_texts(text))
            case "left_mouse_down" | "left_mouse_up":
                # A drag in parts: the button is pressed where the pointer is.
                yield inputs.mouse_down() if name == "left_mouse_down" else inputs.mouse_up()
            case "mouse_move" | "left_click_drag" | "scroll":
                yield from _held([text] if text else [], self._anthropic_pointer_events(name, action))
            case _ if name in _CLICKS:
                yield from _held([text] if text else [], self._anthropic_pointer_events(name, action))
            case _:
                message = f"unknown action {name!r:.100}"
                raise InvalidActionError(message)

    def _anthropic_pointer_events(self, name: str, action: Mapping[str, Any]) -> Iterator[InputEvent]:
        coordinate = action.get("coordinate")
        if name == "left_click_drag":
            start = action.get("start_coordinate")
            first = self._point(self._pointer if start is None else start)
            yield from _dragged([first, self._point(coordinate)])
            return
        if name == "mouse_move" and coordinate is None:
            message = "mouse_move requires a coordinate"
            raise InvalidActionError(message)
        x, y = self._point(self._pointer if coordinate is None else coordinate)
        if name == "mouse_move":
            yield inputs.move(x, y)
        elif name == "scroll":
            direction = _DIRECTIONS.get(action.get("scroll_direction", ""))
            if direction is None:
                message = f"the scroll_direction is one of {', '.join(_DIRECTIONS)}"
                raise InvalidActionError(message)
            amount = _number(action.get("scroll_amount"), 0, _MAX_CLICKS)
            yield inputs.scroll(x, y, dx=direction[0] * amount, dy=direction[1] * amount)
        else:
            button, count = _CLICKS[name]
            if count > 1:
                yield inputs.double_click(x, y, button=button)
            if count != 2:
                yield inputs.click(x, y, button=button)

    # Both

    def screenshot(self) -> NDArray[np.uint8]:
        """Return the screen of the last step, as the model sees it: uint8, shape (height, width, 3)."""
        picture = self._gui.capture() if self.last is None else self.last[0]["screenshot"]
        return self._scaled(picture)

    def _zoomed(self, region: Any) -> NDArray[np.uint8] | None:
        """Return a region of the screen in the size of the pictures, None if there is no such region."""
        self.problem = ""
        try:
            if not isinstance(region, Iterable) or len(corners := list(region)) != _CORNERS:
                message = f"the region is not (x0, y0, x1, y1): {region!r:.100}"
                raise InvalidActionError(message)
            (left, top), (right, bottom) = self._corner(corners[:2]), self._corner(corners[2:])
            if left >= right or top >= bottom:
                message = f"the region is empty: {region!r:.100}"
                raise InvalidActionError(message)
        except InvalidActionError as error:
            self.problem = str(error)
            return None
        return self._scaled(self._gui.capture((left, top, right - left, bottom - top)))

    def _scaled(self, picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
        if picture.shape[1::-1] == self.size:
            return picture
        return np.asarray(Image.fromarray(picture).resize(self.size, Image.Resampling.LANCZOS))

    def _perform(self, events: Callable[[], list[InputEvent]]) -> None:
        """Perform events in one step; none if one of them is wrong."""
        self.problem = ""
        pointer = self._pointer
        try:
            obs, reward, terminated, truncated, info = self._env.step({"code": "", "events": events()})
            self.last = obs, float(reward), terminated, truncated, info
        except InvalidActionError as error:
            self.problem, self._pointer = f"Nothing was performed: {error}", pointer

    def _point(self, coordinate: Any) -> tuple[int, int]:
        """Return the pixel of the screen at a point of the picture, where the pointer is then."""
        x, y = _pair(coordinate)
        width, height = self.size
        if not (0 <= x < width and 0 <= y < height):
            message = f"the point ({x}, {y}) is not in the picture, which is {width} x {height}"
            raise InvalidActionError(message)
        self._pointer = x, y
        # The pixel below the middle of the pixel of the picture.
        return (2 * x + 1) * self._screen[0] // (2 * width), (2 * y + 1) * self._screen[1] // (2 * height)

    def _corner(self, coordinate: Any) -> tuple[int, int]:
        """Return the corner of the screen's pixels at a corner of a region of the picture."""
        x, y = _pair(coordinate)
        width, height = self.size
        if not (0 <= x <= width and 0 <= y <= height):
            message = f"the corner ({x}, {y}) is not in the picture, which is {width} x {height}"
            raise InvalidActionError(message)
        return x * self._screen[0] // width, y * self._screen[1] // height


def _pair(coordinate: Any) -> tuple[int, int]:
    try:
        x, y = (int(value) for value in coordinate)
    except (TypeError, ValueError, OverflowError):
        message = f"{coordinate!r:.100} is not a point"
        raise InvalidActionError(message) from None
    return x, y


def _mapping(found: Any) -> Mapping[str, Any]:
    """Return an object of an SDK as a mapping."""
    if isinstance(found, Mapping):
        return found
    return dict(found.model_dump())


def _held(keys: list[str], events: Iterable[InputEvent]) -> Iterator[InputEvent]:
    """Yield events during which keys are held."""
    chord = "+".join(keys)
    if chord:
        yield inputs.key_down(chord)
    yield from events
    if chord:
        yield inputs.key_up(chord)


def _dragged(path: list[tuple[int, int]]) -> Iterator[InputEvent]:
    yield inputs.move(*path[0])
    yield inputs.mouse_down()
    for point in path[1:]:
        # Programs combine moves that come at once, and take a short press for a click.
        yield inputs.wait(_DRAG_PAUSE)
        yield inputs.move(*point)
    yield inputs.wait(_DRAG_PAUSE)
    yield inputs.mouse_up()


def _typed(text: Any) -> Iterator[InputEvent]:
    whole = _texts(text)
    for start in range(0, len(whole), _MAX_TEXT):
        yield inputs.text(whole[start : start + _MAX_TEXT])


def _texts(text: Any) -> str:
    if not isinstance(text, str):
        message = f"the text is not a string: {text!r:.100}"
        raise InvalidActionError(message)
    return text


def _number(value: Any, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
        message = f"expected a number from {least} to {most}, got {value!r:.100}"
        raise InvalidActionError(message)
    return int(value)


def _wheel(pixels: Any) -> int:
    """Return the clicks of the wheel for a number of pixels, at least one."""
    if pixels is None:
        return 0
    distance = _number(pixels, -_MAX_CLICKS * _PIXELS_PER_CLICK, _MAX_CLICKS * _PIXELS_PER_CLICK)
    clicks = round(abs(distance) / _PIXELS_PER_CLICK) or (1 if distance else 0)
    return clicks if distance > 0 else -clicks


def _encoded(picture: NDArray[np.uint8]) -> str:
    return base64.b64encode(png(picture)).decode()
