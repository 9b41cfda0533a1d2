# idle: closed
# shows: #5e35b1
# needs: PySide6

from PySide6.QtWidgets import QApplication, QLabel, QMainWindow, QMessageBox


class Window(QMainWindow):
    def closeEvent(self, event):
        answer = QMessageBox.question(self, "Quit", "Really quit?")
        event.accept() if answer == QMessageBox.StandardButton.Yes else event.ignore()


app = QApplication.instance() or QApplication([])
window = Window()
window.setGeometry(50, 50, 400, 300)
window.setStyleSheet("background: #5e35b1")
window.setCentralWidget(QLabel("Document"))
window.show()
app.exec()
