# idle: animating
# exit: 1
# shows: #8e24aa
# max_watch: 1.5

import time
import tkinter as tk

root = tk.Tk()
canvas = tk.Canvas(root, width=400, height=200, bg="white")
canvas.pack()
ball = canvas.create_oval(0, 80, 40, 120, fill="#8e24aa")
step = 4
while True:
    canvas.move(ball, step, 0)
    left, _, right, _ = canvas.coords(ball)
    if right > 400 or left < 0:
        step = -step
    root.update()
    time.sleep(0.02)
