# idle: animating
# exit: 130
# shows: #fdd835
# max_watch: 1.5
# stderr: still drawing after 1.5 s

import math
import tkinter as tk

root = tk.Tk()
canvas = tk.Canvas(root, width=300, height=300, bg="navy")
canvas.pack()
planet = canvas.create_oval(0, 0, 30, 30, fill="#fdd835")
angle = 0.0


def orbit():
    global angle
    angle += 0.1
    x, y = 150 + 100 * math.cos(angle), 150 + 100 * math.sin(angle)
    canvas.coords(planet, x - 15, y - 15, x + 15, y + 15)
    root.after(30, orbit)


root.protocol("WM_DELETE_WINDOW", lambda: None)
orbit()
root.mainloop()
