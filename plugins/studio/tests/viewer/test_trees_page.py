"""The page of a saved tree in a browser."""

from __future__ import annotations

import contextlib
import re

import numpy as np
import pytest

from plugins.studio.tests.viewer.saved_trees import save_tree, serving
from tests.support.browser import main_thread
from tests.support.browser.accessibility import serious_violations

HOSTILE = "<script>document.title = 'owned'</script><img src=x onerror=\"document.title='owned'\"> \x1b[31m\u202e\0"
STEPS = [
    (0, "numbers = [3, 1, 2]", {"stdout": ""}, 0.25),
    (0, "import os", {}, 0.0),
    (1, "print(sorted(numbers))", {"stdout": "[1, 2, 3]\n", "solved": True, "reward": 1.0, "terminated": True}, 1.0),
    (1, "numbers.sort(", {"stderr": "SyntaxError", "outcome": "error", "exit_code": 1}, 0.0),
    (2, "while True: pass", {"outcome": "timeout"}, 0.0),
]


@pytest.fixture
def open_tree(open_tab, tmp_path):
    """Return a function that saves steps as a tree and opens its page."""
    with contextlib.ExitStack() as stack:

        def of(steps=STEPS, **options):
            path = tmp_path / "search.tree.jsonl"
            save_tree(path, steps)
            page = open_tab(**options)
            page.goto(stack.enter_context(serving(path)))
            page.wait_for_selector(".step.selected")
            return page

        yield of


def selected(page):
    """Return the label of the row that assistive technology has as active."""
    return page.evaluate(
        """() => {
            const tree = document.getElementById("outline");
            return document.getElementById(tree.getAttribute("aria-activedescendant")).getAttribute("aria-label").split(",")[0];
        }"""
    )


def wait_for(page, condition):
    """Wait until an expression is true. Playwright's own function evaluates strings in the page, which its policy forbids."""
    for _ in range(100):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(100)
    pytest.fail(f"The page never fulfilled {condition}")


def panel(page, node):
    """Return the text of the episode up to a node, once it is shown."""
    wait_for(page, f"document.querySelector('.step.selected')?.dataset.node === '{node}'")
    return page.inner_text("#episode")


def test_page_opens_with_the_best_episode(open_tree):
    page = open_tree()
    assert page.title() == "search.tree.jsonl · coding-gym"
    assert page.inner_text("#summary") == "6 nodes · CodingEnv-v0"
    assert selected(page) == "print(sorted(numbers))"
    text = panel(page, 3)
    assert "[1, 2, 3]" in text
    assert "solved" in text
    assert page.locator(".step.selected .code .hljs-built_in").count() > 0
    assert "token" not in page.url
    assert page.traffic.transferred < 300_000


def test_keys_walk_the_tree(open_tree):
    page = open_tree()
    visited = []
    for key in (
        "Home",
        "ArrowDown",
        "ArrowRight",
        "ArrowDown",
        "ArrowLeft",
        "ArrowLeft",
        "ArrowDown",
        "ArrowUp",
        "ArrowRight",
        "End",
    ):
        page.keyboard.press(key)
        visited.append(selected(page))
    assert visited == [
        "root",
        "numbers = [3",
        "print(sorted(numbers))",
        "numbers.sort(",
        "numbers = [3",
        "numbers = [3",
        "import os",
        "numbers = [3",
        "numbers = [3",
        "while True: pass",
    ]
    assert "timeout" in panel(page, 5)
    assert page.url.endswith("#/node/5")


def test_rows_say_their_place_and_state(open_tree):
    page = open_tree()
    row = page.locator("#node-1")
    attributes = {name: row.get_attribute(f"aria-{name}") for name in ("level", "setsize", "posinset", "expanded", "selected")}
    assert attributes == {"level": "2", "setsize": "2", "posinset": "1", "expanded": "true", "selected": "false"}
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert row.get_attribute("aria-expanded") == "false"
    assert row.get_attribute("aria-label").endswith("on the best path, 2 nodes below")
    assert page.locator("#node-3").count() == 0


def test_node_of_the_address_is_selected(open_tree):
    page = open_tree()
    page.goto(page.url.partition("#")[0] + "#/node/4")
    page.reload()
    page.wait_for_selector(".step.selected")
    assert selected(page) == "numbers.sort("


def test_whole_page_works_by_keyboard(open_tree):
    page = open_tree()
    page.keyboard.press("Shift+Tab")
    names = []
    for _ in range(12):
        names.append(
            page.evaluate("document.activeElement.ariaLabel || document.activeElement.innerText || document.activeElement.id")
        )
        page.keyboard.press("Shift+Tab")
    for name in (
        "Fold all",
        "Unfold all",
        "Best",
        "Selected",
        "Fit",
        "Zoom in",
        "Zoom out",
        "Dark theme",
        "Skip to the outline",
    ):
        assert name in names
    page.locator("#drawing").focus()
    for key in ("Home", "+", "-", "0", "Shift+ArrowLeft", "Enter"):
        page.keyboard.press(key)
    assert page.inner_text("#announcement").startswith("root")
    assert page.locator("[role=treeitem]").count() == 1


def test_click_on_the_drawing_selects_a_node(open_tree):
    page = open_tree()
    box = page.locator("#drawing").bounding_box()
    found = set()
    for x in range(10, int(box["width"]), 90):
        for y in range(10, int(box["height"]), 18):
            page.mouse.move(box["x"] + x, box["y"] + y)
            if page.evaluate("document.getElementById('drawing').style.cursor") == "pointer":
                page.mouse.click(box["x"] + x, box["y"] + y)
                found.add(selected(page))
    assert found == {"root", "numbers = [3", "import os", "print(sorted(numbers))", "numbers.sort(", "while True: pass"}


