# idle: closed
# shows: #1f77b4
# needs: matplotlib
# prints: shown

import matplotlib.pyplot as plt

plt.figure(figsize=(3, 2)).add_subplot().bar([1, 2, 3], [3, 1, 2])
plt.figure(figsize=(3, 2)).add_subplot().plot([1, 4, 2])
plt.show()
print("shown")
