from __future__ import annotations

import math
import re
import shutil

import msgspec
import pytest

from coding_gym.datasets.episode import Step
from plugins.studio.tests.viewer.conftest import fragment, serving
from plugins.studio.tests.viewer.datasets import episode, rich, varied, write, write_many
from tests.support.browser import main_thread
from tests.support.browser.accessibility import serious_violations

MOST_BYTES = 300_000


@pytest.fixture
def show(open_tab, serve, varied_path):
    """Open the page of the shared dataset at a route."""
    address = serve(varied_path)

    def open_route(route="/", *, ready=".row [href], .step-row, .compare-cell", **options):
        page = open_tab(**options)
        page.goto(f"{address}{fragment(route)}")
        page.wait_for_selector(ready)
        return page

    return open_route


def go(page, route):
    """Show another route in a page."""
    address = page.url.partition("#")[0]
    page.goto("about:blank")
    page.goto(f"{address}{fragment(route)}")
    page.wait_for_selector(".row [href], .step-row, .compare-cell, .empty h2")
    page.wait_for_load_state("networkidle")
    return page


def shown_episodes(page):
    return [int(text) for text in page.locator(".grid-body .cell.episode").all_inner_texts()]


def wait_for_count(page, text, *, seconds=15):
    expression = "text => document.querySelector('.count-line strong')?.textContent === text"
    page.wait_for_function(expression, arg=text, timeout=seconds * 1000)


def test_list_shows_all_episodes(show):
    page = show()
    wait_for_count(page, "60 episodes")
    assert shown_episodes(page)[:4] == [0, 1, 2, 3]
    first = page.locator(".grid-body .row").first
    # Times follow the rows, once the server has read the details of all episodes.
    first.get_by_text("140 ms").wait_for()
    assert re.split(r"\s+", first.inner_text().strip()) == [
        "0", "tasks/first", "solved", "ok", "2", "/", "2", "1", "1", "140", "ms"
    ]  # fmt: skip


def test_token_leaves_the_address_and_is_kept(show):
    page = show()
    assert "token" not in page.url
    page.reload()
    page.wait_for_selector(".row [href]")


def test_page_without_token_asks_for_it(show, open_tab, serve, varied_path):
    page = open_tab()
    address = serve(varied_path)
    page.goto(address)
    page.wait_for_selector("input[name=token]")
    page.traffic.problems.clear()
    page.fill("input[name=token]", f"{address}{fragment()}")
    page.get_by_role("button", name="Open").click()
    page.wait_for_selector(".row [href]")


def test_filters_select_episodes_and_stay_in_the_address(show):
    page = show()
    page.get_by_label("Result", exact=True).select_option("solved")
    wait_for_count(page, "12 of 60 episodes")
    page.get_by_label("Reward of at least").fill("1.5")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=No episode matches")
    page.get_by_role("button", name="Clear the filters").click()
    wait_for_count(page, "60 episodes")
    page.get_by_label("Search tasks").fill("second")
    wait_for_count(page, "12 of 60 episodes")
    assert shown_episodes(page)[:3] == [1, 6, 11]
    page.reload()
    wait_for_count(page, "12 of 60 episodes")
    page.get_by_label("Search tasks").fill("17")
    wait_for_count(page, "1 of 60 episodes")


def test_columns_sort_in_both_directions(show):
    page = show()
    wait_for_count(page, "60 episodes")
    page.get_by_role("button", name="Reward").click()
    page.wait_for_selector("[aria-sort=descending]")
    assert shown_episodes(page)[:3] == [0, 5, 10]
    page.get_by_role("button", name="Reward").click()
    page.wait_for_selector(".cell.reward[aria-sort=ascending]")
    assert shown_episodes(page)[:3] == [2, 7, 12]


