# idle: closed
# shows: #00838f
# exit: 130

import tkinter as tk
from tkinter import messagebox

root = tk.Tk()
root.title("Editor")
root.geometry("400x260+50+40")
text = tk.Text(root, bg="#00838f", fg="white", insertofftime=0)
text.insert("1.0", "Unsaved changes")
text.pack(fill="both", expand=True)


def leave():
    if messagebox.askyesno("Really quit?", "There are unsaved changes. Quit?"):
        root.destroy()


root.protocol("WM_DELETE_WINDOW", leave)
root.mainloop()
