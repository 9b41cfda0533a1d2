# idle: closed
# shows: #2ca02c
# needs: matplotlib
# prints: 3 figures

import matplotlib.pyplot as plt

for color in ("#d62728", "#1f77b4", "#2ca02c"):
    plt.figure(figsize=(4, 3), facecolor=color)
    plt.show()
print("3 figures")
