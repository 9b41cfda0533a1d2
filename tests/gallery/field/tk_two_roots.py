# idle: closed
# shows: #ad1457 #0277bd

import tkinter as tk

first = tk.Tk()
first.title("first")
first.geometry("200x150+20+20")
first.configure(bg="#ad1457")
second = tk.Tk()
second.title("second")
second.geometry("200x150+300+200")
second.configure(bg="#0277bd")
first.mainloop()
