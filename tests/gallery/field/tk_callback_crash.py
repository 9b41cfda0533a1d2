# idle: closed
# shows: #37474f
# stderr: ZeroDivisionError

import tkinter as tk

root = tk.Tk()
root.geometry("420x220+40+50")
label = tk.Label(root, text="0", bg="#cfd8dc", font=("DejaVu Sans", 40))
label.pack(fill="both", expand=True)


def count(number=5):
    label.configure(text=str(60 // number))
    root.after(100, count, number - 1)


def fallen(*error):
    tk.Tk.report_callback_exception(root, *error)
    label.configure(text="crashed", bg="#37474f", fg="white")


root.report_callback_exception = fallen
root.after(100, count)
root.mainloop()
