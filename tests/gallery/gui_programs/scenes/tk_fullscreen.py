# A window that covers the screen, which requires a window manager.
import tkinter as tk

root = tk.Tk()
root.attributes("-fullscreen", True)
root.configure(bg="#1f77b4")
tk.Frame(root, bg="#ffd700").place(relx=0.1, rely=0.1, relwidth=0.8, relheight=0.8)
root.update()
while (root.winfo_width(), root.winfo_height()) != (root.winfo_screenwidth(), root.winfo_screenheight()):
    root.update()
root.update()
