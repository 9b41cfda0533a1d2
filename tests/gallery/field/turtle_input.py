# idle: closed
# shows: #d9d9d9
# prints: None

import turtle

turtle.setup(500, 400)
name = turtle.textinput("Name", "Who are you?")
print(name)
