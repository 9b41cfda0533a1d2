# idle: closed
# shows: #00897b
# needs: PySide6
# prints: True

from PySide6.QtCore import Qt, QTimer
from PySide6.QtWidgets import QApplication, QLabel

app = QApplication.instance() or QApplication([])
label = QLabel("0 %", alignment=Qt.AlignmentFlag.AlignCenter)
label.setGeometry(60, 60, 360, 200)
label.show()
for step in range(1, 5):
    QTimer.singleShot(step * 350, lambda step=step: label.setText(f"{step * 25} %"))
QTimer.singleShot(1700, lambda: label.setStyleSheet("background: #00897b; font-size: 40px"))
app.exec()
print(label.text() == "100 %")
