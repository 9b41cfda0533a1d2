# idle: closed
# shows: #ffb300
# needs: PySide6
# prints: rejected

from PySide6.QtWidgets import QApplication, QDialog, QDialogButtonBox, QLineEdit, QVBoxLayout, QWidget

app = QApplication.instance() or QApplication([])
window = QWidget()
window.setGeometry(40, 40, 500, 350)
window.show()
dialog = QDialog(window)
dialog.setStyleSheet("background: #ffb300")
layout = QVBoxLayout(dialog)
layout.addWidget(QLineEdit("Name"))
layout.addWidget(QDialogButtonBox(QDialogButtonBox.StandardButton.Ok | QDialogButtonBox.StandardButton.Cancel))
print("accepted" if dialog.exec() else "rejected")
