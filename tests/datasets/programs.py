"""Programs run in the episodes of the tests."""

from __future__ import annotations

WINDOW = """
import tkinter as tk

window = tk.Tk()
window.geometry("60x30+3+4")
window.configure(background="#c02020")
window.mainloop()
"""

# Greek, an astral character, NUL, invalid UTF-8, and a lone surrogate.
UGLY = [
    "print('h\N{LATIN SMALL LETTER E WITH ACUTE} \N{GREEK SMALL LETTER PI} \N{GRINNING FACE}')",
    "print('a\\0b')",
    "import sys; sys.stdout.buffer.write(b'\\xff\\xfe raw\\n')",
    "print('\\ud800 lone', file=sys.stderr)",
    "print('line\\r\\n\\x1b[31mred | pipe ``` fence')",
    "'\\udfff'",
]

RANDOM = "import random; print(random.random())"
