# idle: closed
# shows: #c2185b

import turtle

turtle.setup(400, 400)
turtle.speed(0)
turtle.hideturtle()
turtle.color("#880e4f", "#c2185b")
turtle.begin_fill()
for _ in range(12):
    turtle.circle(60, 90)
    turtle.left(90)
    turtle.circle(60, 90)
    turtle.left(120)
turtle.end_fill()
turtle.exitonclick()