def test_unknown_rewards_and_tests_are_last(open_tab, tmp_path):
    rewards = [math.nan, -1.0, math.inf, 0.25]
    steps = [Step(observation={}, action="", reward=reward, truncated=True, info={}) for reward in rewards]
    episodes = [*(episode(index, steps=[step]) for index, step in enumerate(steps)), episode(4)]
    path = write(tmp_path / "unknown", [*episodes, episode(5, solved=False)])
    _damage(path, 4)
    with serving(path) as address:
        page = open_tab()
        page.goto(f"{address}{fragment('/?sort=reward')}")
        wait_for_count(page, "6 episodes")
        page.wait_for_selector(".row .badge >> text=damaged")
        assert shown_episodes(page) == [1, 3, 5, 0, 2, 4]
        assert page.locator(".grid-body .cell.reward").all_inner_texts() == ["\u22121", "0.25", "0.5", *["\u2013"] * 3]
        page.get_by_role("button", name="Tests").click()
        page.wait_for_selector(".cell.passed[aria-sort=descending]")
        assert shown_episodes(page)[0] == 5
        page.get_by_role("button", name="Tests").click()
        page.wait_for_selector(".cell.passed[aria-sort=ascending]")
        assert shown_episodes(page)[0] == 5
        page.get_by_label("Reward of at most").fill("0.3")
        page.keyboard.press("Enter")
        wait_for_count(page, "2 of 6 episodes")


def test_click_on_a_bar_filters(show):
    page = show()
    wait_for_count(page, "60 episodes")
    page.get_by_role("button", name="unsolved: 12 of 12 episodes").click()
    wait_for_count(page, "12 of 60 episodes")
    page.get_by_role("group", name="Rewards").get_by_role("button").first.click()
    wait_for_count(page, "0 of 60 episodes")
    assert page.locator("table.data").count() == 5


def test_missing_outcomes_can_be_selected(open_tab, tmp_path):
    step = Step(observation={}, action="", truncated=True, info={})
    with serving(write(tmp_path / "missing", [episode(0), episode(1, steps=[step])])) as address:
        page = open_tab()
        page.goto(f"{address}{fragment()}")
        wait_for_count(page, "2 episodes")
        page.get_by_role("button", name="none: 1 of 1 episodes").click()
        wait_for_count(page, "1 of 2 episodes")
        assert shown_episodes(page) == [1]
        assert page.get_by_label("Outcome", exact=True).input_value() == "none"
        page.get_by_role("button", name="none: 1 of 1 episodes").click()
        wait_for_count(page, "2 episodes")
        page.get_by_label("Outcome", exact=True).select_option("none")
        wait_for_count(page, "1 of 2 episodes")


def test_thousands_of_outcomes_have_few_bars(open_tab, tmp_path):
    steps = [Step(observation={}, action="", truncated=True, info={"outcome": f"outcome {index}"}) for index in range(2000)]
    episodes = [episode(index, steps=[step]) for index, step in enumerate(steps)]
    with serving(write(tmp_path / "outcomes", episodes, with_details=False)) as address:
        page = open_tab()
        page.goto(f"{address}{fragment()}")
        wait_for_count(page, "2,000 episodes")
        outcomes = page.get_by_role("group", name="Outcomes of the last step")
        assert outcomes.locator(".bar").count() == 51
        assert outcomes.get_by_role("button", name="1,950 others: 1,950 of 1,950 episodes").is_disabled()
        assert page.get_by_label("Outcome", exact=True).locator("option").count() == 52


def test_episode_shows_code_output_pictures_verdict(show):
    page = show("/episode/1/step/1")
    page.wait_for_selector(".code .hljs-built_in")
    assert page.locator(".tab-panel").inner_text() == "print(1)\n"
    page.get_by_role("tab", name="Output").click()
    page.wait_for_selector(".output >> text=1")
    page.get_by_role("tab", name="Verdict").click()
    page.wait_for_selector("text=1 of 2 tests passed")
    assert page.locator(".tests tbody tr").count() == 2
    assert page.locator(".tests tbody tr").nth(1).locator("td").nth(2).inner_text() == "250 ms"
    page.get_by_role("tab", name="Raw").click()
    page.wait_for_selector('.output >> text="tests_total": 2')


def test_screens_are_a_film_and_comparable(show):
    page = show("/episode/3/step/3?tab=screen")
    page.wait_for_function(
        "() => [...document.querySelectorAll('.film img, figure img')].every((image) => image.naturalWidth === 64)"
    )
    assert page.locator(".frame").count() == 3
    before = page.locator("figure img").get_attribute("src")
    page.get_by_role("button", name="Before").click()
    page.wait_for_function(
        "src => document.querySelector('figure img[src^=blob]') && document.querySelector('figure img').src !== src",
        arg=before,
    )


