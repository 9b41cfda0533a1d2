"""Widgets of graphical programs as data, and pictures with numbered boxes around them."""

from __future__ import annotations

import asyncio
import contextlib
import textwrap
from contextlib import closing

import gymnasium as gym
import msgspec
import numpy as np
import pytest

from coding_gym import AsyncCodingEnv, format_widgets, inputs
from coding_gym.errors import ConfigurationError

pytestmark = pytest.mark.usefixtures("xvfb")

FORM = textwrap.dedent(
    """
    import tkinter as tk
    from tkinter import ttk

    window = tk.Tk()
    window.title("Form")
    window.geometry("300x420+30+40")
    bar = tk.Menu(window)
    bar.add_cascade(label="File", menu=tk.Menu(bar))
    bar.add_command(label="Help", state="disabled")
    window.configure(menu=bar)
    caption = tk.StringVar(window, "Your name")
    ttk.Label(window, textvariable=caption).pack()
    field = tk.Entry(window)
    field.insert(0, "Ada")
    field.pack()
    field.focus_force()
    secret = ttk.Entry(window, show="*")
    secret.insert(0, "abc")
    secret.pack()
    yes, also, choice = tk.BooleanVar(window, True), tk.IntVar(window, 0), tk.StringVar(window, "b")
    tk.Checkbutton(window, text="Yes", variable=yes).pack()
    ttk.Checkbutton(window, text="Also", variable=also).pack()
    tk.Radiobutton(window, text="A", value="a", variable=choice).pack()
    ttk.Radiobutton(window, text="B", value="b", variable=choice).pack()
    box = ttk.Combobox(window, values=["x", "y"], state="readonly")
    box.set("y")
    box.pack()
    tk.Button(window, text="Go", command=lambda: print("gone")).pack()
    ttk.Button(window, text="Stop", state="disabled").pack()
    rows = tk.Listbox(window, height=2)
    rows.insert("end", "one", "two", "three")
    rows.selection_set(1)
    rows.pack()
    book = ttk.Notebook(window, height=20)
    book.add(tk.Frame(book), text="First")
    book.add(tk.Frame(book), text="Second")
    book.select(1)
    book.pack(fill="x")
    scale = tk.Scale(window, to=10, orient="horizontal")
    scale.set(4)
    scale.pack()
    tk.Label(window, text="never packed")
    """
)
FOUND = {
    ("window", "Form", None),
    ("menuitem", "File", None),
    ("menuitem", "Help disabled", None),
    ("label", "Your name", None),
    ("textbox", "focused editable", "Ada"),
    ("textbox", "editable", "***"),
    ("checkbox", "Yes checked", None),
    ("checkbox", "Also unchecked", None),
    ("radio", "A unchecked", None),
    ("radio", "B checked", None),
    ("combobox", "", "y"),
    ("button", "Go", None),
    ("button", "Stop disabled", None),
    ("option", "one unselected", None),
    ("option", "two selected", None),
    ("tab", "First unselected", None),
    ("tab", "Second selected", None),
    ("slider", "", "4"),
}
DIALOG = """
import tkinter as tk
from tkinter import messagebox
window = tk.Tk()
window.withdraw()
messagebox.askyesno("Sure?", "Delete everything?")
"""


@pytest.fixture
def make(pool):
    with contextlib.ExitStack() as stack:

        def make(name="CodingEnv-v0", **options):
            options = {"on_idle": "return", "step_timeout": 60, "disable_env_checker": True, **options}
            env = stack.enter_context(closing(gym.make(name, pool=pool, **options)))
            env.reset(seed=1)
            return env.unwrapped

        yield make


def summary(widget):
    states = {
        "disabled": not widget.enabled,
        "focused": widget.focused,
        "editable": widget.editable,
        "checked": widget.checked,
        "unchecked": widget.checked is False,
        "selected": widget.selected,
        "unselected": widget.selected is False,
    }
    words = [widget.name, *(state for state, applies in states.items() if applies)]
    return widget.role, " ".join(filter(None, words)), widget.value


