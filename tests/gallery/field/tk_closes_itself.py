# shows: #00695c
# prints: bye

import tkinter as tk

root = tk.Tk()
root.geometry("300x200+80+80")
root.configure(bg="#b2dfdb")
root.after(500, lambda: root.configure(bg="#00695c"))
root.after(900, root.destroy)
root.mainloop()
print("bye")
