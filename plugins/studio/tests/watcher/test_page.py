"""The page in a browser, with real trainers."""

from __future__ import annotations

import re
import time

import pytest

from plugins.studio.tests.watcher.conftest import watching
from plugins.studio.tests.watching.trainers import running_trainer, tell
from tests.support.browser import main_thread
from tests.support.timing import eventually

pytestmark = pytest.mark.usefixtures("runtime_directory")

PICTURE = """
import numpy, zstandard
from coding_gym_server.protocol import Pixels
def picture(color):
    frame = numpy.zeros((240, 320, 3), numpy.uint8); frame[60:180, 80:240] = color
    return Pixels(320, 240, zstandard.ZstdCompressor().compress(frame.tobytes()))
"""

GROUP = """
coding_gym_studio.watch("ppo")
group = Group({count})
envs = [session(group, index) for index in range({count})]
for env in envs: reset(env)
"""

SIX = (
    GROUP.format(count=6)
    + """
step(envs[0], "print('hello')", "hello\\n", reward=0.5)
step(envs[1], "1 / 0", outcome="error")
step(envs[2], "while True: pass", outcome="timeout", reward=-1.0)
step(envs[3], "def f():\\n    return 1", terminated=True)
envs[4].running("import time\\ntime.sleep(100)")
envs[5].waiting()
"""
)


def tiles(page):
    return page.locator(".tile")


def texts(page, selector):
    return [text.strip() for text in page.locator(selector).all_inner_texts()]


@pytest.fixture
def six(open_page):
    """A page that shows six sessions in different states."""
    with running_trainer(SIX + "wait()") as trainer, watching() as address:
        page = open_page(address)
        page.wait_for_selector(".tile")
        yield page, trainer


def test_tiles(six):
    page, trainer = six
    assert tiles(page).count() == 6
    assert f"ppo ({trainer.pid})" in page.inner_text(".app-header")
    labels = [tile.get_attribute("aria-label") for tile in tiles(page).all()]
    assert labels[0] == "Session #0, idle, last outcome ok, step 1 of episode 1, +0.5"
    assert labels[2] == "Session #2, idle, last outcome timeout, step 1 of episode 1, \u22121"
    assert labels[3] == "Session #3, ended, last outcome ok, step 1 of episode 1"
    assert labels[4].startswith("Session #4, running, step 0")
    assert labels[5].startswith("Session #5, waiting")
    assert page.locator("#tile-1-1 .hljs-string").inner_text() == "'hello'"
    assert re.fullmatch(r"running \d+(\.\d)? m?s", page.inner_text("#tile-1-5 .tile-state"))


def test_figures(six):
    page, _ = six
    figures = page.inner_text("#figures")
    assert re.search(r"Sessions\s+6", figures)
    assert re.search(r"50 %\s*ok", figures)
    assert re.search(r"error 1", figures)
    assert "4 in all" in figures


def test_token_leaves_the_address_and_survives_a_reload(six):
    page, _ = six
    assert "token" not in page.url
    page.reload()
    page.wait_for_selector(".tile")
    assert tiles(page).count() == 6


def test_without_the_token_nothing_is_shown(open_page):
    with running_trainer(SIX + "wait()"), watching() as address:
        page = open_page(address.partition("#")[0])
        page.wait_for_selector("text=This page needs its token.")
        assert tiles(page).count() == 0
        other = open_page(address.partition("#")[0] + "#token=wrong")
        other.wait_for_selector("text=This page needs its token.")


def test_keyboard(six):
    page, _ = six
    page.focus("#grid")
    active = lambda: page.get_attribute("#grid", "aria-activedescendant")  # noqa: E731
    assert active() == "tile-1-1"
    moves = [("ArrowRight", 2), ("End", 6), ("Home", 1), ("ArrowDown", 5), ("ArrowUp", 1), ("ArrowLeft", 1)]
    for key, expected in moves:
        page.keyboard.press(key)
        assert active() == f"tile-1-{expected}", key
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.wait_for_selector("#detail >> text=1 / 0")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#detail >> text=while True")
    page.keyboard.press("Escape")
    assert page.is_hidden("#detail")
    assert page.evaluate("document.activeElement.id") == "grid"


