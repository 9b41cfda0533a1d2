# Three windows side by side, and one that overlaps two of them.
import tkinter as tk

root = tk.Tk()
root.geometry("180x120+20+20")
root.configure(bg="#d62728")
tk.Label(root, text="root", bg="white").pack(pady=20)
for place, color in (("220+20", "#2ca02c"), ("420+20", "#1f77b4"), ("120+90", "#ffd700")):
    window = tk.Toplevel(root, bg=color)
    window.geometry(f"180x120+{place}")
    tk.Label(window, text=color, bg="white").pack(pady=20)
root.update()
window.lift()
root.update()
