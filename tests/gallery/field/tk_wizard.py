# idle: closed
# shows: #ef6c00
# prints: page 3

import tkinter as tk

root = tk.Tk()
root.geometry("300x120+20+20")
tk.Label(root, text="Set-up", font=("DejaVu Sans", 18)).pack()
root.update()
for page in range(1, 4):
    top = tk.Toplevel(root, bg="#ef6c00")
    top.transient(root)
    top.geometry("260x140+180+100")
    tk.Label(top, text=f"Page {page} of 3", bg="#ef6c00", font=("DejaVu Sans", 16)).pack(expand=True)
    top.grab_set()
    root.wait_window(top)
    print("page", page)
root.mainloop()
