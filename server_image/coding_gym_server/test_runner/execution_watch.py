"""Watch for tests that execute what their submission may have chosen, such as ``eval(repr(answer))`` or ``pickle.loads``.

Code that runs in the process of the tests can claim any result. Python calls audit hooks before it runs, so the report is on
its way to the server by then: nothing that the process sends later can overtake or withdraw it.
"""

from __future__ import annotations

import ast
import collections
import dataclasses
import os
import symtable
import sys
import threading
import types
import unittest.mock
from collections.abc import Callable
from typing import Any

from coding_gym_server.protocol.grading import Asserts, UnitTests
from coding_gym_server.remote_objects.proxies import ProxyType
from coding_gym_server.test_runner.crossing import TESTS_MODULE

__all__ = ["ExecutionWatch"]

_UNPICKLING = "pickle.find_class"

_EVENTS = frozenset(
    (
        *("compile", "exec", "code.__new__", "function.__new__", _UNPICKLING, "marshal.load", "marshal.loads"),
        *("ctypes.dlopen", "sqlite3.load_extension", "cpython.PyInterpreterState_New"),
        *("os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "subprocess.Popen"),
    )
)
"""Events that are reported wherever they happen; ``import`` and ``open`` are if they concern files of the submission."""

_SPECIFY: types.FunctionType = vars(unittest.mock)["_set_signature"]
"""What gives a mock the signature of a function."""

_PARSERS = (ast.parse.__code__, symtable.symtable.__code__)
_OWN = "coding_gym_server"
_LOADERS = ("<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>")
_FROZEN = "<frozen "
_MODULE = "<module>"


class ExecutionWatch:
    """Reports the first event by which tests execute what the submission may have chosen.

    Not reported is what does not depend on it: the execution of the tests themselves, modules of directories that it cannot
    write, definitions of named tuples, data classes and mocks, and text that is parsed and not executed (``ast.literal_eval``).

    Args:
        report: Called with the name of the event, before it happens.
        directories: Directories that the submission can write.
    """

    def __init__(self, report: Callable[[str], None], directories: tuple[str, ...]) -> None:
        self._report = report
        self._directories = tuple(f"{os.path.realpath(directory)}/" for directory in directories)
        self._lock = threading.RLock()
        self._has_reported = False

    def install(self, tests: Asserts | UnitTests) -> None:
        """Watch this process, permanently.

        Args:
            tests: The tests that it runs.
        """
        sources = (tests.setup, *tests.cases) if isinstance(tests, Asserts) else (tests.source,)
        if any("find_class" in source for source in sources):
            # No event tells what an unpickler calls that finds its classes by itself.
            self._tell(_UNPICKLING)
        sys.addaudithook(self._on_event)

    def _on_event(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._has_reported:
            return
        if event in _EVENTS:
            frame = sys._getframe().f_back
            if frame is None or not self._is_independent(event, arguments, frame):
                self._tell(event)
        elif event in ("import", "open") and self._is_below(arguments[1 if event == "import" else 0]):
            frame = sys._getframe().f_back
            if frame is None or not _is_own(frame):
                self._tell(event)

    def _tell(self, event: str) -> None:
        with self._lock:
            if not self._has_reported:
                self._report(event)
                self._has_reported = True

    def _is_independent(self, event: str, arguments: tuple[Any, ...], frame: types.FrameType) -> bool:
        """Return whether the submission has no influence on what is about to be executed."""
        if _is_own(frame) or _is_parsing(event, frame) or _is_definition(event, frame):
            return True
        if _is_loader(frame):
            match event:
                case "exec":
                    return self._is_library(arguments[0].co_filename)
                case "compile":
                    return self._is_library(arguments[1])
            return event.startswith("marshal.")
        # A module of a library executes what it likes while it is loaded.
        module: types.FrameType | None = frame
        while module is not None and not _is_own(module):
            if module.f_code.co_name == _MODULE and _is_loader(module.f_back):
                return self._is_library(module.f_code.co_filename)
            module = module.f_back
        return False

    def _is_library(self, file: Any) -> bool:
        if type(file) is not str:
            return False
        return file.startswith(_FROZEN) or (os.path.isabs(file) and not self._is_below(file))

    def _is_below(self, path: Any) -> bool:
        """Return whether a path leads to a file that the submission can write; descriptors and None do not."""
        if path is None or type(path) is int:
            return False
        if type(path) is bytes:
            path = os.fsdecode(path)
        # The methods of other objects might be the submission's.
        return type(path) is not str or f"{os.path.realpath(path)}/".startswith(self._directories)


def _module_of(frame: types.FrameType) -> str:
    """Return the name of the top-level package of the code that a frame executes."""
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _is_loader(frame: types.FrameType | None) -> bool:
    return frame is not None and frame.f_code.co_filename in _LOADERS


def _is_own(frame: types.FrameType) -> bool:
    return _module_of(frame) == _OWN


def _is_parsing(event: str, frame: types.FrameType) -> bool:
    """Return whether text becomes a tree or table, for others than libraries that evaluate it, as ``DataFrame.eval`` does."""
    if event != "compile" or not any(frame.f_code is parser for parser in _PARSERS) or frame.f_back is None:
        return False
    user = _module_of(frame.f_back)
    return user in (TESTS_MODULE, _OWN) or user in sys.stdlib_module_names


def _is_definition(event: str, frame: types.FrameType) -> bool:
    """Return whether the standard library makes a class or function of text in which only its names vary."""
    if event not in ("compile", "exec"):
        return False
    if frame.f_code is collections.namedtuple.__code__:
        # It accepts nothing but identifiers.
        return True
    if frame.f_code is _SPECIFY.__code__:
        # It has checked the name, unless that has methods of its own.
        return type(frame.f_locals.get("name")) is str
    if frame.f_globals is not vars(dataclasses):
        return False
    definition: types.FrameType | None = frame
    while definition is not None and definition.f_code.co_name != "_process_class":
        definition = definition.f_back
    kind = definition.f_locals["cls"] if definition is not None else None
    if not isinstance(kind, type) or isinstance(kind, ProxyType):
        return False
    fields = vars(kind).get("__dataclass_fields__")
    return type(fields) is dict and all(
        type(field) is dataclasses.Field and type(field.name) is str and field.name.isidentifier() for field in fields.values()
    )
