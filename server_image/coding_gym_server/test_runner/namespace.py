"""Namespace of tests: their own definitions, with the submission as the fallback for all other names."""

from __future__ import annotations

import ast
import builtins
import contextlib
import importlib
import os
import stat
import sys
import types
from pathlib import Path
from typing import Any

from coding_gym_server.remote_objects.endpoint import RemoteObjectEndpoint
from coding_gym_server.remote_objects.exchange import SUBMISSION_MODULE, Answer, GetGlobal, PeerConnection, Reply
from coding_gym_server.test_runner import assertions
from coding_gym_server.test_runner.crossing import TESTS_MODULE
from coding_gym_server.test_runner.policy import TestSidePolicy

__all__ = ["Namespace", "WorkspaceFiles"]


_MAX_FILE_BYTES = 64 << 20

_MODULES = {
    **{name: name for name in sys.stdlib_module_names - {"__main__", "antigravity", "idlelib", "test", "this", "turtledemo"}},
    **{name: name for name in ("matplotlib", "numpy", "pandas", "pytest", "scipy", "seaborn", "sklearn", "sympy")},
    "np": "numpy",
    "npt": "numpy.testing",
    "pd": "pandas",
    "plt": "matplotlib.pyplot",
    "mpl": "matplotlib",
    "sns": "seaborn",
    "ET": "xml.etree.ElementTree",
    "tm": "pandas.testing",
}
"""Modules that names of tests stand for if neither the tests nor Python define them."""


class WorkspaceFiles:
    """File access to the submission's working directory, available to tests under the name ``workspace``."""

    def read_text(self, path: str) -> str:
        """Return the content of a UTF-8 text file."""
        return self.read_bytes(path).decode()

    def read_bytes(self, path: str) -> bytes:
        """Return the content of a file, in bytes."""
        # Opening a pipe without a writer must not block, and reading a device must not continue indefinitely.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                message = f"{path} is not a regular file"
                raise OSError(message)
            data = file.read(_MAX_FILE_BYTES + 1)
        if len(data) > _MAX_FILE_BYTES:
            message = f"{path} has more than {_MAX_FILE_BYTES} bytes"
            raise OSError(message)
        return data

    def write_text(self, path: str, text: str) -> None:
        """Write a text file in UTF-8; creates missing directories."""
        self.write_bytes(path, text.encode())

    def write_bytes(self, path: str, data: bytes) -> None:
        """Write a binary file; creates missing directories."""
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_bytes(data)

    def exists(self, path: str) -> bool:
        """Return whether a path exists."""
        return Path(path).exists()

    def listdir(self, path: str = ".") -> list[str]:
        """Return the sorted names in a directory."""
        return sorted(os.listdir(path))


class Namespace(dict[str, Any]):
    """Global variables of tests.

    Args:
        peer: The tests' endpoint.
        connection: Its connection, for requests that do not return values.
        rules: Access policy of the endpoint.
        entry_point: The name that the submission must define; None if there is none.
        loaded: The reply to ``Load``.
    """

    def __init__(
        self,
        peer: RemoteObjectEndpoint,
        connection: PeerConnection,
        rules: TestSidePolicy,
        entry_point: str | None,
        loaded: Answer,
    ) -> None:
        # The file does not exist, but tests find others beside it.
        file = os.path.abspath(f"{TESTS_MODULE}.py")
        super().__init__(__name__=TESTS_MODULE, __file__=file, __builtins__=builtins, workspace=WorkspaceFiles())
        self[assertions.NAME] = assertions
        self._peer = peer
        self._connection = connection
        self._rules = rules
        self._entry_point = entry_point
        self.solution = _Solution(self)
        if entry_point is not None:
            # Bound eagerly, because a builtin function may have the same name.
            self[entry_point] = self._value(entry_point, loaded)

    def __missing__(self, name: str) -> Any:
        if name.startswith("__") or (hasattr(builtins, name) and name != self._entry_point):
            # The interpreter falls back to the builtins.
            raise KeyError(name)
        self[name] = value = self.of_submission(name)
        return value

    def of_submission(self, name: str) -> Any:
        """Return the value of a name of the submission.

        Names of well-known modules resolve to these modules, because that is what tests refer to.

        Raises:
            KeyError: If the submission does not define it.
        """
        if name in _MODULES and name != self._entry_point:
            with contextlib.suppress(ImportError):
                return importlib.import_module(_MODULES[name])
        return self._value(name, self._connection.ask(GetGlobal(name)))

    def _value(self, name: str, reply: Reply) -> Any:
        match reply:
            case Answer():
                value = self._peer.result(reply)
                self._rules.put_under_test(name, value)
                return value
        raise KeyError(name)

    def bind_free_names(self, tree: ast.AST) -> None:
        """Look up the names that a module uses without binding them: name lookup in class bodies bypasses ``__missing__``."""
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
        for name in used - _bound_names(tree):
            if name not in self and not name.startswith("__") and not hasattr(builtins, name):
                try:
                    self[name]
                except KeyError:
                    # A local variable, or an error that will surface when the tests run.
                    continue


def _bound_names(tree: ast.AST) -> set[str]:
    """Return the names that are bound in any scope of a module."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.alias):
            found.add(node.asname or node.name.partition(".")[0])
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name is not None:
            found.add(node.name)
    return found


class _Solution(types.ModuleType):
    """Module object that represents the submission, for tests that import it."""

    def __init__(self, namespace: Namespace) -> None:
        super().__init__(SUBMISSION_MODULE)
        self.__dict__["_namespace"] = namespace

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return self._namespace.of_submission(name)
        except KeyError:
            message = f"module {SUBMISSION_MODULE!r} has no attribute {name!r}"
            raise AttributeError(message) from None

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("__"):
            super().__setattr__(name, value)
        else:
            self._namespace._peer.set(self._namespace.of_submission(""), name, value)

    def __delattr__(self, name: str) -> None:
        self._namespace._peer.delete(self._namespace.of_submission(""), name)