def test_segments_are_as_wide_as_steps_took(show):
    page = show("/episode/3")
    # Times follow the steps, in their own response.
    page.wait_for_function(
        """(ratio) => {
            const widths = [...document.querySelectorAll('.segment')].map((one) => one.getBoundingClientRect().width);
            return Math.abs(widths[4] / widths[1] / ratio - 1) < 0.1;
        }""",
        arg=0.42 / 0.12,
    )


def test_everything_works_with_the_keyboard(show):
    page = show()
    wait_for_count(page, "60 episodes")
    page.keyboard.press("/")
    page.keyboard.type("first")
    wait_for_count(page, "12 of 60 episodes")
    page.keyboard.press("Enter")
    page.keyboard.press("j")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("k")
    page.keyboard.press("c")
    page.keyboard.press("j")
    page.keyboard.press("c")
    page.wait_for_selector("text=Compare 5 and 10")
    page.keyboard.press("Enter")
    page.wait_for_selector("h1 >> text=Episode 10")
    page.keyboard.press("]")
    page.wait_for_selector("h1 >> text=Episode 15")
    page.keyboard.press("k")
    page.wait_for_selector("h2 >> text=Reset")
    page.keyboard.press("j")
    page.wait_for_selector("h2 >> text=Step 1")
    page.keyboard.press("4")
    page.wait_for_selector("text=2 of 2 tests passed")
    page.keyboard.press("Escape")
    wait_for_count(page, "12 of 60 episodes")
    page.wait_for_function("() => document.activeElement.textContent === '15'")
    page.keyboard.press("Escape")
    wait_for_count(page, "60 episodes")


def test_two_episodes_are_side_by_side(show):
    page = show("/compare/0/1")
    page.wait_for_selector(".line.added")
    assert page.locator(".line.removed").inner_text().endswith("print(0)")
    assert page.locator(".line.added").inner_text().endswith("print(1)")
    page.get_by_role("link", name="Swap").click()
    page.wait_for_selector("h1 >> text=Episodes 1 and 0")


def test_long_code_is_compared_without_blocking(browser, open_tab, tmp_path):
    def recorded(index):
        code = ["".join(f"x = {number} + {index * (number > 150)}\n" for number in range(2000)) for _ in range(20)]
        steps = [Step(observation={}, action=action, info={"outcome": "ok"}) for action in code]
        return episode(index, steps=steps)

    with serving(write(tmp_path / "long", [recorded(0), recorded(1)])) as address:
        page = open_tab()
        with main_thread.recorded(browser) as load:
            page.goto(f"{address}{fragment('/compare/0/1')}")
            page.wait_for_selector(".line.added")
            page.wait_for_timeout(1500)
        assert load.longest_task < 0.5
        step = page.locator(".compare-step.is-filled").nth(1)
        assert step.locator(".line").count() <= 400
        assert step.locator(".line.added").count() > 0
        with main_thread.recorded(browser) as load:
            step.get_by_role("button", name="Show all").click()
            page.wait_for_function(
                "() => document.querySelectorAll('.compare-step.is-filled')[1].querySelectorAll('.line').length >= 4000"
            )
        assert load.longest_task < 0.5


def test_hostile_output_is_only_text(show):
    for route in (
        "/",
        "/episode/2/step/1?tab=output",
        "/episode/2/step/1?tab=raw",
        "/episode/2/step/1",
        "/compare/1/2",
        "/episode/1/step/1?tab=verdict",
    ):
        page = show(route)
        page.wait_for_timeout(300)
        assert page.evaluate("window.hacked") is None
        assert page.locator("main script, main img[src=x]").count() == 0
    page = show("/episode/2/step/1?tab=output")
    page.wait_for_selector(".output .ansi-red")
    text = page.locator(".output").inner_text()
    assert "<img src=x" in text
    assert "⟨U+202E⟩" in text
    assert "\x1b" not in text
    assert page.locator(".ansi-red").inner_text() == "red"


