from __future__ import annotations

import contextlib
import secrets
import shutil
import signal
import subprocess
import time

import pytest

from coding_gym_server.display.connection import DisplayLostError
from coding_gym_server.display.window_manager import start_window_manager
from coding_gym_server.display.windows import WindowList, WindowNotFoundError
from coding_gym_server.protocol import Rectangle
from coding_gym_server.workspace.xauthority import write_authority
from tests.display.display_programs import TOOLKITS, window_of
from tests.support.timing import eventually

RAW = """
import sys, time
from Xlib import X, Xatom, display
from Xlib.protocol import event, request
d = display.Display(); root = d.screen().root
def window(x, y, width, height, title=None, kind=X.InputOutput, shown=True, **attributes):
    made = root.create_window(x, y, width, height, 0, X.CopyFromParent, kind, **attributes)
    if title is not None: made.change_property(Xatom.WM_NAME, Xatom.STRING, 8, title)
    if shown: made.map()
    return made
def show(value=None): d.sync(); print(repr(value)); sys.stdin.read()
"""

# Programs that stop processing events one second after they have started.
EVENT_LOOPS = {
    "tkinter": """
import tkinter, time
root = tkinter.Tk(); root.title("loop"); root.after(1000, lambda: time.sleep(60)); root.mainloop()
""",
    "PySide6": """
import time
from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QApplication, QLabel
app = QApplication([]); label = QLabel("x"); label.setWindowTitle("loop"); label.show()
QTimer.singleShot(1000, lambda: time.sleep(60)); app.exec()
""",
    "pygame": """
import pygame, sys, time
pygame.display.init(); pygame.display.set_mode((200, 100)); pygame.display.set_caption("loop")
end = time.monotonic() + 1
while time.monotonic() < end:
    if any(event.type == pygame.QUIT for event in pygame.event.get()): sys.exit()
    time.sleep(0.01)
time.sleep(60)
""",
}


def test_window_reports_title_and_geometry(desktop, start):
    assert not desktop.has_windows()
    assert desktop.windows() == []
    start("import tkinter\nr = tkinter.Tk(); r.title('Grüße 漢 😀'); r.geometry('200x100+50+60'); r.mainloop()")
    window = window_of(desktop, "Grüße 漢 😀")
    assert (window.x, window.y, window.width, window.height, window.stacking) == (50, 60, 200, 100, 0)
    assert desktop.has_windows()
    assert desktop.geometry(window.id) == Rectangle(x=50, y=60, width=200, height=100)


def test_visible_windows_are_listed_in_stacking_order(desktop, start):
    source = """
window(0, 0, 50, 50, b"low"); window(-20, 400, 50, 300, b"over the edge"); menu = window(5, 5, 9, 9, override_redirect=True)
window(0, 0, 50, 50, b"hidden", shown=False); window(9, 9, 1, 1, b"helper"); window(-90, 0, 50, 50, b"outside")
window(0, 0, 50, 50, None, X.InputOnly); window(20, 20, 50, 50, b"high")
show(menu.id)
"""
    menu = start(RAW + source).read()
    windows = desktop.windows()
    assert [window.title for window in windows] == ["low", "over the edge", "", "high"]
    assert [window.stacking for window in windows] == [0, 1, 2, 3]
    assert (windows[1].x, windows[1].y, windows[1].height) == (-20, 400, 300)
    assert menu == windows[2].id
    assert menu not in desktop.applications()


