# idle: closed
# shows: #ffbf00
# needs: matplotlib

import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(5, 4))
axes.set_title("waiting")
timer = figure.canvas.new_timer(interval=800)
timer.single_shot = True


def arrive():
    axes.set_title("arrived")
    axes.set_facecolor("#ffbf00")
    figure.canvas.draw_idle()


timer.add_callback(arrive)
timer.start()
plt.show()
