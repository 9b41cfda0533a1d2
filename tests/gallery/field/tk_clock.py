# idle: animating
# shows: #101010
# max_watch: 3

import time
import tkinter as tk

root = tk.Tk()
root.geometry("360x140+60+60")
face = tk.Label(root, bg="#101010", fg="#00ff66", font=("DejaVu Sans Mono", 36))
face.pack(fill="both", expand=True)


def tick():
    face.configure(text=time.strftime("%H:%M:%S"))
    root.after(1000, tick)


tick()
root.mainloop()
