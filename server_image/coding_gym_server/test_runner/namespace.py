"""Namespace of tests: their own definitions, with the submission as the fallback for all other names."""

from __future__ import annotations

import builtins
import contextlib
import importlib
import os
import re
import symtable
import sys
import types
from typing import Any

from coding_gym_server.protocol.grading import SUBMISSION_MODULE
from coding_gym_server.remote_objects.endpoint import RemoteObjectEndpoint
from coding_gym_server.remote_objects.exchange import Answer, GetGlobal, PeerConnection, Reply
from coding_gym_server.test_runner import assertions
from coding_gym_server.test_runner.crossing import TESTS_MODULE
from coding_gym_server.test_runner.policy import TestSidePolicy
from coding_gym_server.workspace.test_access import WorkspaceFiles

__all__ = ["Namespace"]


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


class Namespace(dict[str, Any]):
    """Global variables of tests.

    Args:
        peer: The tests' endpoint.
        connection: Its connection, for requests that do not return values.
        rules: Access policy of the endpoint.
        entry_point: The name that the submission must define; None if there is none.
        source: Source of the tests.
        loaded: The reply to ``Load``.
    """

    def __init__(
        self,
        peer: RemoteObjectEndpoint,
        connection: PeerConnection,
        rules: TestSidePolicy,
        entry_point: str | None,
        source: str,
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
        self._source = source
        self.solution = _Solution(self)
        if entry_point is not None:
            # Bound eagerly, because a builtin function may have the same name.
            self[entry_point] = self._value(entry_point, loaded)

    def __missing__(self, name: str) -> Any:
        if _is_special(name) or (hasattr(builtins, name) and name != self._entry_point):
            # The interpreter falls back to the builtins.
            raise KeyError(name)
        self[name] = value = self.of_submission(name)
        return value

    def of_submission(self, name: str) -> Any:
        """Return the value of a name of the submission.

        Names of well-known modules resolve to these modules, because that is what tests refer to unless they call them.

        Raises:
            KeyError: If the submission does not define it.
        """
        if name in _MODULES and name != self._entry_point and not self._calls(name):
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

    def _calls(self, name: str) -> bool:
        """Return whether the tests use a name as that of a function or class, and never as that of a module."""
        is_called = re.search(rf"(?<![\w.]){name}\s*\(", self._source)
        return is_called is not None and re.search(rf"(?<![\w.]){name}\s*(\.|as\b)", self._source) is None

    def bind_free_names(self, source: str) -> None:
        """Look up the names that a module uses without binding them: name lookup in class bodies bypasses ``__missing__``."""
        module = symtable.symtable(source, TESTS_MODULE, "exec")
        bound = {symbol.get_name() for symbol in module.get_symbols() if symbol.is_assigned() or symbol.is_imported()}
        scopes = [module]
        for scope in scopes:
            scopes += scope.get_children()
        used = {symbol.get_name() for scope in scopes for symbol in scope.get_symbols() if symbol.is_global()}
        for name in used - bound:
            if name not in self and not _is_special(name) and not hasattr(builtins, name):
                try:
                    self[name]
                except KeyError:
                    # A local variable, or an error that will surface when the tests run.
                    continue


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


class _Solution(types.ModuleType):
    """Module object that represents the submission, for tests that import it."""

    def __init__(self, namespace: Namespace) -> None:
        super().__init__(SUBMISSION_MODULE)
        self.__dict__["_namespace"] = namespace

    def __getattr__(self, name: str) -> Any:
        if _is_special(name):
            raise AttributeError(name)
        try:
            return self._namespace.of_submission(name)
        except KeyError:
            message = f"module {SUBMISSION_MODULE!r} has no attribute {name!r}"
            raise AttributeError(message) from None

    def __setattr__(self, name: str, value: Any) -> None:
        if _is_special(name):
            super().__setattr__(name, value)
        else:
            self._namespace._peer.operate("__setattr__", self._namespace.of_submission(""), (name, value))

    def __delattr__(self, name: str) -> None:
        self._namespace._peer.operate("__delattr__", self._namespace.of_submission(""), (name,))
