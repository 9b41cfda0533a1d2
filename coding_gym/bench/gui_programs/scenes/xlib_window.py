# A window without a toolkit.
from Xlib import X, display

connection = display.Display()
screen = connection.screen()
window = screen.root.create_window(
    60, 50, 300, 200, 0, screen.root_depth, background_pixel=0xFFFFFF, event_mask=X.ExposureMask | X.StructureNotifyMask
)
window.set_wm_name("Bare")
window.map()
while connection.next_event().type != X.Expose:
    pass
for left, color in ((20, 0xD62728), (110, 0x2CA02C), (200, 0x1F77B4)):
    window.fill_rectangle(window.create_gc(foreground=color), left, 40, 80, 120)
connection.sync()
