# shows: #9467bd
# needs: matplotlib
# prints: done

import matplotlib.pyplot as plt

plt.figure(figsize=(4, 3))
for n in range(1, 6):
    plt.clf()
    plt.bar(range(n), range(1, n + 1), color="#9467bd" if n == 5 else "#8c564b")
    plt.pause(0.2)
plt.close("all")
print("done")
