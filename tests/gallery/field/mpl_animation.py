# idle: animating
# shows: #d62728
# max_watch: 2
# needs: matplotlib
# prints: frames True

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.animation import FuncAnimation

figure, axes = plt.subplots(figsize=(5, 4))
x = np.linspace(0, 2 * np.pi, 100)
(line,) = axes.plot(x, np.sin(x), color="#d62728", lw=3)
shown = []


def draw(frame):
    shown.append(frame)
    line.set_ydata(np.sin(x + frame / 7))
    return (line,)


animation = FuncAnimation(figure, draw, interval=40, blit=True, cache_frame_data=False)
plt.show()
print("frames", len(shown) > 5)
