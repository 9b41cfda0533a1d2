# idle: animating
# shows: #43a047 #e53935
# max_watch: 1.5
# prints: moves True

import tkinter as tk

SIZE = 20
root = tk.Tk()
board = tk.Canvas(root, width=400, height=300, bg="black")
board.pack()
snake = [(5, 5), (4, 5), (3, 5)]
moves = 0


def step():
    global moves
    moves += 1
    x, y = snake[0]
    snake.insert(0, ((x + 1) % 20, y))
    snake.pop()
    board.delete("all")
    board.create_oval(200, 200, 220, 220, fill="#e53935")
    for x, y in snake:
        board.create_rectangle(x * SIZE, y * SIZE, x * SIZE + SIZE, y * SIZE + SIZE, fill="#43a047")
    root.after(80, step)


step()
root.mainloop()
print("moves", moves > 10)
