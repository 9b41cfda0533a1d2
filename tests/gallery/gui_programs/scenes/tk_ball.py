# A ball that rolls as long as events are processed.
import tkinter as tk

root = tk.Tk()
root.geometry("400x200+20+20")
canvas = tk.Canvas(root, width=400, height=200, bg="white", highlightthickness=0)
canvas.pack()
canvas.create_rectangle(0, 150, 400, 200, fill="#2ca02c", width=0)
ball = canvas.create_rectangle(0, 100, 40, 140, fill="#d62728", width=0)
root.update()


def roll():
    left = canvas.coords(ball)[0]
    canvas.moveto(ball, (left + 4) % 360, 100)
    root.after(20, roll)
