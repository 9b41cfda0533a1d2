from __future__ import annotations

import gymnasium as gym
import msgspec
import numpy as np
import pytest

from coding_gym import Video
from coding_gym.envs.episode import EpisodeState
from coding_gym.envs.options import EnvOptions
from coding_gym.errors import ConfigurationError, ProtocolError
from coding_gym_server.protocol import Outcome
from tests.support.pictures import frame, observed, pixels, plain, striped

SCREEN = (64, 48)


def begin(**settings):
    episode = EpisodeState(EnvOptions(**{"screen": SCREEN, **settings}))
    asked = episode.begin(seed=1, np_random=np.random.default_rng(0))
    return episode, msgspec.to_builtins(asked)


def step(episode, **fields):
    episode.begin_step("draw()")
    return episode.finish_step(observed(**fields))


def test_reset_request_contains_screen_options():
    assert "screen" not in begin(screen="auto")[1]
    assert begin(screen=None)[1]["screen"] is None
    assert begin(screen=[320, 240])[1]["screen"] == (320, 240)
    asked = begin(capture="never", on_idle="return", max_watch=3, frames=30, window_manager=True)[1]
    assert asked["max_watch"] == 3
    assert (asked["capture"], asked["on_idle"], asked["frame_rate"], asked["window_manager"]) == ("never", "return", 30, True)


@pytest.mark.parametrize(("screen", "shape"), [("auto", (600, 800, 3)), ((64, 48), (48, 64, 3))])
def test_observation_space_has_screen_size(screen, shape):
    episode, _ = begin(screen=screen)
    assert episode.observation_space["screenshot"].shape == shape
    obs = step(episode)[0]
    assert obs in episode.observation_space
    assert not obs["screenshot"].any()


def test_screenshot_equals_sent_pixels_and_is_read_only():
    episode, _ = begin()
    obs = step(episode, screenshot=pixels(striped(*SCREEN)))[0]
    assert obs in episode.observation_space
    assert np.array_equal(obs["screenshot"], striped(*SCREEN))
    for found in (obs, step(episode)[0]):
        with pytest.raises(ValueError, match="read-only"):
            found["screenshot"][:] = 0
    assert not step(episode)[0]["screenshot"].any()


def test_screen_of_other_size_is_refused():
    for screen in (SCREEN, "auto"):
        episode, _ = begin(screen=screen)
        with pytest.raises(ProtocolError, match=r"Expected a screen of .* got 32 x 24: pass screen=\(32, 24\)"):
            step(episode, screenshot=pixels(striped(32, 24)))


def test_info_has_idle_only_when_reported():
    episode, _ = begin()
    assert step(episode)[4] == {"outcome": "ok", "state_lost": False}
    assert step(episode, idle="closed")[4] == {"outcome": "ok", "state_lost": False, "idle": "closed"}
    info = step(episode, idle="returned", outcome=Outcome.RUNNING)[4]
    assert info == {"outcome": "running", "state_lost": False, "idle": "returned"}


def test_info_has_frames_only_when_enabled():
    episode, _ = begin(frames=10)
    sent = [frame(0.1, plain(*SCREEN, 1)), frame(0.2, plain(*SCREEN, 2))]
    assert episode.finish_begin(observed())[1]["frames"] == Video()
    assert step(episode, frames=sent)[4]["frames"] == Video(sent)
    assert "frames" not in step(begin()[0])[4]


def test_render_shows_screen_only_while_not_black():
    episode, _ = begin(render_mode="rgb_array")
    step(episode)
    transcript = episode.render()
    step(episode, screenshot=pixels(striped(*SCREEN)))
    picture = episode.render()
    assert np.array_equal(picture, striped(*SCREEN))
    assert picture.shape == transcript.shape == (48, 64, 3)
    picture[:] = 0
    assert np.array_equal(episode.render(), striped(*SCREEN))
    step(episode, screenshot=pixels(plain(*SCREEN, 0)))
    black = episode.render()
    assert black.any()
    assert black.shape == (48, 64, 3)
    step(episode, screenshot=pixels(striped(*SCREEN)))
    episode.begin(seed=2, np_random=np.random.default_rng(0))
    assert not np.array_equal(episode.render(), striped(*SCREEN))


def test_capture_requires_screen_and_reset():
    with pytest.raises(ConfigurationError, match="screen=None"):
        begin(screen=None)[0].check_screen_available()
    with pytest.raises(gym.error.ResetNeeded, match=r"reset\(\) first"):
        EpisodeState(EnvOptions()).check_screen_available()
    begin()[0].check_screen_available()
