# idle: closed
# shows: #d9d9d9
# prints: None

from tkinter import simpledialog

print(simpledialog.askinteger("Age", "How old are you?", minvalue=0, maxvalue=150))
