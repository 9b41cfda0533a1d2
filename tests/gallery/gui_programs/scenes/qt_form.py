# A form of Qt widgets.
from PySide6.QtWidgets import QApplication, QCheckBox, QLabel, QProgressBar, QPushButton, QVBoxLayout, QWidget

app = QApplication.instance() or QApplication([])
app.setStyle("Fusion")
form = QWidget()
form.setWindowTitle("Form")
form.setGeometry(30, 30, 260, 200)
column = QVBoxLayout(form)
heading = QLabel("Hello, Qt")
heading.setStyleSheet("background: #ffd700; font-size: 24px")
progress = QProgressBar()
progress.setValue(60)
for widget in (heading, progress, QCheckBox("Remember"), QPushButton("Send")):
    column.addWidget(widget)
form.show()
