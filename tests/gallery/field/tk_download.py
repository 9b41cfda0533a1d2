# idle: closed
# shows: #1565c0

import threading
import time
import tkinter as tk
from tkinter import ttk

root = tk.Tk()
root.geometry("400x160+40+40")
bar = ttk.Progressbar(root, maximum=5)
bar.pack(fill="x", padx=20, pady=20)
state = tk.Label(root, text="downloading")
state.pack()


def download():
    for part in range(5):
        time.sleep(0.35)
        root.after(0, bar.configure, {"value": part + 1})
    root.after(0, lambda: state.configure(text="finished", bg="#1565c0", fg="white", width=30, height=3))


threading.Thread(target=download, daemon=True).start()
root.mainloop()
