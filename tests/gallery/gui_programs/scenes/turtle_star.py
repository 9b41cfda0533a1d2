# A star.
import turtle

screen = turtle.Screen()
screen.setup(360, 320, 30, 30)
turtle.speed(0)
turtle.color("#d62728", "#ffd700")
turtle.penup()
turtle.goto(-120, 40)
turtle.pendown()
turtle.begin_fill()
for _ in range(5):
    turtle.forward(240)
    turtle.right(144)
turtle.end_fill()
turtle.hideturtle()