def test_texts_that_pretend_are_spelled_out(open_tab, tmp_path):
    step = Step(observation={}, action="x = 1 # \u202e", truncated=True, info={"outcome": "\u202eko"})
    task = msgspec.structs.replace(episode(1), options={"task_id": {"suite": "\u202e", "number": 1}})
    with serving(write(tmp_path / "bidi", [episode(0, task="a\u202eb", steps=[step]), task])) as address:
        page = open_tab()
        for route in ("/", "/episode/0/step/1", "/compare/0/1"):
            page.goto("about:blank")
            page.goto(f"{address}{fragment(route)}")
            page.wait_for_selector("main >> text=a⟨U+202E⟩b")
            page.wait_for_timeout(300)
            assert "\u202e" not in page.locator("main").inner_text()
        page.goto(f"{address}{fragment('/episode/1')}")
        page.wait_for_selector('.task-name >> text={"suite":"⟨U+202E⟩","number":1}')


def test_verdicts_have_colors_of_terminals(show):
    page = show("/episode/1/step/1?tab=verdict")
    assert page.locator(".tests .ansi-red").inner_text() == "red"
    assert "\x1b" not in page.locator(".tab-panel").inner_text()


def test_rich_results_are_shown(open_tab, tmp_path):
    with serving(write(tmp_path / "rich", [rich(0)])) as address:
        page = open_tab()
        page.goto(f"{address}{fragment('/episode/0/step/1?tab=output')}")
        page.wait_for_selector("h3 >> text=3 rich results")
        picture = page.locator(".results img")
        assert picture.evaluate("image => image.decode().then(() => [image.naturalWidth, image.naturalHeight])") == [80, 60]
        assert page.locator(".results [aria-label=value] .ansi-red").text_content().strip() == "a"
        assert '"numbers"' in page.locator(".results [aria-label=JSON]").text_content()
        # HTML is shown when it is asked for, where its scripts do not run.
        assert page.locator("iframe").count() == 0
        page.get_by_role("button", name="Show HTML").click()
        frame = page.frame_locator("iframe[sandbox='']")
        frame.locator("td >> text=1").wait_for()
        assert page.evaluate("window.hacked") is None
        assert page.locator(".results img, .results script").count() == 1
        # The frame's policy reports the script and the picture of another origin.
        page.traffic.problems.clear()


def test_progress_bars_show_their_last_state(open_tab, tmp_path):
    output = {"stdout": "".join(f"\r{share:3}% \x1b[32m{'#' * share}" for share in range(0, 101, 50)) + "\nnext line\n"}
    step = Step(observation=output, action="tqdm", info={"outcome": "ok"})
    with serving(write(tmp_path / "bars", [episode(0, steps=[step])])) as address:
        page = open_tab()
        page.goto(f"{address}{fragment('/episode/0/step/1?tab=output')}")
        page.wait_for_selector("text=next line")
        text = page.locator(".output").text_content()
        assert text.startswith("100% ###")
        assert "50%" not in text


def test_megabyte_of_output_does_not_block(browser, show):
    page = show("/episode/4/step/1?tab=output")
    page.wait_for_selector("text=characters are shown")
    with main_thread.recorded(browser) as load:
        page.get_by_role("button", name="Show all").click()
        page.wait_for_function("() => document.querySelector('.output').textContent.includes('line 34999 of')")
    assert load.longest_task < 0.5


def test_hundred_thousand_episodes_are_listed(open_tab, tmp_path):
    with serving(write_many(tmp_path / "many", 100_000)) as address:
        page = open_tab()
        page.goto(f"{address}{fragment()}")
        page.wait_for_selector(".row [href]")
        # Other tests use the processors, too.
        wait_for_count(page, "100,000 episodes", seconds=60)
        assert page.locator(".grid-body .row").count() < 60
        page.keyboard.press("End")
        page.wait_for_function("() => document.activeElement.textContent === '99999'")
        page.get_by_label("Search tasks").fill("99998")
        wait_for_count(page, "1 of 100,000 episodes")


def test_new_episodes_are_offered(open_tab, tmp_path):
    path = write(tmp_path / "growing", [varied(0)], requested=3)
    with serving(path) as address:
        page = open_tab()
        page.goto(f"{address}{fragment()}")
        wait_for_count(page, "1 episode")
        page.wait_for_selector("text=2 of 3 are not recorded yet")
        write(path, [varied(1), varied(3)], requested=3)
        page.wait_for_selector("text=2 new episodes")
        page.get_by_role("button", name="Show").click()
        wait_for_count(page, "3 episodes")


