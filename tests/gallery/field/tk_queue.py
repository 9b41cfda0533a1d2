# idle: closed
# shows: #6a1b9a

import queue
import threading
import time
import tkinter as tk

results = queue.Queue()
root = tk.Tk()
root.geometry("360x200+30+30")
lines = tk.Listbox(root, font=("DejaVu Sans Mono", 12))
lines.pack(fill="both", expand=True)


def compute():
    for number in range(4):
        time.sleep(0.4)
        results.put(f"{number} squared is {number**2}")
    results.put(None)


def look():
    while not results.empty():
        line = results.get()
        lines.insert("end", line if line is not None else "done")
        if line is None:
            lines.configure(bg="#6a1b9a", fg="white")
            return
    root.after(100, look)


threading.Thread(target=compute).start()
look()
root.mainloop()
