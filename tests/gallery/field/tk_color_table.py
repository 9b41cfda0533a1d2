# idle: closed
# shows: #ff0000 #00ff00 #0000ff #ffff00

import tkinter as tk
from tkinter import ttk

root = tk.Tk()
root.geometry("560x400+20+20")
book = ttk.Notebook(root)
book.pack(fill="both", expand=True)
for title, colors in {"primary": ("#ff0000", "#00ff00", "#0000ff"), "mixed": ("#ffff00", "#00ffff", "#ff00ff")}.items():
    page = tk.Frame(book)
    for color in colors:
        tk.Label(page, text=color, bg=color, height=4).pack(fill="x")
    book.add(page, text=title)
tk.Label(root, text="status", bg="#ffff00").pack(fill="x")
root.mainloop()
