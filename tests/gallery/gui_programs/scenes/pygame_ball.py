# A ball that rolls, sixty times a second.
import pygame

pygame.init()
surface = pygame.display.set_mode((400, 200))
clock = pygame.time.Clock()


def show(left):
    surface.fill("#ffffff")
    pygame.draw.rect(surface, "#2ca02c", (0, 150, 400, 50))
    pygame.draw.rect(surface, "#d62728", (left, 100, 40, 40))
    pygame.display.flip()


show(0)
