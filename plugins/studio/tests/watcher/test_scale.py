"""Thousands of sessions, sizes of screens, and the weight of the page."""

from __future__ import annotations

import pytest

from plugins.studio.tests.watcher.conftest import watching
from plugins.studio.tests.watcher.test_page import GROUP, SIX, tiles
from plugins.studio.tests.watching.trainers import running_trainer
from tests.support.browser import main_thread
from tests.support.browser.accessibility import serious_violations
from tests.support.timing import eventually

pytestmark = pytest.mark.usefixtures("runtime_directory")

THOUSANDS = (
    GROUP.format(count=4096)
    + """
def run():
    number = 0
    while True:
        for env in envs:
            number += 1
            step(env, f"print({number})\\nx = [{number}]", f"{number}\\n", outcome="ok" if number % 7 else "error")
            if number % 64 == 0: time.sleep(0.02)
threading.Thread(target=run, daemon=True).start()
wait()
"""
)

FRAMES = """() => new Promise((resolve) => {
    let count = 0; const begun = performance.now();
    function frame(now) {
        count++;
        scrollBy(0, 400);
        if (now - begun > 4000) resolve(count);
        else requestAnimationFrame(frame);
    }
    requestAnimationFrame(frame);
})"""


def test_four_thousand_sessions_stay_smooth(browser, open_page):
    with running_trainer(THOUSANDS), watching() as address:
        page = open_page(address)
        page.wait_for_selector(".tile")
        assert "4,096" in page.inner_text("#filters")
        page.select_option(".filters label:has-text('tiles') select", "detailed")
        assert eventually(lambda: page.locator(".tile-code").first.is_visible())
        assert tiles(page).count() < 80
        with main_thread.recorded(browser) as load:
            assert page.evaluate(FRAMES) > 20
        # A page that renders all tiles takes seconds for one frame.
        assert load.longest_task < 0.4
        page.focus("#grid")
        page.keyboard.press("End")
        page.wait_for_selector(".tile.active >> text=#4095")
        assert page.locator(".tile.active").get_attribute("aria-posinset") == "4096"
        page.select_option(".filters label:has-text('tiles') select", "compact")
        assert eventually(lambda: tiles(page).count() > 100)


def test_first_load_is_light(browser):
    with running_trainer(SIX + "wait()"), watching() as address:
        context = browser.new_context()
        page = context.new_page()
        sizes = {}
        page.on("requestfinished", lambda request: sizes.update({request.url: request.sizes()["responseBodySize"]}))
        page.goto(address)
        page.wait_for_selector(".tile")
        page.wait_for_timeout(500)
        context.close()
    loaded = {url: size for url, size in sizes.items() if "/api/" not in url}
    assert len(loaded) > 10
    assert sum(loaded.values()) < 300_000


def test_nothing_overflows(open_page):
    with running_trainer(SIX + "wait()"), watching() as address:
        page = open_page(address)
        page.wait_for_selector(".tile")
        for width in (360, 768, 1280, 3840):
            page.set_viewport_size({"width": width, "height": 800})
            page.wait_for_function("width => document.documentElement.scrollWidth <= width", arg=width)
            page.click(".tile")
            page.wait_for_selector("#detail .step")
            page.wait_for_function("width => document.documentElement.scrollWidth <= width", arg=width)
            if width == 360:
                box = page.locator("#detail").bounding_box()
                assert (box["x"], box["width"]) == (0, 360)
                assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Close the details"
            page.keyboard.press("Escape")
            page.wait_for_selector("#detail", state="hidden")


def test_accessibility(open_page):
    with watching() as address:
        page = open_page(address)
        page.wait_for_selector("text=No trainer is running.")
        assert serious_violations(page) == []
        with running_trainer(SIX + "wait()") as trainer:
            page.wait_for_selector(".tile")
            assert serious_violations(page) == []
            page.click(".tile")
            page.wait_for_selector("#detail .step")
            assert serious_violations(page) == []
            page.select_option(".filters label:has-text('tiles') select", "compact")
            page.wait_for_selector(".grid.compact")
            assert serious_violations(page) == []
            trainer.kill()
            page.wait_for_selector("text=The trainer died at")
            assert serious_violations(page) == []
