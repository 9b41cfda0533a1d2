# idle: closed
# shows: #4527a0

import tkinter as tk

root = tk.Tk()
root.geometry("420x240+30+30")
bar = tk.Menu(root)
menu = tk.Menu(bar, tearoff=0)
for name in ("New", "Open...", "Save", "Quit"):
    menu.add_command(label=name)
bar.add_cascade(label="File", menu=menu)
bar.add_cascade(label="Edit", menu=tk.Menu(bar, tearoff=0))
root.configure(menu=bar, bg="#90a4ae")
menu.configure(bg="#4527a0", fg="white")
root.after(300, lambda: menu.post(120, 100))
root.mainloop()
