# Text of several scripts, in the window and in its title.
import tkinter as tk

root = tk.Tk()
root.title("Grüße 你好 Привет")
root.geometry("+20+20")
for line in ("Grüße, señor Œuvre", "Привет, мир", "Γειά σου Κόσμε", "שלום עולם", "∑ √2 ≈ 1.414 → ∞", "☃ ♞ ★"):
    tk.Label(root, text=line, font=("DejaVu Sans", 18), bg="white", anchor="w").pack(fill="x")
tk.Frame(root, bg="#d62728", height=30, width=300).pack()
root.update()
