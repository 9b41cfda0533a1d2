from __future__ import annotations

import re

import av
import pytest
from PIL import Image
from typer.testing import CliRunner

from coding_gym.cli import main as cli


def record(*arguments):
    return CliRunner().invoke(cli.app, ["record", *map(str, arguments)], catch_exceptions=False)


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "program.py"
    path.write_text("print('hi')\n")
    return path


# Arguments that fail before a sandbox is started


@pytest.mark.parametrize(
    ("arguments", "exit_code", "hint"),
    [
        (["out.avi"], 1, "ends in .mp4, .webm, .gif, .png"),
        (["nowhere/out.mp4"], 1, "no directory nowhere"),
        (["out.gif", "--screen", "big"], 2, "640x480"),
        (["out.gif", "--screen", "640x"], 2, "640x480"),
        (["out.gif", "--screen", "1x1"], 1, "16 to 4096"),
        (["out.gif", "--fps", "0"], 2, "--fps"),
        (["out.gif", "--seconds", "0"], 2, "--seconds"),
        (["out.gif", "--provider", "moon"], 2, "--provider"),
    ],
)
def test_bad_arguments_are_refused(program, tmp_path, monkeypatch, arguments, exit_code, hint):
    monkeypatch.chdir(tmp_path)
    result = record(program, *arguments)
    assert result.exit_code == exit_code, result.output
    assert hint in result.output
    assert list(tmp_path.iterdir()) == [program]


@pytest.mark.parametrize("source", [b"\xff\xfe", b"# coding: nope\n"])
def test_undecodable_or_missing_program_is_refused(program, tmp_path, source):
    program.write_bytes(source)
    result = record(program, tmp_path / "out.gif")
    assert result.exit_code == 2
    assert "is not a Python program" in " ".join(result.output.replace("│", " ").split())
    assert record(tmp_path / "missing.py", tmp_path / "out.gif").exit_code == 2


# Programs

ANIMATION = """
import tkinter as tk
window = tk.Tk()
window.geometry("100x80+0+0")
window.configure(background="#c02020")
window.update()
window.after(400, lambda: window.configure(background="#2020c0"))
window.after(800, window.destroy)
window.mainloop()
print("caf\u00e9")
raise SystemExit(3)
"""


@pytest.fixture
def local(xvfb):
    return ["--provider", "local", "--screen", "100x80"]


def test_video_shows_animation_of_program(program, tmp_path, local):
    program.write_text(ANIMATION)
    path = tmp_path / "out.mp4"
    result = record(program, path, "--fps", 20, *local)
    assert result.exit_code == 3, result.output
    assert result.stdout == "caf\u00e9\n"
    assert "exit code 3" in result.stderr
    assert f"wrote {path}: " in result.stderr
    with av.open(path) as container:
        stream = container.streams.video[0]
        assert (stream.average_rate, stream.width, stream.height) == (20, 100, 80)
        pixels = [frame.to_ndarray(format="rgb24")[40, 50].astype(int) for frame in container.decode(video=0)]
    # Red for 0.4 s, then blue for 0.4 s.
    is_red, is_blue = ([bool(pixel[channel] > 150) for pixel in pixels] for channel in (0, 2))
    assert is_red.index(False) == is_blue.index(True) == pytest.approx(8, abs=4)
    assert all(is_blue[is_blue.index(True) :])
    assert is_blue.count(True) == pytest.approx(8, abs=4)


def test_waiting_and_endless_programs_are_recorded(program, tmp_path, local):
    program.write_text(ANIMATION.replace("window.after", "#"))
    result = record(program, tmp_path / "out.png", *local)
    assert result.exit_code == 3, result.output
    assert "waited for events, was closed, and ended with exit code 3" in result.stderr
    with Image.open(tmp_path / "out.png") as image:
        assert image.size == (100, 80)
        assert image.getpixel((50, 40)) == (192, 32, 32)
    draw = "import itertools\nfor n in itertools.count(): window.configure(background=f'#{n % 256:02x}2020'); window.update()\n"
    program.write_text(ANIMATION.partition("window.after")[0] + draw)
    result = record(program, tmp_path / "out.gif", "--seconds", 3, *local)
    assert result.exit_code == 0, result.output
    assert re.search(r"was stopped after \d+\.\d", result.stderr)
    assert (tmp_path / "out.gif").stat().st_size > 0


def test_program_without_window_writes_no_video(program, tmp_path, local):
    result = record(program, tmp_path / "out.webm", *local)
    assert result.exit_code == 1
    assert result.stdout == "hi\n"
    assert "no pictures" in result.stderr
    assert not (tmp_path / "out.webm").exists()
