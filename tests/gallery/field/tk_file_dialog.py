# idle: closed
# shows: #d9d9d9
# prints: chosen: ()|''

import tkinter as tk
from tkinter import filedialog

root = tk.Tk()
root.withdraw()
chosen = filedialog.askopenfilename(title="Open a picture")
print("chosen:", repr(chosen))
