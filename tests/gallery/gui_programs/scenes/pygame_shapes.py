# Shapes on a surface, shown by one flip.
import pygame

pygame.init()
surface = pygame.display.set_mode((320, 240))
surface.fill("#1f77b4")
pygame.draw.rect(surface, "#d62728", (20, 20, 120, 80))
pygame.draw.circle(surface, "#ffd700", (230, 150), 60)
pygame.draw.line(surface, "#ffffff", (0, 230), (319, 230), 5)
pygame.display.flip()
