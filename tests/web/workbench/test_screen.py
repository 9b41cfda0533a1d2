"""The live screen, and the mouse and the keyboard through it."""

from __future__ import annotations

import re

import pytest

pytestmark = pytest.mark.usefixtures("xvfb")

FORM = """
import tkinter as tk
root = tk.Tk()
root.geometry("400x300+0+0")
entry = tk.Entry(root)
entry.place(x=0, y=0, width=400, height=50)
tk.Button(root, text="Print", command=lambda: print("text:", entry.get())).place(x=0, y=100, width=200, height=100)
tk.Button(root, text="Leave", command=root.destroy).place(x=200, y=100, width=200, height=100)
root.bind("<Double-Button-1>", lambda event: print("double", event.x_root, event.y_root))
root.bind("<Button-3>", lambda event: print("right"))
root.bind("<Button-5>", lambda event: print("wheel"))
root.bind("<F5>", lambda event: print("F5"))
root.bind("<Control-s>", lambda event: print("ctrl+s"))
root.configure(bg="#ff0000")
root.mainloop()
print("ended")
"""


# On a busy machine, the pauses of a program that draws are long enough to look like those of one that waits.
RUNS_ON = re.compile("still drawing|waits for events")


@pytest.fixture
def form(workbench):
    """The workbench with a program that waits for events."""
    workbench.run(FORM, "waits for events")
    workbench.page.wait_for_function(
        "() => document.querySelector('canvas').getContext('2d').getImageData(10, 250, 1, 1).data[0] == 255"
    )
    return workbench


def click(workbench, x, y, **options):
    canvas = workbench.page.locator("canvas")
    box = canvas.bounding_box()
    width, height = canvas.evaluate("canvas => [canvas.width, canvas.height]")
    canvas.click(position={"x": (x + 0.5) * box["width"] / width, "y": (y + 0.5) * box["height"] / height}, **options)


def printed(workbench, text):
    workbench.newest.locator(".stream-stdout", has_text=text).wait_for()


def test_mouse_and_keyboard_reach_the_program(form):
    click(form, 100, 25)
    form.page.keyboard.type("Hello, World+1")
    form.page.keyboard.press("Backspace")
    click(form, 100, 150)
    printed(form, "text: Hello, World+\n")
    form.page.keyboard.press("F5")
    form.page.keyboard.press("Control+s")
    click(form, 150, 250, button="right")
    click(form, 150, 250, click_count=2)
    form.page.mouse.wheel(0, 100)
    for text in ("F5", "ctrl+s", "right", "wheel", "double"):
        printed(form, text)
    x, y = form.newest.locator(".stream-stdout .output").text_content().split("double ")[1].split("\n")[0].split()
    assert abs(int(x) - 150) <= 1
    assert abs(int(y) - 250) <= 1


def test_text_field_types_any_language(form):
    click(form, 100, 25)
    field = form.page.get_by_label("Text to type on the screen")
    field.fill("šđ 你好 🙂")
    field.press("Enter")
    assert field.input_value() == ""
    click(form, 100, 150)
    printed(form, "text: šđ 你好")


def test_end_of_the_program_is_noticed(form):
    click(form, 300, 150)
    form.newest.locator(".badge", has_text="ok").wait_for()
    printed(form, "ended")
    form.page.get_by_text("Windows of your programs appear here.").wait_for()


def test_output_of_a_timer_is_shown(workbench):
    code = "import tkinter as tk\nroot = tk.Tk()\nroot.after(4000, lambda: print('later'))\nroot.mainloop()"
    workbench.run(code, "waits for events")
    printed(workbench, "later")


def test_next_run_closes_the_program(form):
    form.run("print('next')")
    assert form.newest.locator(".stream-stdout .output").text_content() == "ended\nnext\n"
    assert "The next run ended the program" in form.page.locator(".cell").nth(1).text_content()


def test_screen_takes_the_keyboard_and_returns_it(form):
    canvas = form.page.locator("canvas")
    canvas.focus()
    form.page.keyboard.press("Tab")
    assert canvas.evaluate("canvas => document.activeElement === canvas")
    assert canvas.evaluate("canvas => getComputedStyle(canvas).outlineStyle") == "solid"
    form.page.keyboard.press("Control+Alt")
    assert form.page.evaluate("document.activeElement.id") == "screen-text"


def test_animation_is_live_until_it_ends(workbench):
    code = """
import time, tkinter as tk
root = tk.Tk()
root.geometry("100x100+0+0")
for color in ["#ff0000", "#0000ff"] * 4:
    root.configure(bg=color)
    root.update()
    time.sleep(0.7)
"""
    workbench.start(code)
    for channel in (0, 2, 0):
        workbench.page.wait_for_function(
            "channel => document.querySelector('canvas').getContext('2d').getImageData(50, 50, 1, 1).data[channel] == 255",
            arg=channel,
        )
    workbench.newest.locator(".badge", has_text=RUNS_ON).wait_for()
    workbench.newest.locator(".badge", has_text="ok").wait_for()


def test_growing_run_keeps_what_is_opened(workbench):
    code = """
import tkinter as tk
class Page:
    def _repr_html_(self): return "<p>shown</p>"
root = tk.Tk()
display(Page())
print("begin")
root.after(3000, lambda: print("x\\n" * 20_000))
root.after(6000, lambda: print("y\\n" * 20_000))
root.mainloop()
"""
    run = workbench.run(code, "waits for events")
    run.get_by_role("button", name="Show HTML").click()
    run.locator("iframe").evaluate("element => { element.id = 'kept-frame'; }")
    output = run.locator(".stream-stdout .output")
    output.evaluate("element => { element.id = 'kept-output'; element.focus(); }")
    output.get_by_text("y").last.wait_for()
    assert run.locator("#kept-frame").count() == 1
    assert workbench.page.locator("#kept-output").count() == 1
    assert "begin\nx\nx\n" in output.text_content()


def test_interrupt_before_the_code_begins_is_kept(workbench):
    code = """
import time, tkinter as tk
root = tk.Tk()
root.geometry("100x100+0+0")
for color in ["#ff0000", "#0000ff"] * 1000:
    root.configure(bg=color)
    root.update()
    time.sleep(0.1)
"""
    workbench.run(code, RUNS_ON)
    click(workbench, 400, 400)
    workbench.start("import time\ntime.sleep(60)")
    workbench.page.get_by_role("button", name="Interrupt").click()
    workbench.newest.locator(".badge", has_text="error").wait_for()
    assert "KeyboardInterrupt" in workbench.newest.text_content()


def test_screen_of_another_size(workbench):
    workbench.page.get_by_role("button", name="Reset …").click()
    dialog = workbench.page.locator("#reset-dialog")
    dialog.get_by_label("Screen").select_option("own")
    dialog.get_by_label("Width").fill("321")
    dialog.get_by_label("Height").fill("243")
    dialog.get_by_role("button", name="Reset", exact=True).click()
    workbench.page.get_by_text(re.compile("321 . 243 pixels")).wait_for()


def test_session_without_a_screen(workbench):
    workbench.reset(screen="none")
    workbench.page.get_by_text("reset it with a screen").wait_for()
    workbench.page.traffic.problems.clear()  # The browser reports the status 422.
    assert workbench.run("1 + 1").locator(".stream-value").count() == 1