@pytest.mark.parametrize("end", ["window.mainloop()", "window.update()"], ids=["running", "left open"])
def test_tk_widgets_have_roles_states_and_values(make, end):
    env = make(screen=(400, 500))
    *_, info = env.step(FORM + end)
    widgets = env.widgets()
    assert {summary(widget) for widget in widgets} >= FOUND, format_widgets(widgets)
    assert "never packed" not in {widget.name for widget in widgets}
    assert info["outcome"] == ("running" if "mainloop" in end else "ok")
    (window,) = env.windows()
    assert {(widget.window, widget.toolkit, widget.covered) for widget in widgets} == {(window.id, "tk", False)}
    # A tree: each child is within its window, after its parent.
    for number, widget in enumerate(widgets):
        assert (widget.id, widget.parent is None or widget.parent < number) == (number, True)
        assert 30 <= widget.x < widget.x + widget.width <= 330
        assert 40 <= widget.y < widget.y + widget.height <= 40 + window.height
    # The program has not noticed.
    obs, *_ = env.step("print(type(field).__name__)")
    assert (obs["stdout"], obs["stderr"], obs["exit_code"]) == ("Entry\n", "", 0)


def test_widget_boxes_can_be_clicked(make):
    env = make("CodingEnvGUI-v0")
    env.step({"code": FORM + "window.mainloop()", "events": []})
    button = next(widget for widget in env.widgets() if widget.name == "Go")
    click = inputs.click(button.x + button.width // 2, button.y + button.height // 2)
    obs, *_ = env.step({"code": "", "events": [click]})
    assert obs["stdout"] == "gone\n"


def test_dialogs_without_python_event_loop_are_read(make):
    env = make()
    *_, info = env.step(DIALOG)
    assert info["outcome"] == "running"
    found = {(widget.role, widget.name) for widget in env.widgets()}
    assert found >= {("dialog", "Sure?"), ("label", "Delete everything?"), ("button", "Yes"), ("button", "No")}


def test_figures_have_toolbar_buttons(make):
    env = make(step_timeout=30)
    env.step("import matplotlib.pyplot as plt\nplt.figure(1)\nplt.figure(2)\nplt.show()")
    widgets = env.widgets()
    assert sorted(widget.name for widget in widgets if widget.role == "window") == ["Figure 1", "Figure 2"]
    assert [widget.name for widget in widgets].count("Save") == 2


def test_menus_trees_and_texts_on_canvases_are_read(make):
    env = make()
    env.step(
        "import tkinter as tk\nfrom tkinter import ttk\nroot = tk.Tk()\nroot.geometry('300x300+50+60')\n"
        "canvas = tk.Canvas(root, height=60, highlightthickness=0, scrollregion=(0, 0, 500, 500))\ncanvas.pack()\n"
        "canvas.create_text(10, 110, text='Score: 3', anchor='nw')\ncanvas.create_text(10, 10, text='scrolled out')\n"
        "canvas.yview_moveto(0.2)\n"
        "tree = ttk.Treeview(root, columns=('size',), height=5)\ntree.pack()\n"
        "top = tree.insert('', 'end', text='docs', values=('4 kB',), open=True)\ntree.insert(top, 'end', text='a.txt')\n"
        "closed = tree.insert('', 'end', text='src')\ntree.insert(closed, 'end', text='hidden')\ntree.selection_set(top)\n"
        "menu = tk.Menu(root, tearoff=0)\nwrap = tk.BooleanVar(root, True)\nmenu.add_command(label='Cut')\n"
        "menu.add_checkbutton(label='Wrap', variable=wrap)\nroot.update()\nmenu.post(200, 100)\nroot.update()"
    )
    widgets = env.widgets()
    found = {summary(widget)[:2] for widget in widgets if widget.role in ("menuitem", "row", "label")}
    rows = {("row", "docs 4 kB selected"), ("row", "a.txt unselected"), ("row", "src unselected")}
    assert found == {("menuitem", "Cut"), ("menuitem", "Wrap checked"), ("label", "Score: 3"), *rows}, format_widgets(widgets)
    (score,) = (widget for widget in widgets if widget.name == "Score: 3")
    assert (score.y, score.height < 30) == (70, True)


@pytest.mark.parametrize(
    "code",
    [
        "import signal\nsignal.signal(signal.SIGURG, signal.SIG_IGN)\n",
        "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGURG})\n",
    ],
    ids=["ignored", "blocked"],
)
def test_programs_without_answer_are_windows(make, code):
    env = make()
    env.step(code + FORM + "window.update()")
    assert [summary(widget) for widget in env.widgets()] == [("window", "Form", None)]
    assert env.step("print(1)")[0]["stdout"] == "1\n"


def test_windows_of_other_processes_are_widgets(make):
    env = make()
    program = "import tkinter\nw = tkinter.Tk()\nw.title('Other')\nw.mainloop()"
    env.step(f"import subprocess, sys, time\np = subprocess.Popen([sys.executable, '-c', {program!r}])\ntime.sleep(1)")
    assert [(widget.role, widget.name, widget.toolkit) for widget in env.widgets()] == [("window", "Other", "")]


def test_covered_widgets_say_so(make):
    env = make(screen=(400, 500))
    over = "top = tk.Toplevel(window)\ntop.title('Over')\ntop.geometry('200x460+80+20')\nwindow.update()\n"
    env.step(FORM + "window.update()\n" + over)
    states = {widget.name: widget.covered for widget in env.widgets()}
    assert (states["Over"], states["Go"], states["File"]) == (False, True, False)
    assert {widget.name for widget in env.marked_screen().widgets.values()} == {"File", "First"}


def test_marked_screen_numbers_usable_widgets(make):
    env = make(screen=(400, 500))
    env.step(FORM + "window.update()")
    marked = env.marked_screen()
    assert marked.image.shape == (500, 400, 3)
    assert list(marked.widgets) == list(range(1, len(marked.widgets) + 1))
    assert {"Go", "File", "one"} <= {widget.name for widget in marked.widgets.values()}
    assert not {"Stop", "Your name", "Form"} & {widget.name for widget in marked.widgets.values()}
    changed = (marked.image != env.capture()).any(axis=2)
    for widget in marked.widgets.values():
        assert changed[widget.y, widget.x : widget.x + widget.width].any()


def test_screen_without_programs_has_no_widgets(make):
    env = make(screen=(64, 48))
    assert env.widgets() == []
    assert not np.any(env.marked_screen().image)
    env.step("1")
    assert env.widgets() == []
    with pytest.raises(ConfigurationError, match="screen"):
        make(screen=None).widgets()


def test_async_environment_has_widgets(pool):
    async def main():
        async with AsyncCodingEnv(pool=pool, on_idle="return", screen=(400, 500)) as env:
            await env.reset(seed=1)
            await env.step(FORM + "window.mainloop()")
            return await env.widgets(), await env.marked_screen()

    widgets, marked = asyncio.run(main())
    assert {summary(widget) for widget in widgets} >= FOUND
    assert marked.image.shape == (500, 400, 3)


@pytest.mark.parametrize("on_idle", ["close", "return"])
def test_info_has_widgets_of_the_screenshot(make, on_idle):
    env = make(on_idle=on_idle, widgets=True, screen=(400, 500))
    *_, info = env.step("print(1)")
    assert info["widgets"] == ()
    obs, *_, info = env.step(FORM + "window.mainloop()")
    assert info["idle"] == {"close": "closed", "return": "returned"}[on_idle]
    assert {summary(widget) for widget in info["widgets"]} >= FOUND
    assert obs["screenshot"].any()
    *_, info = env.step("print(2)")
    assert info["widgets"] == ()


def test_vector_environment_has_widgets_in_infos(pool):
    with closing(gym.make_vec("CodingEnv-v0", num_envs=2, pool=pool, widgets=True, screen=(400, 500))) as envs:
        envs.reset(seed=1)
        *_, infos = envs.step([FORM + "window.mainloop()", "1"])
        first, second = infos["widgets"]
    assert {summary(widget) for widget in first} >= FOUND
    assert second == ()


QT = textwrap.dedent(
    """
    from PySide6.QtCore import Qt
    from PySide6.QtWidgets import *

    app = QApplication([])
    window = QMainWindow()
    window.setWindowTitle("Form")
    window.menuBar().addMenu("&File")
    content = QWidget()
    layout = QVBoxLayout(content)
    window.setCentralWidget(content)
    field = QLineEdit("Ada")
    yes = QCheckBox("&Yes")
    yes.setChecked(True)
    stop = QPushButton("Stop")
    stop.setEnabled(False)
    choice = QComboBox()
    choice.addItems(["x", "y"])
    rows = QListWidget()
    rows.addItems(["one", "two"])
    rows.setCurrentRow(1)
    table = QTableWidget(1, 1)
    table.setItem(0, 0, QTableWidgetItem("only"))
    tree = QTreeWidget()
    tree.addTopLevelItem(QTreeWidgetItem(["root"]))
    tabs = QTabWidget()
    tabs.addTab(tree, "First")
    spin = QSpinBox()
    for widget in (QLabel("Name"), field, yes, stop, choice, rows, table, tabs, spin):
        layout.addWidget(widget)
    window.resize(300, 560)
    window.show()
    """
)
QT_FOUND = {
    ("window", "Form", None),
    ("menuitem", "File", None),
    ("label", "Name", None),
    ("textbox", "editable", "Ada"),
    ("checkbox", "Yes checked", None),
    ("button", "Stop disabled", None),
    ("combobox", "", "x"),
    ("option", "one unselected", None),
    ("option", "two selected", None),
    ("cell", "only unselected", None),
    ("row", "root unselected", None),
    ("tab", "First selected", None),
    ("spinbutton", "editable", "0"),
}


@pytest.fixture(scope="module")
def container(docker_engine):
    options = {"provider": "docker", "preload": (), "on_idle": "return", "disable_env_checker": True, "step_timeout": 30}
    with closing(gym.make("CodingEnv-v0", **options).unwrapped) as env:
        yield env


@pytest.mark.docker
@pytest.mark.parametrize("end", ["app.exec()", "1", "QMessageBox.question(window, 'Sure?', 'Delete?')"])
def test_qt_widgets_have_roles_states_and_values(container, end):
    container.reset(seed=1)
    obs, *_ = container.step(QT + end)
    assert obs["stderr"] == ""
    widgets = container.widgets()
    # Without a window manager, none has the focus at first.
    found = {summary(msgspec.structs.replace(widget, focused=False)) for widget in widgets}
    assert found >= QT_FOUND, format_widgets(widgets)
    assert all(widget.toolkit == "qt" and widget.window for widget in widgets)
    assert (("dialog", "Sure?", None) in found) == ("Sure?" in end)


@pytest.mark.docker
def test_interrupted_qt_programs_have_no_trace_of_the_wakeup(container):
    container.reset(seed=1)
    container.step(QT + "window.closeEvent = lambda event: event.ignore()\napp.exec()")
    container.widgets()
    obs, *_ = container.step("print(1)")
    assert obs["stdout"].endswith("1\n")
    assert not any(word in obs["stderr"] for word in ("wakeup", "_drain", "_watch_in_qt"))


@pytest.mark.docker
def test_fonts_have_glyphs_of_many_scripts(container):
    container.reset(seed=1)
    obs, *_ = container.step(
        "import warnings, matplotlib.pyplot as plt\nwarnings.simplefilter('error')\n"
        "plt.title('漢字 かな 한글 Ω Ж 😀🎉🚀')\nplt.savefig('a.png')"
    )
    assert (obs["stderr"], obs["exit_code"]) == ("", 0)
    obs, *_ = container.step("import tkinter as tk\nroot = tk.Tk()\ntk.Label(root, text='🎉 漢字').pack()\nroot.update()")
    picture = obs["screenshot"].astype(int)
    assert (picture.max(axis=2) - picture.min(axis=2)).max() > 100
    order = container.exec("fc-match -s -f '%{family}\\n' sans-serif").stdout.decode().splitlines()
    assert any(name.startswith("WenQuanYi Micro Hei") for name in order)


def test_widgets_show_what_timers_and_dialogs_draw(make):
    env = make(widgets=True, on_idle="close")
    code = (
        "import tkinter as tk\nfrom tkinter import messagebox\nroot = tk.Tk()\n"
        "label = tk.Label(root, text='early')\nlabel.pack()\n"
        "root.after(300, lambda: label.configure(text='late'))\n"
        "root.after(800, lambda: messagebox.showinfo('Box', 'later'))\nroot.mainloop()"
    )
    *_, info = env.step(code)
    names = [widget.name for widget in info["widgets"]]
    assert info["idle"] == "closed"
    assert {"late", "Box", "later"} <= set(names)
    assert "early" not in names
