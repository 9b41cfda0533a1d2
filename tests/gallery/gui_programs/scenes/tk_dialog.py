# A main window, a second window, and a modal dialog.
import tkinter as tk
from tkinter import messagebox

root = tk.Tk()
root.geometry("240x100+20+20")
root.configure(bg="#1f77b4")
palette = tk.Toplevel(root, bg="#ffd700")
palette.geometry("100x300+520+20")
root.update()
