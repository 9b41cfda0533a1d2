from __future__ import annotations

import pytest

from coding_gym.envs.options import EnvOptions
from coding_gym.errors import ConfigurationError


@pytest.mark.parametrize(
    ("screen", "kept", "size"),
    [
        ("auto", "auto", (800, 600)),
        (None, None, None),
        ([320, 240], (320, 240), (320, 240)),
        ((16, 4096), (16, 4096), (16, 4096)),
    ],
)
def test_screens(screen, kept, size):
    settings = EnvOptions(screen=screen)
    assert (settings.screen, settings.screen_size) == (kept, size)


def test_defaults():
    settings = EnvOptions()
    assert (settings.screen, settings.capture, settings.on_idle, settings.frames) == ("auto", "auto", "close", None)


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"screen": "big"}, "screen=.*'auto'.*'big'"),
        ({"screen": (15, 480)}, "screen=.*16 to 4096"),
        ({"screen": (640, 4097)}, "screen=.*16 to 4096"),
        ({"capture": "sometimes"}, "capture=.*auto, always, never.*'sometimes'"),
        ({"capture": None}, "capture="),
        ({"capture": True}, "capture="),
        ({"on_idle": "wait"}, "on_idle=.*close, return.*'wait'"),
        ({"on_idle": None}, "on_idle="),
        ({"max_watch": 0}, "max_watch=.*positive"),
        ({"max_watch": float("inf")}, "max_watch="),
        ({"max_watch": "1"}, "max_watch="),
        ({"frames": 0}, "frames=.*at most 120"),
        ({"frames": 121}, "frames="),
        ({"frames": True}, "frames="),
        ({"frames": "30"}, "frames="),
        ({"frames": float("nan")}, "frames="),
        ({"screen": None, "frames": 30}, "a screen for frames=, got screen=None"),
        ({"screen": None, "capture": "always", "window_manager": True}, "window_manager=True, capture='always'"),
    ],
)
def test_bad_value_is_refused_by_name(options, hint):
    with pytest.raises(ConfigurationError, match=hint):
        EnvOptions(**options)


def test_unused_or_disabled_screen_is_accepted():
    EnvOptions(screen=None, capture="never", on_idle="return")
    EnvOptions(capture="never", frames=0.5)