@pytest.mark.parametrize(
    ("source", "title"),
    [
        ("", ""),
        ("w.set_wm_name('caf\\xe9')", "café"),
        ("w.change_property(Xatom.WM_NAME, Xatom.STRING, 8, b'\\xff\\xfe not UTF-8')", "ÿþ not UTF-8"),
        ("w.change_property(Xatom.WM_NAME, Xatom.STRING, 8, 'UTF-8 é'.encode())", "UTF-8 é"),
        ("w.change_property(Xatom.WM_NAME, Xatom.STRING, 8, b'a\\0b\\x1b[31m\\n')", "ab[31m"),
        ("w.change_property(Xatom.WM_NAME, Xatom.STRING, 32, [1, 2, 3])", ""),
        ("w.change_property(Xatom.WM_NAME, Xatom.WINDOW, 16, [1, 2, 3])", ""),
        ("w.change_property(d.get_atom('_NET_WM_NAME'), Xatom.CARDINAL, 32, [7]); w.set_wm_name('old')", "old"),
        ("w.change_property(Xatom.WM_NAME, Xatom.STRING, 8, ('x' + 'é' * 5000).encode())", "x" + "é" * 511),
        (
            "[w.change_property(Xatom.WM_NAME, Xatom.STRING, 8, b'A' * 200_000, X.PropModeAppend) for _ in range(40)]",
            "A" * 1024,
        ),
    ],
)
def test_malformed_titles_are_decoded_safely(desktop, start, source, title):
    start(f"{RAW}\nw = window(0, 0, 9, 9)\n{source}\nshow()").read()
    assert [window.title for window in desktop.windows()] == [title]


def test_windows_vanishing_during_queries_are_tolerated(desktop, start):
    source = """
print("'ready'")
while True:
    made = [window(i, i, 20, 20, b"x", event_mask=X.ExposureMask) for i in range(20)]
    for one in made: one.set_wm_protocols([d.get_atom("WM_DELETE_WINDOW"), d.get_atom("_NET_WM_PING")])
    d.flush()
    for one in made: one.destroy()
"""
    start(RAW + source).read()
    seen = 0
    for _ in range(200):
        for window in desktop.windows():
            seen += 1
            with contextlib.suppress(WindowNotFoundError):
                assert desktop.geometry(window.id).width == 20
        desktop.has_windows()
        desktop.ping()
        desktop.answered()
        desktop.close_windows(desktop.applications())
        desktop.wake()
    assert seen
    desktop.ping()
    desktop.sync()


def test_window_list_survives_sequence_number_overflow(desktop, start):
    source = """
import select, struct
base = d.display.info.resource_id_base
make = struct.Struct("=BBHLLhhHHHHLL").pack
raw = b"".join(make(1, 24, 8, base + i, root.id, 0, 0, 9, 9, 0, 1, 0, 0) for i in range(1, 66_001))
many = d.display.socket
# A window that is created later than the last would be above it.
many.sendall(raw + struct.pack("=BxH", 43, 1)); select.select([many], [], [])
first, d = d, display.Display(); root = d.screen().root
window(1, 1, 9, 9, b"top"); show()
"""
    start(RAW + source).read()
    assert desktop.has_windows()
    assert [window.title for window in desktop.windows()] == ["top"]
    assert len(desktop.close_windows(desktop.applications()).others) == 1


@pytest.mark.parametrize("window", [0, -1, 1 << 40, 12345, 0xFFFFFFFF])
def test_unknown_window_raises(desktop, window):
    with pytest.raises(WindowNotFoundError, match=str(window)) as raised:
        desktop.geometry(window)
    assert raised.value.window == window


def test_server_grab_does_not_block_desktop(desktop, start):
    start(RAW + "window(0, 0, 9, 9, b'mine'); d.grab_server(); show()").read()
    assert [window.title for window in desktop.windows()] == ["mine"]
    desktop.sync()


@pytest.mark.parametrize("toolkit", TOOLKITS)
def test_ping_distinguishes_event_loop_from_sleep(desktop, start, toolkit):
    start(EVENT_LOOPS[toolkit])
    window = window_of(desktop, "loop")
    desktop.ping()
    assert eventually(lambda: desktop.answered() and desktop.received_by_all)
    assert desktop.ping().supporting == (window.id,)
    assert eventually(desktop.answered)
    time.sleep(1.2)
    desktop.ping()
    assert not eventually(desktop.answered, within=0.3)


@pytest.mark.parametrize("toolkit", TOOLKITS)
def test_close_ends_program(desktop, start, toolkit):
    program = start(EVENT_LOOPS[toolkit])
    window = window_of(desktop, "loop")
    assert desktop.close_windows(desktop.applications()).supporting == (window.id,)
    assert program.process.wait(30) == 0