def test_empty_dataset_says_so(open_tab, tmp_path):
    with serving(write(tmp_path / "empty", [], requested=5)) as address:
        page = open_tab()
        page.goto(f"{address}{fragment()}")
        page.wait_for_selector("text=There are no episodes yet")


def _damage(path, position):
    """Change a byte of the episode at a position of the file."""
    log = path / "episodes.log"
    data = bytearray(log.read_bytes())
    start = [found.start() for found in re.finditer(rb"\x28\xb5\x2f\xfd", data)][position]
    data[start + 20] ^= 0xFF
    log.write_bytes(data)


def test_damaged_episode_is_marked(open_tab, tmp_path):
    path = write(tmp_path / "damaged", [varied(0), varied(1), episode(2)])
    _damage(path, 1)
    with serving(path) as address:
        page = open_tab()
        page.goto(f"{address}{fragment()}")
        wait_for_count(page, "3 episodes")
        assert page.locator(".row .badge >> text=damaged").count() == 1
        page.get_by_role("link", name="1", exact=True).click()
        page.wait_for_selector("text=its checksum does not match")
        page.traffic.problems.clear()


def test_stopped_server_is_reported(open_tab, tmp_path):
    with serving(write(tmp_path / "short", [varied(0)])) as address:
        page = open_tab()
        page.goto(f"{address}{fragment()}")
        wait_for_count(page, "1 episode")
    page.wait_for_selector("text=The server does not answer")
    assert page.locator(".grid-body .row").count() == 1
    page.traffic.problems.clear()


def test_deleted_dataset_is_reported(open_tab, tmp_path):
    path = write(tmp_path / "short", [varied(0)])
    with serving(path) as address:
        shutil.rmtree(path)
        page = open_tab()
        page.goto(f"{address}{fragment('/episode/0')}")
        page.wait_for_selector(".empty h2")
        page.traffic.problems.clear()


def test_dataset_deleted_while_open_is_reported(open_tab, tmp_path):
    path = write(tmp_path / "short", [varied(0)])
    with serving(path) as address:
        page = open_tab()
        page.goto(f"{address}{fragment()}")
        wait_for_count(page, "1 episode")
        shutil.rmtree(path)
        page.wait_for_selector("#banner >> text=No such file")
        assert page.locator(".grid-body .row").count() == 1


@pytest.mark.parametrize("route", ["/", "/episode/1/step/1", "/compare/0/3"])
def test_first_load_is_small(show, route):
    page = show(route)
    page.wait_for_load_state("networkidle")
    assert 20_000 < page.traffic.transferred < MOST_BYTES


def test_accessibility(show):
    page = show()
    routes = [
        "/",
        "/?text=nothing",
        "/episode/1/step/1?tab=code",
        "/episode/2/step/1?tab=output",
        "/episode/3/step/1?tab=screen",
        "/episode/1/step/1?tab=verdict",
        "/episode/2/step/1?tab=raw",
        "/compare/1/3",
    ]
    assert {route: found for route in routes if (found := serious_violations(go(page, route)))} == {}


def test_phone_has_no_horizontal_scrolling(show):
    page = show(width=360, height=740, is_mobile=True, has_touch=True)
    routes = ["/", "/episode/3/step/2?tab=screen", "/episode/2/step/1?tab=output", "/compare/0/3"]
    widths = {route: go(page, route).evaluate("document.documentElement.scrollWidth") for route in routes}
    assert {route: width for route, width in widths.items() if width > 360} == {}


@pytest.mark.parametrize("width", [360, 900, 1280])
def test_long_names_and_headings_fit(open_tab, tmp_path, width):
    with serving(write(tmp_path / ("d" * 80), [episode(0, task="x" * 300, solved=True)])) as address:
        for route in ("/", "/episode/0/step/1"):
            page = open_tab(width=width)
            page.goto(f"{address}{fragment(route)}")
            page.wait_for_selector(".row [href], .step-row")
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            clipped = "cells => cells.filter((cell) => cell.scrollWidth > cell.clientWidth).length"
            assert page.locator(".row.head .cell").evaluate_all(clipped) == 0
