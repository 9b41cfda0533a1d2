"""Hostile code in a session, and its effects."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

from coding_gym.sandbox import Sandbox
from coding_gym_server.protocol import Observation, Outcome, ResetOptions, StepAction, StepRequest
from tests.security.system_calls import HERE

__all__ = ["FORK_UNTIL_REFUSED", "REFUSED", "TOOLS", "Inside", "bracketed", "unrefused"]

REFUSED = {"EPERM", "EACCES", "EROFS", "ENOSYS"}
"""Errors of the kernel for forbidden operations, whatever their arguments."""

_ANSWER_WITHIN = 30.0

FORK_UNTIL_REFUSED = """
    import errno, os, time
    children = 0
    try:
        while True:
            if os.fork() == 0:
                time.sleep(60)
                os._exit(0)
            children += 1
    except OSError as error:
        found = errno.errorcode[error.errno]
"""

TOOLS = f"""
import ctypes, errno, fcntl, glob, mmap, os, re, resource, select, signal
import socket, stat, struct, subprocess, sys, threading, time

NUMBERS = {HERE}
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long

def call(name, *arguments):
    number = NUMBERS[name] if isinstance(name, str) else name
    arguments = (ctypes.c_long(a) if isinstance(a, int) else a for a in arguments)
    result = libc.syscall(ctypes.c_long(number), *arguments)
    if result == -1:
        raise OSError(ctypes.get_errno(), name)
    return result

def result_of(action):
    try:
        return action()
    except OSError as error:
        return errno.errorcode.get(error.errno, type(error).__name__)
    except Exception as error:
        return type(error).__name__

def attempt(action):
    return result_of(lambda: (action(), "done")[1])

def own_memory():
    with open("/proc/self/mem", "rb", 0) as memory:
        for line in open("/proc/self/maps").readlines():
            area, permissions = line.split()[:2]
            low, high = (int(end, 16) for end in area.split("-"))
            if permissions.startswith("rw"):
                try:
                    memory.seek(low)
                    yield memory.read(high - low)
                except OSError:
                    pass

def memory_has(pattern):
    return any(re.search(pattern.encode(), area) for area in own_memory())
"""
"""Definitions for hostile code."""


class Inside:
    """Session with the tools of an attacker.

    Args:
        sandbox: The sandbox of the session.
    """

    def __init__(self, sandbox: Sandbox) -> None:
        self._session = sandbox.connect()
        try:
            self.equip()
        except BaseException:
            self.close()
            raise

    def equip(self) -> None:
        """Define the tools in the session: at its start, and after its namespace was lost."""
        self.do(TOOLS)

    def run(self, code: str, timeout: float = 20.0) -> Observation:
        self.begin(code, timeout)
        return self.wait(timeout)

    def do(self, code: str, timeout: float = 20.0) -> None:
        """Run code that must succeed."""
        seen = self.run(code, timeout)
        assert seen.metadata.outcome is Outcome.OK, seen.stderr

    def begin(self, code: str, timeout: float = 20.0) -> None:
        """Send a step without waiting for its end."""
        # ask_step has no timeout parameter.
        self._session._ask(StepRequest(StepAction(code=textwrap.dedent(code), timeout_s=timeout)))

    def wait(self, timeout: float = 20.0) -> Observation:
        """Wait for the end of a step started by ``begin``."""
        return self._session.wait(timeout=timeout + _ANSWER_WITHIN).observation

    def close(self) -> None:
        self._session.close()

    def reset(self, **options: Any) -> None:
        """Begin a new episode."""
        self._session.ask_reset(ResetOptions(**options))
        self._session.wait(timeout=_ANSWER_WITHIN)
        self.equip()

    def attempt(self, expression: str) -> str:
        """Return ``done``, or the name of the error."""
        return self.see(f"attempt(lambda: {expression})")

    def attempts(self, expressions: Mapping[str, str] | Iterable[str], timeout: float = 20.0) -> dict[str, str]:
        """Attempt all of the expressions in one step, by their names; an expression without a name is its own."""
        return self._each("attempt", expressions, timeout)

    def sees(self, expressions: Mapping[str, str] | Iterable[str], timeout: float = 20.0) -> dict[str, Any]:
        """Return the values of all of the expressions in one step, or the names of their errors."""
        return self._each("result_of", expressions, timeout)

    def _each(self, tool: str, expressions: Mapping[str, str] | Iterable[str], timeout: float) -> dict[str, Any]:
        named = expressions if isinstance(expressions, Mapping) else {expression: expression for expression in expressions}
        # Without the names, which could be more than a step may print.
        results = self.see(f"[{', '.join(f'{tool}(lambda: {expression})' for expression in named.values())}]", timeout)
        return dict(zip(named, results, strict=True))

    def see(self, expression: str, timeout: float = 20.0) -> Any:
        """Return the value of an expression."""
        seen = self.run(f"print(repr({expression}))", timeout)
        assert seen.metadata.outcome is Outcome.OK, seen.stderr
        return ast.literal_eval(seen.stdout)


def unrefused(found: Mapping[str, str], *harmless: str) -> dict[str, str]:
    """Return the attempts whose results are neither errors for forbidden operations nor harmless ones."""
    return {attack: result for attack, result in found.items() if result not in {*REFUSED, *harmless}}


def bracketed(secret: str) -> str:
    """Return a pattern that finds ``secret``, but does not contain it."""
    return f"{secret[:3]}[{secret[3]}]{secret[4:]}"
