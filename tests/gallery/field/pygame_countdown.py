# idle: closed
# shows: #76ff03
# needs: pygame
# prints: quit

import pygame

pygame.init()
screen = pygame.display.set_mode((400, 300))
begin = pygame.time.get_ticks()
running = True
while running:
    running = not pygame.event.get(pygame.QUIT)
    screen.fill("#76ff03" if pygame.time.get_ticks() - begin > 1000 else "#455a64")
    pygame.display.flip()
    pygame.time.wait(15)
pygame.quit()
print("quit")
