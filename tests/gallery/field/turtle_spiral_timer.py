# idle: animating
# shows: #ff6f00
# max_watch: 1.5
# prints: over

import turtle

screen = turtle.Screen()
screen.setup(400, 400)
screen.tracer(0)
pen = turtle.Turtle(visible=False)
pen.color("#ff6f00")
pen.width(3)
size = 1


def grow():
    global size
    pen.forward(size)
    pen.left(91)
    size = 1 if size > 200 else size + 2
    screen.update()
    screen.ontimer(grow, 30)


grow()
screen.mainloop()
print("over")
