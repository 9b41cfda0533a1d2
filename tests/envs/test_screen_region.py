from __future__ import annotations

import numpy as np
import pytest

from coding_gym import Rectangle, Window
from coding_gym.envs.screen_region import screen_request
from coding_gym.errors import ConfigurationError

WINDOW = Window(id=7, title="a", x=-3, y=0, width=20, height=10, stacking=0)


@pytest.mark.parametrize(
    ("region", "asked"),
    [
        (None, None),
        (Rectangle(1, 2, 3, 4), Rectangle(1, 2, 3, 4)),
        ((1, 2, 3, 4), Rectangle(1, 2, 3, 4)),
        ([-1, -2, 3, 4], Rectangle(-1, -2, 3, 4)),
        (tuple(np.arange(1, 5)), Rectangle(1, 2, 3, 4)),
        (WINDOW, 7),
        (7, 7),
        (np.int64(7), 7),
    ],
)
def test_regions(region, asked):
    assert screen_request(region).region == asked


@pytest.mark.parametrize(
    "region",
    [(1, 2, 3), (1, 2, 3, 4, 5), (1, 2, 0, 4), (1, 2, 3, -4), (1, 2, 3.5, 4), "full", 7.0, {}, object(), Rectangle(0, 0, 0, 0)],
    ids=lambda region: "an object" if type(region) is object else repr(region),
)
def test_invalid_region_is_refused(region):
    with pytest.raises(ConfigurationError, match=r"Expected a region to be .*a Window, the id of a window or None, got"):
        screen_request(region)
