# idle: closed
# shows: #c62828
# prints: dismissed

import tkinter as tk
from tkinter import messagebox

root = tk.Tk()
root.geometry("500x320+60+60")
tk.Label(root, text="Reactor", bg="#c62828", fg="white", font=("DejaVu Sans", 30)).pack(fill="both", expand=True)


def fail():
    messagebox.showerror("Alarm", "Pressure is too high.\nOpen the valve.")
    print("dismissed")


root.after(500, fail)
root.mainloop()
