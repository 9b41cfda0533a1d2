from __future__ import annotations

import time

import numpy as np
import pytest

from coding_gym.envs.transcript import DEFAULT_FRAME_SIZE, Turn, draw_transcript, format_transcript

HARD_TEXTS = {
    "empty": "",
    "one long word": "x" * 16_384,
    "dashes": "-" * 16_384,
    "dashed words": "a-" * 8_192,
    "words": "word " * 3_000,
    "spaces": " " * 16_384,
    "tabs": "\t" * 16_384,
    "lines": "line\n" * 3_000,
    "blank lines": "\n" * 16_384,
    "emoji": "🎉👩‍👩‍👧‍👦" * 1_000,
    "wide": "漢字" * 4_000,
    "right to left": "שלום عليكم " * 500,
    "combining": "e\u0301\u0316" * 2_000,
    "control": "\x1b[31mred\x1b[0m\r\x07\x08\x7f\x0b\x0c\x85\u2028\u2029\ufeff\ufffd" * 200,
    "private": "\ue000\U0010ffff" * 500,
}


def test_empty_transcript_is_blank():
    assert format_transcript([]) == ""
    frame = draw_transcript([], (64, 48))
    assert frame.shape == (48, 64, 3)
    assert len(np.unique(frame.reshape(-1, 3), axis=0)) == 1


def test_header_precedes_first_step():
    header = "# CodingEnv-v0: default backend, screen 800 x 600, 30 s per step"
    assert format_transcript([], header=header) == header
    assert format_transcript([Turn("1", "1\n", "", 0)], header=header).splitlines() == [header, ">>> 1", "1"]


def test_transcript_reads_like_python_prompt():
    turns = [
        Turn("def f():\n    return 1\n\nf()", "1\n", "", 0),
        Turn("1/0", "", "Traceback\nZeroDivisionError\n", 1),
        Turn("", "", "", 0),
    ]
    assert format_transcript(turns).splitlines() == [
        ">>> def f():",
        "...     return 1",
        "... ",
        "... f()",
        "1",
        ">>> 1/0",
        "Traceback",
        "ZeroDivisionError",
        "[exit code 1]",
        ">>> ",
    ]


@pytest.mark.parametrize("text", HARD_TEXTS.values(), ids=HARD_TEXTS.keys())
@pytest.mark.parametrize("size", [(640, 480), (16, 16), (321, 17)])
def test_every_frame_has_the_same_shape(text, size):
    turns = [Turn(text, text, text, 7)] * 2
    started = time.process_time()
    frame = draw_transcript(turns, size)
    # Takes a fraction of a second on an idle machine.
    assert time.process_time() - started < 10
    assert frame.dtype == np.uint8
    assert frame.shape == (size[1], size[0], 3)
    assert format_transcript(turns).count("[exit code 7]") == 2


def test_frame_shows_end_of_transcript():
    long = [Turn(f"print({number})", f"{number}\n", "", 0) for number in range(300)]
    assert np.array_equal(draw_transcript(long, (320, 240)), draw_transcript(long[100:], (320, 240)))
    assert not np.array_equal(draw_transcript(long, (320, 240)), draw_transcript(long[:-1], (320, 240)))


def test_last_line_fits_inside_full_frame():
    def rows_with_ink(turns):
        frame = draw_transcript(turns, DEFAULT_FRAME_SIZE).astype(int)
        return np.flatnonzero((frame != frame[0, 0]).any(axis=(1, 2)))

    full = [Turn("", "█\n" * 200, "", 0)]
    assert rows_with_ink(full).max() < DEFAULT_FRAME_SIZE[1] - 1


def test_output_errors_and_code_differ_in_color():
    frames = [draw_transcript([turn], (200, 100)) for turn in (Turn("", "x", "", 0), Turn("", "", "x", 0))]
    assert not np.array_equal(*frames)


def test_drawing_returns_fresh_writable_frame():
    turns = [Turn("1", "1\n", "", 0)]
    first, second = draw_transcript(turns, (64, 48)), draw_transcript(turns, (64, 48))
    first[:] = 0
    assert not np.array_equal(first, second)
    assert len(turns) == 1


def test_long_transcript_is_drawn_quickly():
    turns = [Turn("x = 1  # " + "y" * 90_000, "z" * 16_384, "w" * 16_384, 0)] * 50
    started = time.process_time()
    draw_transcript(turns, DEFAULT_FRAME_SIZE)
    # Takes a fraction of a second on an idle machine.
    assert time.process_time() - started < 10
