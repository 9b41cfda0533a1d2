"""Programs that each print what they observe of their surroundings, and of files, processes, time, output and Python itself.

What a program prints is the same in every run: it contains no process ids, times, random names or addresses. A program leaves
nothing behind, because the sessions of most forms run all programs one after the other in one interpreter.
"""

from __future__ import annotations

import textwrap

from tests.conformance.behaviors.clocks import CLOCKS
from tests.conformance.behaviors.communication import COMMUNICATION
from tests.conformance.behaviors.files import FILES
from tests.conformance.behaviors.interpreter import INTERPRETER
from tests.conformance.behaviors.processes import PROCESSES
from tests.conformance.behaviors.streams import STREAMS
from tests.conformance.behaviors.surroundings import SURROUNDINGS

__all__ = ["BEHAVIORS", "WITH_ERRORS"]

_TOOLS = """\
import contextlib, errno, os, sys, time

def attempt(action, *arguments):
    try:
        action(*arguments)
    except OSError as error:
        return errno.errorcode.get(error.errno, type(error).__name__)
    return "done"

def call(name, *arguments):
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    result = getattr(libc, name)(*arguments)
    if result == -1:
        raise OSError(ctypes.get_errno(), name)
    return result

def write(path, text=""):
    with open(path, "w") as file:
        file.write(text)

@contextlib.contextmanager
def scratch():
    import shutil
    before = os.getcwd()
    os.mkdir("scratch")
    os.chdir("scratch")
    try:
        yield
    finally:
        os.chdir(before)
        shutil.rmtree("scratch")

def in_child(action):
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writer, repr(action()).encode())
        except BaseException as error:
            os.write(writer, repr(error).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader) as answer:
        found = answer.read()
    os.waitpid(pid, 0)
    return found

"""

BEHAVIORS = {
    name: _TOOLS + textwrap.dedent(program).lstrip("\n")
    for group in (SURROUNDINGS, FILES, PROCESSES, COMMUNICATION, CLOCKS, STREAMS, INTERPRETER)
    for name, program in group.items()
}
"""Program of each behavior, in the order in which they run."""

WITH_ERRORS = frozenset(
    {
        *("exit code", "exit code beyond a byte", "exit message", "exit through finally", "uncaught exception"),
        *("output of child processes", "standard streams by name"),
    }
)
"""Behaviors that write to stderr or do not exit with 0."""
