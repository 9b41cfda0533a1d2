"""Code, its output, and what else came of it."""

from __future__ import annotations

import re

import pytest

from tests.support.browser import main_thread

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
HOSTILE = """
print("<script>document.title = 'hacked'</script><img src=x onerror=\\"document.title='hacked'\\">")
print("\\x1b]0;title\\x07\\x1b[31mred\\x1b[0m\\x1b[2J\\x1b[999;999H plain \\x00\\x08\\x7f")
print("\\u202eright to left \\u05e9\\u05dc\\u05d5\\u05dd \\ud83d\\ude00 \\u0007 \\N{DUCK}")
print("10%\\r50%\\r100%")
"""


def texts(run, stream):
    return [text.rstrip("\n") for text in run.locator(f".stream-{stream} .output").all_text_contents()]


def test_streams_and_value_are_told_apart(workbench):
    run = workbench.run("import sys\nprint('out')\nprint('err', file=sys.stderr)\n6 * 7")
    assert (texts(run, "stdout"), texts(run, "stderr"), texts(run, "value")) == (["out"], ["err"], ["42"])
    assert re.fullmatch(r"exit code 0 · [\d.]+ m?s", run.locator(".cell-facts").inner_text())
    assert "Run 1: ok" in workbench.page.locator("#announcements").inner_text()


def test_variables_stay_from_run_to_run(workbench):
    workbench.run("x = 20")
    assert texts(workbench.run("x + 1"), "value") == ["21"]


@pytest.mark.parametrize(
    ("code", "outcome", "exit_code", "text"),
    [
        ("def f():\n    1 / 0\n\nf()", "error", 1, "ZeroDivisionError: division by zero"),
        ("def f(:", "error", 1, "SyntaxError"),
        ("import sys; print('bye'); sys.exit(3)", "error", 3, "bye"),
        ("import os; os._exit(7)", "killed", 7, "variables were lost"),
    ],
)
def test_failures_are_explained(workbench, code, outcome, exit_code, text):
    run = workbench.run(code, outcome)
    assert f"exit code {exit_code}" in run.text_content()
    assert text in run.locator(".cell-output").text_content()


def test_time_limit_ends_a_run(workbench):
    workbench.page.get_by_label("Time limit of a run in seconds").fill("0.5")
    workbench.page.get_by_label("Time limit of a run in seconds").press("Tab")
    run = workbench.run("while True: pass", "timeout")
    assert "exit code 124" in run.text_content()
    assert "ran longer than its time limit" in run.text_content()


def test_output_is_shown_while_code_runs(workbench):
    workbench.start("import time\nprint('first')\ntime.sleep(60)")
    workbench.newest.get_by_text("first", exact=True).wait_for()
    assert "running" in workbench.newest.text_content()
    workbench.page.get_by_role("button", name="Interrupt").click()
    workbench.newest.locator(".badge", has_text="error").wait_for()
    assert "KeyboardInterrupt" in workbench.newest.text_content()


def test_output_that_arrives_in_parts_is_that_of_a_terminal(workbench):
    parts = ["a\\r", "\\n", "0%", "\\r50", "%\\r", "100%", " \\x1b[3", "1mred", "\\nnext\\x1b[", "0m plain"]
    code = "import sys, time\nfor part in [" + ", ".join(f"'{part}'" for part in parts) + "]:\n"
    workbench.start(f"{code}    sys.stdout.write(part); sys.stdout.flush(); time.sleep(0.3)\ntime.sleep(60)")
    shown = workbench.newest.locator(".stream-stdout .output")
    shown.get_by_text(" plain").wait_for()
    assert shown.text_content() == "a\n100% red\nnext plain"
    assert "".join(shown.locator(".ansi-red").all_text_contents()).split() == ["red", "next"]
    workbench.page.get_by_role("button", name="Interrupt").click()
    workbench.newest.locator(".badge", has_text="error").wait_for()
    assert shown.text_content() == "a\n100% red\nnext plain"


def test_hostile_output_is_text(workbench):
    run = workbench.run(HOSTILE)
    (shown,) = texts(run, "stdout")
    lines = shown.split("\n")
    assert lines[0].startswith("<script>")
    assert lines[1].startswith("red plain ")
    assert "\x1b" not in shown
    assert lines[3] == "100%"
    assert run.locator(".stream-stdout .ansi-red").inner_text() == "red"
    assert run.locator("script, .stream img").count() == 0
    assert workbench.page.title() == "coding_gym workbench"


def test_megabyte_of_output_does_not_block_the_page(browser, workbench):
    workbench.reset(max_output_chars="2000000")
    workbench.page.locator("#reset-dialog").wait_for(state="hidden")
    run = workbench.run("for n in range(100_000): print(n, 'abc')\nprint('x' * 500_000)")
    assert len(texts(run, "stdout")[0]) < 50_000
    with main_thread.recorded(browser) as load:
        run.get_by_role("button", name=re.compile("Show all .* characters")).click()
        workbench.page.wait_for_function("() => document.querySelector('.stream-stdout pre').textContent.length > 1_400_000")
    assert load.longest_task < 0.5
    assert texts(workbench.run("1 + 1"), "value") == ["2"]


def test_html_is_shown_on_request_and_without_scripts(workbench):
    code = (
        "class Page:\n"
        "    def _repr_html_(self): return '<p>shown</p><script>parent.document.title = 1</script>"
        '<img src="http://192.0.2.1/x.png">\'\n'
        "    def __repr__(self): return 'Page()'\n"
        "Page()"
    )
    run = workbench.run(code)
    assert texts(run, "value") == ["Page()"]
    assert run.locator("iframe").count() == 0
    run.get_by_role("button", name="Show HTML").click()
    workbench.page.frame_locator(".cell iframe").get_by_text("shown").wait_for()
    assert run.locator("iframe").get_attribute("sandbox") == ""
    assert workbench.page.title() == "coding_gym workbench"
    problems = workbench.page.traffic.problems
    assert any("Blocked script execution" in problem for problem in problems)
    assert any("Content Security Policy" in problem for problem in problems)
    problems.clear()
    workbench.page.traffic.hosts.discard("192.0.2.1")