def test_filters_and_order(six):
    page, _ = six
    page.click(".filters >> text=idle")
    assert eventually(lambda: tiles(page).count() == 3)
    page.select_option(".filters label:has-text('outcome') select", "error")
    assert eventually(lambda: tiles(page).count() == 1)
    page.click(".filters >> text=waiting")
    page.wait_for_selector("text=No session is like that at the moment.")
    page.click(".filters >> text=all")
    page.select_option(".filters label:has-text('outcome') select", "")
    page.select_option(".filters label:has-text('order') select", "high")
    first = page.locator(".tile[aria-posinset='1']")
    assert eventually(lambda: first.get_attribute("data-key") == "1-1")
    assert page.locator(".tile[aria-posinset='6']").get_attribute("data-key") == "1-3"


def test_details_show_the_last_steps(open_page):
    program = (
        GROUP.format(count=1)
        + """
for number in range(40): step(envs[0], f"print({number})", f"{number}\\n")
wait()
"""
    )
    with running_trainer(program), watching() as address:
        page = open_page(address)
        page.click(".tile")
        page.wait_for_selector("#detail .step")
        headings = texts(page, "#detail .step h3")
        assert len(headings) == 32
        assert headings[0] == "step 40 · episode 1"
        assert page.locator("#detail .output").first.inner_text().strip() == "39"


def test_screens(open_page):
    program = (
        PICTURE
        + """
coding_gym_studio.watch("gui")
env = session(screen=(320, 240)); reset(env)
step(env, "window", picture=picture((255, 0, 0)))
wait()
step(env, "other window", picture=picture((0, 0, 255)))
wait()
step(env, "closed", picture=None)
wait()
"""
    )
    color = """() => {
        const image = document.querySelector(".tile-screen");
        if (!image?.src || !image.complete || !image.naturalWidth) return null;
        const canvas = Object.assign(document.createElement("canvas"), { width: 1, height: 1 });
        const context = canvas.getContext("2d");
        context.drawImage(image, image.naturalWidth / 2, image.naturalHeight / 2, 1, 1, 0, 0, 1, 1);
        return [...context.getImageData(0, 0, 1, 1).data].join();
    }"""
    with running_trainer(program) as trainer, watching() as address:
        page = open_page(address)
        assert eventually(lambda: page.evaluate(color) == "255,0,0,255")
        page.click(".tile")
        page.wait_for_selector("#detail .screen img")
        tell(trainer)
        assert eventually(lambda: page.evaluate(color) == "0,0,255,255")
        tell(trainer)
        page.wait_for_selector("text=The screen is black")
        assert eventually(lambda: page.get_attribute(".tile-screen", "src") is None)


def test_hostile_texts_are_texts(open_page):
    program = (
        GROUP.format(count=1).replace('"ppo"', '"<img src=x onerror=alert(1)>"')
        + """
hostile = "<script>alert(1)</script><img src=x onerror=alert(2)>"
reset(envs[0], label=hostile + "\\u202elebal")
step(envs[0], hostile + "\\x1b[31mred\\x1b]8;;http://evil.example\\x07link\\u202egnol", hostile + "\\x1b[2J\\x00",
     outcome="<b>bad</b>\\u2066")
wait()
"""
    )
    with running_trainer(program), watching() as address:
        page = open_page(address)
        page.click(".tile")
        page.wait_for_selector("#detail .output")
        assert page.inner_text("#detail .output") == "<script>alert(1)</script><img src=x onerror=alert(2)>\u2400"
        shown = page.inner_text("#detail .code")
        assert shown.startswith("<script>alert(1)</script>")
        assert shown.endswith("redlink⟨U+202E⟩gnol")
        assert page.locator("#detail b, .tile b, #detail script, .tile script, #detail img, .app-header img").count() == 0
        assert page.inner_text(".tile .badge") == "<b>bad</b>⟨U+2066⟩"
        assert page.inner_text(".tile .tile-label") == "<script>alert(1)</script><img src=x onerror=alert(2)>⟨U+202E⟩lebal"
        page.select_option("#filters select >> nth=0", label="<b>bad</b>⟨U+2066⟩")
        assert page.locator(".tile").count() == 1
        # Nowhere else either, such as in titles and names for assistive technology.
        assert not re.search("[\u202a-\u202e\u2066-\u2069]", page.content())


