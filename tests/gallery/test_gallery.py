"""The screenshot of each kind of program is complete, whatever the program does to its windows.

``CODING_GYM_GALLERY=DIRECTORY pytest tests/gallery`` saves the pictures there, one PNG per program.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from coding_gym_server.protocol import Rectangle
from tests.gallery.gallery import Gallery, difference
from tests.gallery.gui_programs import PROGRAMS, SCENES, Scene

REPETITIONS = 2
SESSIONS = 4
IN_THE_IMAGE = (
    *("tk-mainloop", "tk-unicode", "turtle-done", "qt-exec", "qt-process-events", "matplotlib-show", "pygame-loop"),
    *("xcb-closed", "child-mainloop"),
)
"""Programs with each library that the image has; the rest is the same in each sandbox."""


@pytest.fixture(scope="module")
def gallery(screen_provider):
    with Gallery(screen_provider, sessions=SESSIONS) as gallery:
        yield gallery


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return Path(os.environ.get("CODING_GYM_GALLERY") or tmp_path_factory.mktemp("gallery"))


def faults(gallery, program, directory):
    """Run a program several times, save a picture of it, and return what is wrong with each."""
    with ThreadPoolExecutor(REPETITIONS) as threads:
        pictures = list(threads.map(gallery.run, [program] * REPETITIONS))
    shown = next((picture for picture in pictures if picture.fault), pictures[0])
    directory.mkdir(parents=True, exist_ok=True)
    Image.fromarray(shown.pixels).save(directory / f"{program.name}.png")
    return [picture.fault for picture in pictures]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_screenshots_are_complete(gallery, directory, provider, program):
    if missing := gallery.missing(program.scene):
        pytest.skip(missing)
    assert faults(gallery, program, directory / provider) == [None] * REPETITIONS, f"see {directory}"


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("docker_engine")
def test_screenshots_are_complete_in_the_image(directory):
    with Gallery("docker", sessions=SESSIONS) as gallery:
        programs = [program for program in PROGRAMS if program.name in IN_THE_IMAGE]
        assert {program.name: gallery.missing(program.scene) for program in programs} == dict.fromkeys(IN_THE_IMAGE)
        found = {program.name: faults(gallery, program, directory / "docker") for program in programs}
    assert found == dict.fromkeys(IN_THE_IMAGE, [None] * REPETITIONS), f"see {directory}"


def test_every_scene_has_code_and_program():
    assert {program.scene for program in PROGRAMS} == set(SCENES)
    assert all(scene.code for scene in SCENES)
    assert len({program.name for program in PROGRAMS}) == len(PROGRAMS)


def make_scene(**parts):
    return Scene(name="", hold="", colors=(), **parts)


@pytest.fixture
def reference():
    reference = np.zeros((20, 30, 3), np.uint8)
    reference[5:10, 5:10] = (255, 0, 0)
    return reference


def test_missing_pixel_is_detected(reference):
    picture = reference.copy()
    assert difference(picture, reference, make_scene()) is None
    picture[9, 8] = 0
    assert difference(picture, reference, make_scene()) == "1 pixels differ, from 8, 9 to 8, 9"
    assert difference(np.zeros_like(reference), reference, make_scene()) == "it is black"
    assert "shape" in difference(reference[1:], reference, make_scene())


def test_only_blinking_region_may_differ(reference):
    picture = reference.copy()
    picture[6, 6] = 0
    assert difference(picture, reference, make_scene(blinking=Rectangle(6, 6, 1, 1))) is None
    assert difference(picture, reference, make_scene(blinking=Rectangle(7, 6, 1, 1)))


def test_moving_region_must_be_intact(reference):
    scene = make_scene(moving=Rectangle(0, 4, 30, 8))
    assert difference(np.roll(reference, 7, axis=1), reference, scene) is None
    assert difference(np.roll(reference, 7, axis=0), reference, scene) == "what moves is not whole"
    torn = np.roll(reference, 7, axis=1)
    torn[8:, 12:14] = 0
    assert difference(torn, reference, scene) == "what moves is not whole"
