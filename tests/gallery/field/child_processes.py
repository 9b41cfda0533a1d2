# idle: closed
# shows: #3949ab #fb8c00

import subprocess
import sys

PROGRAM = """
import sys, tkinter
root = tkinter.Tk()
root.geometry(sys.argv[1])
root.configure(bg=sys.argv[2])
root.mainloop()
"""
places = {"200x120+20+20": "#3949ab", "200x120+300+200": "#fb8c00"}
programs = [subprocess.Popen([sys.executable, "-c", PROGRAM, *arguments]) for arguments in places.items()]
for program in programs:
    program.wait()
