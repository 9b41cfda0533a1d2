# Nine plots, which take long to draw.
import matplotlib.pyplot as plt
import numpy as np

figure, grid = plt.subplots(3, 3, figsize=(5, 4))
figure.subplots_adjust(hspace=0.6, wspace=0.4)
for number, axes in enumerate(grid.flat):
    x = np.linspace(0, 10, 200)
    axes.plot(x, np.sin(x + number), color="#1f77b4")
    axes.set_title(f"sin(x + {number})")
grid[2, 2].set_facecolor("#ffd700")
