from __future__ import annotations

import gymnasium as gym
import msgspec
import numpy as np
import pytest
from pictures import frame, observed, pixels, plain, striped

from coding_gym import Video
from coding_gym.episode import Episode, own_screenshot
from coding_gym.errors import ConfigurationError, ProtocolError
from coding_gym.settings import EpisodeSettings
from coding_gym_server.protocol import Outcome

SCREEN = (64, 48)


def begin(**settings):
    episode = Episode(EpisodeSettings(**{"screen": SCREEN, **settings}))
    asked = episode.begin(seed=1, np_random=np.random.default_rng(0))
    return episode, msgspec.to_builtins(asked)


def step(episode, **fields):
    episode.step_begins("draw()")
    return episode.step_ended(observed(**fields))


def test_what_a_reset_asks_for():
    assert "screen" not in begin(screen="auto")[1]
    assert begin(screen=None)[1]["screen"] is None
    assert begin(screen=[320, 240])[1]["screen"] == (320, 240)
    asked = begin(capture="never", on_idle="return", frames=30, window_manager=True)[1]
    assert (asked["capture"], asked["on_idle"], asked["frame_rate"], asked["window_manager"]) == ("never", "return", 30, True)


@pytest.mark.parametrize(("screen", "shape"), [("auto", (480, 640, 3)), ((64, 48), (48, 64, 3))])
def test_the_space_has_the_size_of_the_screen(screen, shape):
    episode, _ = begin(screen=screen)
    assert episode.observation_space["screenshot"].shape == shape
    obs = own_screenshot(step(episode)[0])
    assert obs in episode.observation_space
    assert not obs["screenshot"].any()


def test_a_screenshot_is_what_was_sent_and_the_callers():
    episode, _ = begin()
    obs = own_screenshot(step(episode, screenshot=pixels(striped(*SCREEN)))[0])
    assert obs in episode.observation_space
    assert np.array_equal(obs["screenshot"], striped(*SCREEN))
    obs["screenshot"][:] = 0
    assert not own_screenshot(step(episode)[0])["screenshot"].any()


def test_a_screen_of_another_size_is_refused():
    for screen in (SCREEN, "auto"):
        episode, _ = begin(screen=screen)
        with pytest.raises(ProtocolError, match=r"Expected a screen of .* got 32 x 24: pass screen=\(32, 24\)"):
            step(episode, screenshot=pixels(striped(32, 24)))


def test_info_has_idle_when_there_is_something_to_say():
    episode, _ = begin()
    assert step(episode)[4] == {"outcome": "ok", "state_lost": False}
    assert step(episode, idle="closed")[4] == {"outcome": "ok", "state_lost": False, "idle": "closed"}
    info = step(episode, idle="returned", outcome=Outcome.RUNNING)[4]
    assert info == {"outcome": "running", "state_lost": False, "idle": "returned"}


def test_info_has_frames_when_they_are_wanted():
    episode, _ = begin(frames=10)
    sent = [frame(0.1, plain(*SCREEN, 1)), frame(0.2, plain(*SCREEN, 2))]
    assert episode.begun(observed())[1]["frames"] == Video()
    assert step(episode, frames=sent)[4]["frames"] == Video(sent)
    assert "frames" not in step(begin()[0])[4]


def test_render_shows_the_screen_while_something_is_on_it():
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


def test_there_must_be_something_to_look_at():
    with pytest.raises(ConfigurationError, match="screen=None"):
        begin(screen=None)[0].check_look()
    with pytest.raises(gym.error.ResetNeeded, match=r"reset\(\) first"):
        Episode(EpisodeSettings()).check_look()
    begin()[0].check_look()