def test_drawing_zooms_and_moves(open_tree):
    page = open_tree()
    picture = "document.getElementById('drawing').toDataURL()"
    settle = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
    before = page.evaluate(picture)
    box = page.locator("#drawing").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    seen = {before}

    def changes(act):
        act()
        page.evaluate(settle)
        now = page.evaluate(picture)
        assert now not in seen
        seen.add(now)

    changes(lambda: page.mouse.wheel(0, -300))
    page.mouse.down()
    changes(lambda: page.mouse.move(box["x"] + 20, box["y"] + 30, steps=3))
    page.mouse.up()
    changes(lambda: page.get_by_role("button", name="Zoom in").click())
    changes(lambda: page.get_by_role("button", name="Zoom out").dblclick())
    page.get_by_role("button", name="Fit").click()
    page.evaluate(settle)
    assert selected(page) == "print(sorted(numbers))"


def test_output_is_text_and_never_markup(open_tree):
    page = open_tree([(0, HOSTILE, {"stdout": HOSTILE, "stderr": HOSTILE, "outcome": HOSTILE}, 1.0)])
    text = panel(page, 1)
    assert text.count("<script>document.title") >= 4
    assert page.title() == "search.tree.jsonl · coding-gym"
    assert page.locator("#workspace script, #workspace img, #workspace [onerror]").count() == 0


def test_long_output_is_shown_on_demand(open_tree):
    page = open_tree([(0, "x = '" + "long " * 300_000 + "'", {"stdout": "line\n" * 4000}, 1.0)])
    assert len(panel(page, 1)) < 20_000
    page.get_by_role("button", name=re.compile("Show all 1,500,006 characters")).click()
    wait_for(page, "document.querySelector('.step.selected .code').textContent.length === 1500006")
    page.get_by_role("button", name=re.compile("Show all 20,000 characters")).click()
    wait_for(page, "document.querySelector('.step.selected .output').textContent.length === 20000")


def test_long_episode_is_loaded_in_parts(open_tree):
    page = open_tree([(number, f"step({number})", {}, number / 50) for number in range(50)])
    for count in (20, 40, 51):
        wait_for(page, f"document.querySelectorAll('.step').length === {count}")
        if count < 51:
            page.locator(".earlier button").click()
    assert page.locator(".step h3").all_inner_texts() == ["Root", *(f"Step {number}" for number in range(1, 51))]


def test_screen_is_shown(open_tree):
    page = open_tree([(0, "draw()", {"screenshot": np.full((48, 64, 3), 90, np.uint8)}, 1.0)])
    wait_for(page, "document.querySelector('.screen')?.naturalWidth === 64")


def test_gone_server_is_reported(open_tree):
    page = open_tree()
    page.route("**/api/**", lambda route: route.abort())
    page.keyboard.press("Home")
    page.get_by_text("This episode did not load").wait_for()
    page.unroute("**/api/**")
    page.get_by_role("button", name="Try again").first.click()
    panel(page, 0)
    page.traffic.problems.clear()


def test_missing_token_is_reported(open_tree):
    page = open_tree()
    page.evaluate("sessionStorage.clear()")
    page.reload()
    page.get_by_text("This server requires a token").wait_for()
    page.traffic.problems.clear()


@pytest.mark.parametrize("width", [360, 1280])
def test_page_is_accessible(open_tree, width):
    page = open_tree(width=width)
    if width == 360:
        page.locator("summary").click()
    assert serious_violations(page) == []


def test_phone_begins_with_the_outline(open_tree):
    page = open_tree(width=360, height=740, has_touch=True)
    assert not page.locator("#drawing").is_visible()
    assert page.locator("#outline").bounding_box()["y"] < 300
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    page.locator("#node-4").tap()
    assert "SyntaxError" in panel(page, 4)
    page.locator("summary").click()
    assert page.locator("#drawing").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") == 360


def test_theme_is_switched(open_tree):
    page = open_tree(color_scheme="light")
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.get_by_role("button", name="Dark theme").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light
    page.get_by_role("button", name="Light theme").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == light


def test_ten_thousand_nodes_stay_fluid(browser, open_tree):
    steps = [
        (number // 3, f"value_{number} = compute({number})", {"stdout": f"{number}\n"}, number % 7 / 7)
        for number in range(10_000)
    ]
    page = open_tree(steps)
    assert page.locator("[role=treeitem]").count() < 100
    page.get_by_role("button", name="Unfold all").click()
    page.get_by_role("button", name="Fit").click()
    assert page.locator("[role=treeitem]").count() < 100
    page.locator("#outline").focus()
    with main_thread.recorded(browser) as load:
        for key in ("End", "Home", *["ArrowDown"] * 50):
            page.keyboard.press(key)
        page.evaluate(
            """async () => {
                const canvas = document.getElementById("drawing");
                for (let frame = 0; frame < 30; frame++) {
                    const wheel = { deltaY: -20, clientX: 600, clientY: 400, cancelable: true };
                    canvas.dispatchEvent(new WheelEvent("wheel", wheel));
                    await new Promise(requestAnimationFrame);
                }
            }"""
        )
    assert load.longest_task < 0.3


def test_deep_chain_is_drawn(open_tree):
    page = open_tree([(number, f"step({number})", {}, number / 3000) for number in range(600)])
    assert selected(page) == "step(599)"
    page.get_by_role("button", name="Unfold all").click()
    page.locator("#outline").focus()
    page.keyboard.press("Home")
    assert "600 nodes below" not in page.locator("#node-0").get_attribute("aria-label")
    assert panel(page, 0)