def test_a_megabyte_of_output_does_not_block_the_page(browser, open_page):
    program = GROUP.format(count=1) + 'step(envs[0], "x" * 1_000_000, "y" * 1_000_000)\nwait()'
    with running_trainer(program), watching() as address:
        page = open_page(address)
        with main_thread.recorded(browser) as load:
            page.click(".tile")
            page.wait_for_selector("#detail .output")
            assert len(page.inner_text("#detail .output")) < 1300
            page.click("text=/Show all 8,0.. characters/")
            assert "characters are left out" in page.inner_text("#detail .output")
            page.evaluate("new Promise(requestAnimationFrame)")
        assert load.longest_task < 0.5


def test_pause_freezes_the_page(open_page):
    program = (
        GROUP.format(count=1)
        + """
def run():
    number = 0
    while True:
        number += 1
        step(envs[0], f"print({number})")
        time.sleep(0.01)
threading.Thread(target=run, daemon=True).start()
wait()
"""
    )
    with running_trainer(program), watching() as address:
        page = open_page(address)
        code = page.locator(".tile-code")
        first = code.inner_text()
        assert eventually(lambda: code.inner_text() != first)
        assert float(page.inner_text("#rate").replace(",", "")) >= 0
        page.click("text=Pause")
        frozen = code.inner_text()
        time.sleep(1.5)
        page.select_option(".filters label:has-text('order') select", "steps")
        assert code.inner_text() == frozen
        assert page.inner_text(".app-header .badge") == "paused"
        page.click("text=Resume")
        assert eventually(lambda: code.inner_text() != frozen)


def test_trainer_that_is_killed(six):
    page, trainer = six
    trainer.kill()
    page.wait_for_selector("text=The trainer died at")
    assert tiles(page).count() == 6, "its last picture stays"
    frozen = page.inner_text("#tile-1-5 .tile-state")
    time.sleep(1.2)
    assert page.inner_text("#tile-1-5 .tile-state") == frozen
    page.click(".tile")
    page.wait_for_selector("text=its steps are gone")


def test_trainer_that_ends(open_page):
    with running_trainer(SIX + "wait()\nfor env in envs: env.closed()\n") as trainer, watching() as address:
        page = open_page(address)
        page.wait_for_selector(".tile")
        tell(trainer)
        trainer.wait(10)
        page.wait_for_selector("text=The trainer ended at")
        assert tiles(page).count() == 6
        assert set(texts(page, ".tile-state")) == {"closed"}


def test_page_waits_for_a_trainer(open_page):
    with watching() as address:
        page = open_page(address)
        page.wait_for_selector("text=No trainer is running.")
        assert "CODING_GYM_WATCH=1 python train.py" in page.inner_text("#empty")
        with running_trainer(SIX + "wait()"):
            page.wait_for_selector(".tile")
            assert page.is_hidden("#empty h2")


def test_page_connects_again(open_page):
    with running_trainer(SIX + "wait()"):
        with watching() as address:
            port = re.search(r":(\d+)/", address)[1]
            page = open_page(address)
            page.wait_for_selector(".tile")
        page.wait_for_selector("text=The connection to coding-gym watch is lost.")
        assert tiles(page).count() == 6
        with watching("--port", port):
            # The token is another one.
            page.wait_for_selector(".app-header >> text=refused")


def test_several_processes(open_page):
    program = """
coding_gym_studio.watch("workers")
mine = session(); reset(mine)
children = []
for number in range(2):
    child = os.fork()
    if not child:
        env = session(); reset(env); step(env, f"worker {number}")
        time.sleep(100)
        os._exit(0)
    children.append(child)
print("ready", flush=True); sys.stdin.readline()
for child in children: os.kill(child, 9); os.waitpid(child, 0)
print("ready", flush=True); sys.stdin.readline()
"""
    with running_trainer(program) as trainer, watching() as address:
        page = open_page(address)
        assert eventually(lambda: tiles(page).count() == 3)
        assert len(set(texts(page, ".tile-index"))) == 3
        tell(trainer)
        page.wait_for_selector("text=2 processes have died")
        assert tiles(page).count() == 3
