"""The namespace of tests: what they define themselves, and for all other names the submission."""

from __future__ import annotations

import ast
import builtins
import importlib
import os
import stat
import sys
import types
from pathlib import Path
from typing import Any

from coding_gym_server.grading.careful_rules import TESTS_MODULE, CarefulRules
from coding_gym_server.grading.exchange import Answer, Connection, GetGlobal, Reply
from coding_gym_server.grading.peer import Peer
from coding_gym_server.grading.submission import MODULE
from coding_gym_server.grading.values import Tag

__all__ = ["Namespace", "WorkspaceFiles"]


_MAX_FILE_BYTES = 64 << 20

_MODULES = (sys.stdlib_module_names - {"__main__", "antigravity", "idlelib", "test", "this", "turtledemo"}) | {
    "numpy",
    "pandas",
}
"""What a submission may say that a name of the tests stands for. Importing one does nothing else."""


class WorkspaceFiles:
    """The files of the submission's working directory, as tests see them under the name ``workspace``."""

    def read_text(self, path: str) -> str:
        """Return the text of a file, in UTF-8."""
        return self.read_bytes(path).decode()

    def read_bytes(self, path: str) -> bytes:
        """Return the bytes of a file."""
        # A pipe that nobody writes to is no reason to wait, nor is a device a reason to read for ever.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                message = f"{path} is no regular file"
                raise OSError(message)
            data = file.read(_MAX_FILE_BYTES + 1)
        if len(data) > _MAX_FILE_BYTES:
            message = f"{path} has more than {_MAX_FILE_BYTES} bytes"
            raise OSError(message)
        return data

    def write_text(self, path: str, text: str) -> None:
        """Write a file in UTF-8, in directories that are made if need be."""
        self.write_bytes(path, text.encode())

    def write_bytes(self, path: str, data: bytes) -> None:
        """Write a file, in directories that are made if need be."""
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_bytes(data)

    def exists(self, path: str) -> bool:
        """Return whether there is something of this name."""
        return Path(path).exists()

    def listdir(self, path: str = ".") -> list[str]:
        """Return the names in a directory, sorted."""
        return sorted(os.listdir(path))


class Namespace(dict[str, Any]):
    """Global variables of tests.

    Args:
        peer: The tests' side of the exchange.
        connection: The same exchange, for what is no value.
        rules: The peer's.
        entry_point: What the submission has to define.
        loaded: The answer to ``Load``.
    """

    def __init__(
        self, peer: Peer, connection: Connection, rules: CarefulRules, entry_point: str | None, loaded: Answer
    ) -> None:
        super().__init__(__name__=TESTS_MODULE, __builtins__=builtins, workspace=WorkspaceFiles())
        self._peer = peer
        self._connection = connection
        self._rules = rules
        self._entry_point = entry_point
        self.solution = _Solution(self)
        if entry_point is not None:
            # Also if a builtin function has this name.
            self[entry_point] = self._value(entry_point, loaded)

    def __missing__(self, name: str) -> Any:
        if name.startswith("__") or (hasattr(builtins, name) and name != self._entry_point):
            # The interpreter looks there next.
            raise KeyError(name)
        self[name] = value = self.of_submission(name)
        return value

    def of_submission(self, name: str) -> Any:
        """Return what a name of the submission stands for.

        What the standard library has under this name is taken from there: the tests mean that.

        Raises:
            KeyError: The submission does not define it.
        """
        if name in sys.stdlib_module_names and name != self._entry_point:
            return importlib.import_module(name)
        return self._value(name, self._connection.ask(GetGlobal(name)))

    def _value(self, name: str, reply: Reply) -> Any:
        match reply:
            case Answer([Tag.NAMED, str(module), ""]) if module in sys.modules or module in _MODULES:
                return importlib.import_module(module)
            case Answer():
                value = self._peer.result(reply)
                self._rules.put_under_test(name, value)
                return value
        raise KeyError(name)

    def bind_free_names(self, tree: ast.AST) -> None:
        """Look up the names that a module uses and does not bind: class bodies do not ask ``__missing__`` for them."""
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
        for name in used - _bound_names(tree):
            if name not in self and not name.startswith("__") and not hasattr(builtins, name):
                try:
                    self[name]
                except KeyError:
                    # A local variable, or a mistake that shows when the tests run.
                    continue


def _bound_names(tree: ast.AST) -> set[str]:
    """Return the names that are bound anywhere in a module, in whatever scope."""
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
    """The submission as a module, for tests that import it."""

    def __init__(self, namespace: Namespace) -> None:
        super().__init__(MODULE)
        self.__dict__["_namespace"] = namespace

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return self._namespace.of_submission(name)
        except KeyError:
            message = f"module {MODULE!r} has no attribute {name!r}"
            raise AttributeError(message) from None

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("__"):
            super().__setattr__(name, value)
        else:
            self._namespace._peer.set(self._namespace.of_submission(""), name, value)

    def __delattr__(self, name: str) -> None:
        self._namespace._peer.delete(self._namespace.of_submission(""), name)