def test_pictures_are_shown(workbench):
    code = f"import base64\nclass Picture:\n    def _repr_png_(self): return base64.b64decode({PNG!r})\nPicture()"
    picture = workbench.run(code).locator(".result-picture")
    assert picture.evaluate("async element => { await element.decode(); return element.naturalWidth; }") == 1


def test_most_results_are_left_out_of_many(workbench):
    run = workbench.run(
        "class Page:\n    def _repr_html_(self): return '<p>shown</p>'\nfor number in range(250): display(Page())\n6 * 7"
    )
    shown = run.locator(".results > *").all_text_contents()
    assert len(shown) == 201
    assert shown[100] == "… 51 results left out …"


def test_page_keeps_the_beginning_and_the_end_of_output(workbench):
    text = workbench.page.evaluate("""async () => {
        const { StreamOutput } = await import("/web/static/workbench/output.js");
        const output = new StreamOutput("stdout");
        for (let number = 0; number < 300; number++) output.add(`${number} ` + "x".repeat(9_990) + "\\n");
        document.querySelector("main").append(output.element);
        output.button.click();
        for (let number = 300; number < 400; number++) output.add(`${number} ` + "x".repeat(9_990) + "\\n");
        while (!output.lineElement.isConnected) await new Promise(requestAnimationFrame);
        return output.pre.textContent;
    }""")
    assert text.startswith("0 x")
    assert text.endswith("x\n")
    assert "\n399 x" in text
    assert len(text) < 2_100_000
    left_out = re.search("… ([0-9,]+) characters left out …", text)
    total = sum(len(str(number)) + 9_992 for number in range(400))
    assert int(left_out[1].replace(",", "")) + len(text) - len(left_out[0]) == total


def test_svg_is_shown_on_request(workbench):
    code = (
        "class Picture:\n"
        "    def _repr_svg_(self):\n"
        '        return \'<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20"><title>it\\\'s</title></svg>\'\n'
        "Picture()"
    )
    run = workbench.run(code)
    assert run.locator("iframe, img").count() == 0
    run.get_by_role("button", name="Show picture").click()
    picture = workbench.page.frame_locator(".cell iframe").locator("img")
    assert picture.evaluate("async element => { await element.decode(); return element.naturalWidth; }") == 40
    assert run.locator("iframe").get_attribute("sandbox") == ""


def test_png_is_preferred_to_svg(workbench):
    code = (
        "import base64\nclass Picture:\n"
        f"    def _repr_png_(self): return base64.b64decode({PNG!r})\n"
        "    def _repr_svg_(self): return '<svg xmlns=\"http://www.w3.org/2000/svg\"/>'\n"
        "Picture()"
    )
    run = workbench.run(code)
    assert run.locator(".result-picture").count() == 1
    assert run.get_by_role("button", name="Show picture").count() == 0


def test_next_run_leaves_earlier_runs_as_they_are(workbench):
    run = workbench.run("for n in range(200): print(n)")
    run.locator(".output").evaluate("element => { element.scrollTop = 500; element.focus(); element.id = 'kept'; }")
    workbench.page.evaluate(
        "() => { window.removed = 0; new MutationObserver(records => {"
        " for (const record of records) window.removed += record.removedNodes.length;"
        " }).observe(document.querySelector('.runs'), {childList: true}); }"
    )
    workbench.page.get_by_role("button", name="Run", exact=True).evaluate("button => button.click()")
    workbench.page.wait_for_function("() => document.querySelectorAll('.cell').length == 2")
    workbench.newest.locator(".badge", has_text="ok").wait_for()
    assert workbench.page.evaluate("[window.removed, document.activeElement.id]") == [0, "kept"]
    assert run.page.locator("#kept").evaluate("element => element.scrollTop") > 400


def test_recalled_and_edited_code(workbench):
    workbench.run("first = 1")
    workbench.run("second = 2")
    code = workbench.page.locator("#code")
    code.fill("unfinished")
    code.press("Alt+ArrowUp")
    code.press("Alt+ArrowUp")
    assert code.input_value() == "first = 1"
    code.press("Alt+ArrowDown")
    code.press("Alt+ArrowDown")
    assert code.input_value() == "unfinished"
    workbench.page.get_by_role("button", name="Edit the code of run 2").click()
    assert code.input_value() == "second = 2"


def test_keys_of_the_editor(workbench):
    code = workbench.page.locator("#code")
    code.fill("")
    code.press_sequentially("if True:\n1")
    assert code.input_value() == "if True:\n    1"
    code.press("Tab")
    code.press("Shift+Tab")
    code.press("Shift+Tab")
    assert code.input_value() == "if True:\n1   " or code.input_value().startswith("if True:\n1")
    code.press("Escape")
    code.press("Tab")
    assert code.evaluate("element => document.activeElement !== element")


def test_enter_of_an_input_method_runs_nothing(workbench):
    code = workbench.page.locator("#code")
    code.fill("1")
    code.evaluate(
        "element => element.dispatchEvent(new KeyboardEvent('keydown',"
        " {key: 'Enter', ctrlKey: true, isComposing: true, bubbles: true, cancelable: true}))"
    )
    workbench.page.wait_for_timeout(300)
    assert workbench.page.locator(".cell").count() == 0
