"""The backend ``restricted``."""

from __future__ import annotations

import ast
import contextlib
import sys
from collections.abc import Iterator
from types import CodeType

from coding_gym_server.backends.output import Output
from coding_gym_server.backends.python import PythonBackend
from coding_gym_server.backends.restricted import substitutes
from coding_gym_server.backends.restricted.builtin_names import builtin_names
from coding_gym_server.backends.restricted.guards import Guards
from coding_gym_server.backends.restricted.imports import Imports
from coding_gym_server.backends.restricted.patterns import Internal, at
from coding_gym_server.backends.restricted.transformer import PolicyTransformer

__all__ = ["RestrictedBackend"]

_SHOW_VALUE = "_show_value_"
_DEEP = 10_000


class RestrictedBackend(PythonBackend):
    """Runs cells as ``PythonBackend`` does, once the policy has refused or transformed them."""

    def __init__(self, output: Output, *, authorized_imports: tuple[str, ...] = ()) -> None:
        super().__init__(output, authorized_imports=authorized_imports)
        imports = Imports(authorized_imports)
        guards = Guards(self._namespace, imports)
        substitutes.install(guards)
        self._builtins = builtin_names(guards, imports, self._namespace)
        self._builtins[_SHOW_VALUE] = self._show_last_value
        self._namespace["__builtins__"] = self._builtins

    def _compile(self, code: str) -> list[CodeType]:
        code, filename = self._add_cell(code)
        # For its syntax errors: the transformed cell would have others.
        compile(code, filename, "exec", self._flags, dont_inherit=True)
        tree = ast.parse(code, filename)
        with _deep_recursion():
            try:
                tree = PolicyTransformer(filename, code).visit(tree)
            except SyntaxError as refusal:
                # The way that led to it is none of the user's.
                raise refusal.with_traceback(None) from None
            last = tree.body[-1] if tree.body else None
            if isinstance(last, ast.Expr) and (self._show_value or self.output.rich):
                last.value = at(last.value, ast.Call(Internal(_SHOW_VALUE, ast.Load()), [last.value], []))
            return [self._compile_part(tree, filename, "exec")]

    def _show_last_value(self, value: object) -> None:
        if value is None:
            return
        self._builtins["_"] = None
        if self.output.rich:
            self.output.result({"text/plain": repr(value)}, is_value=True)
        else:
            print(repr(value))
        self._builtins["_"] = value


@contextlib.contextmanager
def _deep_recursion() -> Iterator[None]:
    """Allow for cells that nest deeper than the default lets a visitor written in Python go."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _DEEP))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
