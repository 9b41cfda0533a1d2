"""The page itself: layouts, themes, keyboard, accessibility, size."""

from __future__ import annotations

from tests.support.browser.accessibility import serious_violations

MOST_BYTES = 300_000
CODE = "import sys\nprint('out', 'x' * 300)\nprint('err', file=sys.stderr)\nopen('a.txt', 'w').close()\n1 / 0"


def test_page_fits_its_window(open_workbench):
    workbench = open_workbench()
    workbench.run(CODE, "error")
    for width, height in [(360, 740), (768, 1024), (1280, 800), (3840, 2160)]:
        workbench.page.set_viewport_size({"width": width, "height": height})
        assert not workbench.is_wider_than_its_window(), width
        workbench.page.get_by_role("button", name="Reset …").click()
        box = workbench.page.locator("#reset-dialog").bounding_box()
        assert box["x"] >= 0, width
        assert box["x"] + box["width"] <= width
        workbench.page.keyboard.press("Escape")


def test_all_panels_are_visible_on_a_large_screen(open_workbench):
    page = open_workbench(width=3840, height=2160).page
    assert page.get_by_role("tab").count() == 0
    for name in ("Screen", "Files", "Session"):
        assert page.get_by_role("heading", name=name, exact=True).is_visible()


def test_page_is_accessible(open_workbench):
    workbench = open_workbench()
    assert serious_violations(workbench.page) == []
    workbench.run(CODE, "error")
    for tab in ("Screen", "Files", "Session"):
        workbench.select(tab)
        workbench.page.wait_for_timeout(200)
        assert serious_violations(workbench.page) == [], tab
    workbench.page.get_by_role("button", name="Reset …").click()
    assert serious_violations(workbench.page) == []


def test_phone_is_accessible(open_workbench):
    workbench = open_workbench(width=360, height=740)
    workbench.run(CODE, "error")
    assert serious_violations(workbench.page) == []


def test_screen_is_reachable_on_a_phone(open_workbench):
    workbench = open_workbench(width=360, height=740)
    for _ in range(3):
        workbench.run("for n in range(40): print(n)")
    page = workbench.page
    page.get_by_role("link", name="Screen").click()
    page.wait_for_function(
        "() => { const top = document.querySelector('#side').getBoundingClientRect().top; return top >= 0 && top < 400 }"
    )
    assert page.get_by_role("tab", name="Screen").get_attribute("aria-selected") == "true"


def test_theme_is_chosen_and_kept(open_workbench):
    workbench = open_workbench(color_scheme="light")
    background = "getComputedStyle(document.body).backgroundColor"
    light = workbench.page.evaluate(background)
    workbench.page.get_by_role("button", name="Dark").click()
    dark = workbench.page.evaluate(background)
    assert dark != light
    workbench.page.reload()
    workbench.wait_until_connected()
    assert workbench.page.evaluate(background) == dark


def test_page_is_usable_with_the_keyboard_only(open_workbench):
    workbench = open_workbench()
    page, keyboard = workbench.page, workbench.page.keyboard
    keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the code"
    keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "code"
    keyboard.type("6 * 7")
    keyboard.press("Control+Enter")
    workbench.newest.locator(".stream-value").wait_for()
    keyboard.press("Escape")
    seen = []
    for _ in range(20):
        keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.textContent.trim() || document.activeElement.tagName"))
        assert page.evaluate("document.activeElement.matches(':focus-visible')")
        if seen[-1] == "Screen":
            break
    assert {"Run", "Edit", "Screen"} <= set(seen)
    keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.textContent.trim()") == "Files"
    page.get_by_text("No files here").wait_for()


def test_first_load_is_small(open_workbench):
    page = open_workbench().page
    page.wait_for_load_state("networkidle")
    assert 20_000 < page.traffic.transferred < MOST_BYTES


def test_draft_survives_a_reload(open_workbench):
    workbench = open_workbench()
    workbench.page.locator("#code").fill("unfinished = ")
    workbench.page.reload()
    workbench.wait_until_connected()
    assert workbench.page.locator("#code").input_value() == "unfinished = "
