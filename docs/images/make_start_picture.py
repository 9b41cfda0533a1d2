"""Make ``start.png``, the picture of the start page: a real episode, as its transcript and as its screen.

Run it with ``python docs/images/make_start_picture.py``. It needs Xvfb for the local provider, or a Docker engine.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import gymnasium as gym
from matplotlib.font_manager import findfont
from PIL import Image, ImageDraw, ImageFont

import coding_gym  # noqa: F401 - registers the environments

STEPS = (
    "import numpy as np\nx = np.linspace(0, 10, 400)",
    "envelope = np.exp(-x / 5)\nwave = envelop * np.cos(4 * x)",
    'wave = envelope * np.cos(4 * x)\nprint(f"{len(wave)} points, {wave.min():.2f} to {wave.max():.2f}")',
    """import matplotlib.pyplot as plt
plt.figure(figsize=(6.4, 4.2))
plt.plot(x, wave, color="teal", linewidth=2)
plt.fill_between(x, envelope, -envelope, alpha=0.12, color="teal")
plt.title("A damped oscillation")
plt.xlabel("time")
plt.ylabel("amplitude")
plt.show()""",
)

_SCALE = 2
_MARGIN, _GAP, _PADDING = 16, 16, 14
_FONT_SIZE, _LINE_HEIGHT, _TERMINAL_WIDTH = 13, 17, 620
_PAGE, _TERMINAL, _PROMPT, _OUTPUT, _FAILURE = "#e6efee", "#12211f", "#7fd6c7", "#e8eeed", "#ff9d8a"


def main() -> None:
    """Run the episode and write the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--provider", default="auto", help="auto, docker or local (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=Path(__file__).with_name("start.png"))
    arguments = parser.parse_args()
    env = gym.make("CodingEnv-v0", provider=arguments.provider, render_mode="ansi")
    env.reset(seed=1)
    observation = {}
    for code in STEPS:
        observation, *_ = env.step(code)
    transcript = env.render()
    env.close()
    screen = Image.fromarray(observation["screenshot"])
    compose(str(transcript), screen).save(arguments.output, optimize=True)


def compose(transcript: str, screen: Image.Image) -> Image.Image:
    """Return the transcript, as a terminal shows it, beside the screen."""
    lines = transcript.splitlines()
    height = max(screen.height, len(lines) * _LINE_HEIGHT + 2 * _PADDING)
    size = (_TERMINAL_WIDTH + screen.width + 2 * _MARGIN + _GAP, height + 2 * _MARGIN)
    picture = Image.new("RGB", (size[0] * _SCALE, size[1] * _SCALE), _PAGE)
    draw = ImageDraw.Draw(picture)
    box = (_MARGIN, _MARGIN, _MARGIN + _TERMINAL_WIDTH, _MARGIN + height)
    draw.rounded_rectangle([side * _SCALE for side in box], radius=8 * _SCALE, fill=_TERMINAL)
    font = ImageFont.truetype(findfont("DejaVu Sans Mono"), _FONT_SIZE * _SCALE)
    for number, line in enumerate(lines):
        position = (_MARGIN + _PADDING) * _SCALE, (_MARGIN + _PADDING + number * _LINE_HEIGHT) * _SCALE
        draw.text(position, line, font=font, fill=_color(line))
    large = screen.resize((screen.width * _SCALE, screen.height * _SCALE), Image.Resampling.LANCZOS)
    top = _MARGIN + (height - screen.height) // 2
    picture.paste(large, ((_MARGIN + _TERMINAL_WIDTH + _GAP) * _SCALE, top * _SCALE))
    return picture.quantize(128)


def _color(line: str) -> str:
    if line.startswith((">>>", "...")):
        return _PROMPT
    return _FAILURE if line.startswith(("Traceback", "NameError", "[")) else _OUTPUT


if __name__ == "__main__":
    main()
