# A window without a toolkit.
import select

import xcffib
from xcffib.xproto import CW, GC, RECTANGLE, Atom, EventMask, ExposeEvent, PropMode, WindowClass

connection = xcffib.connect()
core = connection.core
screen = connection.get_setup().roots[connection.pref_screen]
window = connection.generate_id()
events = EventMask.Exposure | EventMask.StructureNotify
visible = (screen.root_depth, window, screen.root, 60, 50, 300, 200, 0, WindowClass.InputOutput, screen.root_visual)
core.CreateWindow(*visible, CW.BackPixel | CW.EventMask, [0xFFFFFF, events])
core.ChangeProperty(PropMode.Replace, window, Atom.WM_NAME, Atom.STRING, 8, 4, "Bare")
core.MapWindow(window)


def next_event():
    connection.flush()
    # wait_for_event cannot be interrupted.
    while (event := connection.poll_for_event()) is None:
        select.select([connection.get_file_descriptor()], [], [])
    return event


def sync():
    return core.GetInputFocus().reply()


while not isinstance(next_event(), ExposeEvent):
    pass
for left, color in ((20, 0xD62728), (110, 0x2CA02C), (200, 0x1F77B4)):
    brush = connection.generate_id()
    core.CreateGC(brush, window, GC.Foreground, [color])
    core.PolyFillRectangle(window, brush, 1, [RECTANGLE.synthetic(left, 40, 80, 120)])
sync()
