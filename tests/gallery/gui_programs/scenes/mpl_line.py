# One plot.
import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(4, 3))
axes.set_facecolor("#ffd700")
axes.plot([0, 1, 2, 3], [0, 3, 1, 2], color="#d62728", linewidth=6)
axes.set_title("A line")
