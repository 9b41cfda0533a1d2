# outcome: error
# exit: 1
# shows: #d81b60
# stderr: KeyError: 'theme'

import tkinter as tk

settings = {}
root = tk.Tk()
root.geometry("300x200+20+20")
tk.Label(root, text="starting", bg="#d81b60").pack(fill="both", expand=True)
root.update()
root.configure(bg=settings["theme"])
root.mainloop()
