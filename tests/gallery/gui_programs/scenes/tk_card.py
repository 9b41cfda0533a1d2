# A heading, a drawing and three buttons.
import tkinter as tk

root = tk.Tk()
root.title("Card")
root.geometry("260x190+20+30")
tk.Label(root, text="Hello, screen", font=("Helvetica", 16), bg="#ffd700").pack(fill="x")
canvas = tk.Canvas(root, width=240, height=90, bg="white", highlightthickness=0)
canvas.pack(pady=8)
canvas.create_rectangle(10, 10, 80, 80, fill="#d62728", width=0)
canvas.create_oval(90, 10, 160, 80, fill="#2ca02c", width=0)
canvas.create_polygon(170, 80, 200, 10, 230, 80, fill="#1f77b4")
buttons = tk.Frame(root)
buttons.pack()
for number in range(1, 4):
    tk.Button(buttons, text=f"Button {number}").pack(side="left")
root.update()
