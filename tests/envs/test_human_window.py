"""``render_mode="human"`` shows the frames in a window, or is refused when the environment is made."""

from __future__ import annotations

import sys

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from coding_gym import AsyncCodingEnv, CodingEnv
from coding_gym.envs.human_window import HUMAN, HumanWindow, RenderModes
from coding_gym.errors import ConfigurationError


@pytest.fixture
def screen(monkeypatch):
    """SDL's screen without hardware."""
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")


@pytest.fixture
def pygame(screen):
    return pytest.importorskip("pygame")


def test_human_mode_without_pygame_is_refused_at_once(screen, monkeypatch):
    monkeypatch.setitem(sys.modules, "pygame", None)
    with pytest.raises(ConfigurationError, match=r"requires pygame: pip install 'coding-gym\[human\]'"):
        gym.make("CodingEnv-v0", render_mode="human")


def test_human_mode_without_screen_is_refused_at_once(monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    for env_id, options in (("CodingEnv-v0", {}), ("CodingEnvGUI-v0", {}), ("CodingTask-v0", {"suite": "basics"})):
        with pytest.raises(ConfigurationError, match="requires a screen on this machine: set DISPLAY"):
            gym.make(env_id, render_mode="human", **options)
    # Gymnasium makes an environment for each of them, but does not replace one that exists.
    assert list(RenderModes(["ansi"])) == ["ansi"]
    assert HUMAN in RenderModes(["ansi"])


@pytest.mark.parametrize("make", [lambda **o: gym.make_vec("CodingEnv-v0", num_envs=2, **o), AsyncCodingEnv])
def test_human_mode_is_for_one_environment(make):
    with pytest.raises(ConfigurationError, match="render_mode='human' is for one CodingEnv"):
        make(render_mode="human")


def test_environment_passes_checks_in_every_mode(pool):
    with gym.make("CodingEnv-v0", pool=pool, screen=None).unwrapped as env:
        check_env(env)


def test_window_shows_frames_after_each_call(pool, pygame):
    with CodingEnv(pool=pool, render_mode="human") as env:
        env.reset(seed=1)
        shown = pygame.surfarray.array3d(pygame.display.get_surface())
        assert shown.shape == (800, 600, 3)
        env.step("print(1)")
        changed = pygame.surfarray.array3d(pygame.display.get_surface())
        assert (shown != changed).any()
        assert env.render() is None
        assert pygame.display.get_caption()[0] == "CodingEnv-v0"
    assert not pygame.display.get_init()


def test_window_adapts_to_the_frame(pygame):
    window = HumanWindow("title")
    for height, width in ((48, 64), (100, 50)):
        frame = np.random.default_rng(0).integers(256, size=(height, width, 3), dtype=np.uint8)
        window.show(frame)
        assert np.array_equal(pygame.surfarray.array3d(pygame.display.get_surface()).swapaxes(0, 1), frame)
    window.close()
    window.close()