def test_close_reports_windows_without_delete_protocol(desktop, start):
    deaf = start(RAW + "show(window(0, 0, 9, 9).id)").read()
    assert desktop.close_windows(desktop.applications()).others == (deaf,)
    assert desktop.ping().others == (deaf,)
    assert desktop.answered()
    assert not desktop.received_by_all


def test_destroyed_window_owes_no_ping_answer(desktop, start):
    program = start(RAW + "w = window(0, 0, 9, 9); w.set_wm_protocols([d.get_atom('_NET_WM_PING')]); show(w.id)")
    assert desktop.ping().supporting == () or program.read()
    assert eventually(lambda: bool(desktop.ping().supporting))
    assert not desktop.answered()
    program.end()
    assert eventually(desktop.answered)


def test_wake_lets_interrupt_end_main_loop(desktop, start):
    program = start("import tkinter\nr = tkinter.Tk(); r.title('loop'); r.mainloop()")
    window_of(desktop, "loop")
    desktop.sync()
    time.sleep(0.3)
    # The main loop notices the signal only when it has an event to process.
    program.process.send_signal(signal.SIGINT)
    assert eventually(lambda: desktop.wake() or program.process.poll() is not None)
    assert program.process.returncode != 0


def test_message_flood_does_not_block_desktop(desktop, start):
    source = """
d.sync(); print("'ready'")
while True:
    for number in range(1000):
        message = event.ClientMessage(window=root, client_type=d.get_atom("WM_PROTOCOLS"), data=(32, [number, 1, 2, 3, 4]))
        root.send_event(message, X.SubstructureNotifyMask)
    d.sync()
"""
    start(RAW + "w = window(0, 0, 9, 9, b'x'); w.set_wm_protocols([d.get_atom('_NET_WM_PING')])\n" + source).read()
    for _ in range(100):
        desktop.ping()
        assert not desktop.answered()
        assert [window.title for window in desktop.windows()] == ["x"]


def test_ended_server_raises_display_lost(desktop, x_server):
    x_server.process.kill()
    x_server.process.wait()
    with pytest.raises(DisplayLostError, match=x_server.name):
        desktop.windows()
    with pytest.raises(DisplayLostError):
        desktop.fileno()


def test_wrong_cookie_is_refused(x_server, tmp_path):
    other = tmp_path / "other"
    write_authority(other, secrets.token_bytes(16))
    assert other.stat().st_mode & 0o777 == 0o600
    with pytest.raises(DisplayLostError):
        WindowList(x_server.name, other)


def start_openbox(x_server, desktop, directory):
    manager = subprocess.Popen(["openbox"], env=x_server.environment, stderr=subprocess.DEVNULL)
    assert eventually(desktop.is_managed)
    return manager


@pytest.mark.parametrize(("name", "start_manager"), [("openbox", start_openbox), ("blackbox", start_window_manager)])
def test_managed_windows_are_application_windows(desktop, start, x_server, tmp_path, name, start_manager):
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    assert not desktop.has_windows()
    manager = start_manager(x_server, desktop, tmp_path)
    try:
        assert not desktop.has_windows()
        program = start(
            "import tkinter\nr = tkinter.Tk(); r.title('framed'); r.geometry('200x100+50+60'); r.update()\n"
            "m = tkinter.Menu(r, tearoff=0); m.add_command(label='x'); m.post(9, 9)\n"
            "r.after(300, lambda: print((r.winfo_rootx(), r.winfo_rooty()))); r.mainloop()"
        )
        place = program.read()
        window = window_of(desktop, "framed")
        assert (window.x, window.y) == place
        assert (window.width, window.height) == (200, 100)
        assert [window.title.strip("#!") for window in desktop.windows()] == ["framed", "menu"]
        assert desktop.applications() == [window.id]
        assert desktop.close_windows([window.id]).supporting == (window.id,)
        assert program.process.wait(30) == 0
        assert eventually(lambda: not desktop.has_windows())
    finally:
        manager.kill()
        manager.wait()
