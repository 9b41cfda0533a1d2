"""Programs as people write them: the picture shows the state of rest, and the program ends in the expected way.

Each file in ``field`` begins with what is expected: ``idle``, ``outcome``, ``exit`` (code), ``shows`` (colors in the picture),
``prints`` and ``stderr`` (parts of the output; ``|`` separates alternatives), and ``max_watch`` and ``needs`` (a module).
``CODING_GYM_GALLERY=DIRECTORY`` saves the pictures there, as for the other tests of the gallery.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest
from PIL import Image, ImageColor

from coding_gym.media.frames import decode_pixels
from tests.support.side_by_side import check_side_by_side

pytestmark = pytest.mark.usefixtures("screen_provider")

PROGRAMS = sorted((Path(__file__).parent / "field").glob("*.py"))
QUICK = ["tk_callback_crash", "tk_crash_before_mainloop", "tk_first_dialog", "tk_two_roots"]
MIN_PIXELS = 100


def expectations(program):
    lines = program.read_text().partition("\n\n")[0].splitlines()
    return dict(line.removeprefix("# ").split(": ", 1) for line in lines)


def check_program(session, program):
    expected = expectations(program)
    session.reset(screen=(640, 480), capture="auto")
    if (needed := expected.get("needs")) and session.run(f"import {needed}").exit_code:
        return
    session.run("kept = 'kept'")
    watch = {"max_watch": float(expected["max_watch"])} if "max_watch" in expected else {}
    observation = session.run(program.read_text(), timeout=20, **watch)
    save(program.stem, observation.screenshot)
    exit_code = int(expected.get("exit", 0))
    outcome = expected.get("outcome", "error" if exit_code else "ok")
    found = (observation.metadata.outcome, observation.exit_code, observation.metadata.idle)
    assert found == (outcome, exit_code, expected.get("idle")), observation.stderr
    assert any(part in observation.stdout for part in expected.get("prints", "").split("|")), observation.stdout
    assert expected.get("stderr", "") in observation.stderr
    assert ("TclError" in observation.stderr) == (program.stem == "tk_update_loop")
    assert "_CODING_GYM" not in observation.stderr
    picture = Image.fromarray(decode_pixels(observation.screenshot))
    colors = {color: count for count, color in picture.getcolors(1 << 20)}
    for color in expected["shows"].split():
        assert colors.get(ImageColor.getrgb(color), 0) >= MIN_PIXELS, f"{color} is missing"
    assert session.run("print(kept)").stdout == "kept\n"


def save(name, pixels):
    if pixels is not None and (directory := os.environ.get("CODING_GYM_GALLERY")):
        Path(directory).mkdir(parents=True, exist_ok=True)
        Image.fromarray(decode_pixels(pixels)).save(Path(directory) / f"{name}.png")


@pytest.fixture
def check_programs(open_session):
    def check_one(program):
        with contextlib.closing(open_session()) as session:
            check_program(session, program)

    return lambda programs: check_side_by_side(check_one, programs)


@pytest.mark.every_provider
def test_quick_pictures_show_state_of_rest(check_programs):
    check_programs([program for program in PROGRAMS if program.stem in QUICK])


def test_pictures_show_state_of_rest(check_programs):
    check_programs(PROGRAMS)
