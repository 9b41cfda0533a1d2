# idle: animating
# exit: 130
# shows: #00e5ff
# max_watch: 1.5
# needs: pygame

import pygame

pygame.init()
screen = pygame.display.set_mode((400, 300))
clock = pygame.time.Clock()
x = 0
while True:
    x = (x + 3) % 400
    screen.fill((20, 20, 40))
    pygame.draw.circle(screen, "#00e5ff", (x, 150), 30)
    pygame.display.flip()
    clock.tick(60)
