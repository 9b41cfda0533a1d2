"""Run programs with their tests as rewards often do, and report which of them seem to pass: a program of a sandbox.

It reads a list of jobs as JSON from standard input, and writes the list of their results. A job is ``[how, code, tests]``:

* ``exit``: the tests are appended to the program, which is executed in a process; it passes if the exit code is 0.
* ``exec``: the program and then each test are executed in one namespace; it passes if nothing is raised.
* ``values``: the result is the ``repr`` of what ``f`` returns for each of the inputs, or null. Nothing is compared here.
"""

import contextlib
import json
import os
import resource
import signal
import sys

LIMIT_SECONDS = 1
MOST_BYTES = 1 << 16


def run(how: str, code: str, tests: list) -> object:
    """Return the result of a job, which is done in a process."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        with contextlib.suppress(BaseException):
            os._exit(work(how, code, tests, writing))
        os._exit(1)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        reported = pipe.read(MOST_BYTES)
    _, status = os.waitpid(pid, 0)
    if how == "exit":
        return os.waitstatus_to_exitcode(status) == 0
    if how == "exec":
        return reported == b"passed"
    try:
        return json.loads(reported)
    except ValueError:
        return None


def work(how: str, code: str, tests: list, report: int) -> int:
    """Do a job; return the exit code."""
    resource.setrlimit(resource.RLIMIT_CPU, (LIMIT_SECONDS, LIMIT_SECONDS))
    signal.alarm(10 * LIMIT_SECONDS)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(null, stream)
    names = {"__name__": "__main__", "__file__": "solution.py"}
    if how == "exit":
        os.close(report)
        text = "\n".join([code, *tests])
        with open("solution.py", "w") as file:
            file.write(text)
        try:
            exec(compile(text, "solution.py", "exec"), names)
        except SystemExit as error:
            return error.code if isinstance(error.code, int) else int(error.code is not None)
        return 0
    exec(code, names)
    if how == "exec":
        for test in tests:
            exec(test, names)
        os.write(report, b"passed")
        return 0
    values = []
    for xs, k in tests:
        try:
            values.append(repr(names["f"](xs, k)))
        except Exception:
            values.append(None)
    os.write(report, json.dumps(values).encode()[:MOST_BYTES])
    return 0


if __name__ == "__main__":
    json.dump([run(*job) for job in json.load(sys.stdin)], sys.stdout)
