# idle: closed
# shows: #2e7d32

import tkinter as tk

root = tk.Tk()
root.withdraw()
splash = tk.Toplevel(root, bg="#f9a825")
splash.overrideredirect(True)
splash.geometry("300x150+100+100")
tk.Label(splash, text="Loading...", bg="#f9a825", font=("DejaVu Sans", 20)).pack(expand=True)


def begin():
    splash.destroy()
    root.deiconify()
    root.geometry("400x250+60+60")
    tk.Label(root, text="Welcome", bg="#2e7d32", fg="white", font=("DejaVu Sans", 24)).pack(fill="both", expand=True)


root.after(900, begin)
root.mainloop()
