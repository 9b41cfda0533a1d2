"""A term that compares the screen with a goal image."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from coding_gym._validation import check_one_of
from coding_gym.errors import ConfigurationError
from coding_gym.wrappers.terms.base import RewardTerm, Step

__all__ = ["ScreenMatch", "pixel_similarity", "structural_similarity"]

_WINDOW = 11
_SIGMA = 1.5
_K1, _K2 = 0.01, 0.03
_RANGE = 255.0


class ScreenMatch(RewardTerm):
    """The similarity of the screen to a goal image; 1 if they are equal.

    Args:
        goal: uint8 of shape (height, width, 3), or the path of a PNG file.
        metric: ``ssim`` (``structural_similarity``, -1 to 1) or ``pixels`` (``pixel_similarity``, 0 to 1).
        size: Width and height that both images are scaled to before the comparison; those of the goal if None. Smaller images
            are faster to compare.

    Raises:
        ConfigurationError: If the metric is unknown, or the goal is not an image or too small for the metric.

    Example:
        >>> goal = np.zeros((48, 64, 3), np.uint8)
        >>> goal[10:20, 10:20] = 255
        >>> black = Step(action="", observation={"screenshot": np.zeros((480, 640, 3), np.uint8)}, info={})
        >>> round(ScreenMatch(goal, metric="pixels")(black), 3), round(ScreenMatch(goal)(black), 3)
        (0.967, 0.84)
    """

    name = "screen"

    def __init__(
        self,
        goal: NDArray[np.uint8] | str | PathLike[str],
        *,
        metric: Literal["ssim", "pixels"] = "ssim",
        size: tuple[int, int] | None = None,
    ) -> None:
        check_one_of("metric", metric, _METRICS)
        picture = _read(Path(goal)) if isinstance(goal, str | PathLike) else np.asarray(goal)
        if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3:
            message = (
                "Expected goal= to be a picture, uint8 of shape (height, width, 3), "
                f"got {picture.dtype} of shape {picture.shape}"
            )
            raise ConfigurationError(message)
        self._size = size or (picture.shape[1], picture.shape[0])
        if metric == "ssim" and min(self._size) < _WINDOW:
            message = (
                f"Expected pictures of at least {_WINDOW} x {_WINDOW} pixels for ssim, got {self._size}: pass a larger size="
            )
            raise ConfigurationError(message)
        self._metric = metric
        self._target = _scale(picture, self._size)

    def __call__(self, step: Step) -> float:
        return _METRICS[self._metric](_scale(step.screenshot, self._size), self._target)


def pixel_similarity(first: NDArray[np.uint8], second: NDArray[np.uint8]) -> float:
    """Return 1 minus the mean absolute difference of two images, relative to the maximum value of 255.

    Args:
        first: uint8, of any shape.
        second: uint8, of the same shape.

    Example:
        >>> pixel_similarity(np.zeros((2, 2, 3), np.uint8), np.full((2, 2, 3), 51, np.uint8))
        0.8
    """
    return float(1 - np.abs(first.astype(np.int16) - second).mean() / _RANGE)


def structural_similarity(first: NDArray[np.uint8], second: NDArray[np.uint8]) -> float:
    """Return the mean structural similarity (SSIM) of two images in grayscale, -1 to 1.

    It is formula (13) of Z. Wang, A. C. Bovik, H. R. Sheikh, E. P. Simoncelli, "Image Quality Assessment: From Error Visibility
    to Structural Similarity", IEEE Transactions on Image Processing 13(4), 2004, with the paper's window (Gaussian, 11 x 11,
    standard deviation 1.5) and constants (K1 = 0.01, K2 = 0.03, L = 255), over all windows that lie within the images.

    Args:
        first: uint8, shape (height, width, 3), at least 11 x 11 pixels.
        second: uint8, of the same shape.

    Example:
        >>> picture = np.arange(48 * 64 * 3, dtype=np.uint8).reshape(48, 64, 3)
        >>> structural_similarity(picture, picture)
        1.0
    """
    x, y = _grayscale(first), _grayscale(second)
    mean_x, mean_y = _blur(x), _blur(y)
    variance_x = _blur(x * x) - mean_x**2
    variance_y = _blur(y * y) - mean_y**2
    covariance = _blur(x * y) - mean_x * mean_y
    c1, c2 = (_K1 * _RANGE) ** 2, (_K2 * _RANGE) ** 2
    numerator = (2 * mean_x * mean_y + c1) * (2 * covariance + c2)
    denominator = (mean_x**2 + mean_y**2 + c1) * (variance_x + variance_y + c2)
    return float((numerator / denominator).mean())


def _grayscale(picture: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Return the luma of an image (ITU-R BT.601), with Pillow's weights but without rounding."""
    gray: NDArray[np.float64] = picture @ np.array([0.299, 0.587, 0.114])
    return gray


def _blur(image: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the Gaussian-weighted mean of each window."""
    distances = np.arange(_WINDOW) - _WINDOW // 2
    weights = np.exp(-0.5 * (distances / _SIGMA) ** 2)
    weights /= weights.sum()
    height, width = image.shape[0] - _WINDOW + 1, image.shape[1] - _WINDOW + 1
    rows = sum(weight * image[offset : offset + height] for offset, weight in enumerate(weights))
    blurred: NDArray[np.float64] = sum(weight * rows[:, offset : offset + width] for offset, weight in enumerate(weights))
    return blurred


def _scale(picture: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    from PIL import Image

    if (picture.shape[1], picture.shape[0]) == size:
        return picture
    return np.asarray(Image.fromarray(picture).resize(size, Image.Resampling.BOX))


def _read(path: Path) -> NDArray[np.uint8]:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            return np.asarray(image.convert("RGB"))
    except (OSError, UnidentifiedImageError) as error:
        message = f"Cannot read the goal picture {path}: {error}"
        raise ConfigurationError(message) from None


_METRICS: dict[str, Callable[[NDArray[np.uint8], NDArray[np.uint8]], float]] = {
    "ssim": structural_similarity,
    "pixels": pixel_similarity,
}
