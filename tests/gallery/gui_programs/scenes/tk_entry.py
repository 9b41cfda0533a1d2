# A form whose first field has the focus, and thus a blinking cursor.
import tkinter as tk
from tkinter import ttk

root = tk.Tk()
root.title("Form")
root.geometry("300x200+30+20")
ttk.Style(root).theme_use("clam")
name = ttk.Entry(root)
name.insert(0, "Ada")
name.place(x=100, y=20, width=180, height=30)
ttk.Label(root, text="Name").place(x=20, y=25)
ttk.Progressbar(root, value=60).place(x=20, y=70, width=260, height=24)
ttk.Combobox(root, values=["red", "green"]).place(x=20, y=110, width=260)
ttk.Checkbutton(root, text="Remember").place(x=20, y=150)
ttk.Button(root, text="Send").place(x=180, y=150)
name.focus_force()
root.update()
