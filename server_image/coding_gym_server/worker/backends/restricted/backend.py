"""``RestrictedBackend``: checks, transforms and executes cells."""

from __future__ import annotations

import ast
import contextlib
import sys
from collections.abc import Iterator
from types import CodeType

from coding_gym_server.worker.backends.output import Output
from coding_gym_server.worker.backends.python import PythonBackend
from coding_gym_server.worker.backends.restricted import safe_builtins as substitutes
from coding_gym_server.worker.backends.restricted.builtin_names import builtin_names
from coding_gym_server.worker.backends.restricted.guards import Guards
from coding_gym_server.worker.backends.restricted.imports import Imports
from coding_gym_server.worker.backends.restricted.match_rewrite import Internal, at
from coding_gym_server.worker.backends.restricted.transformer import PolicyTransformer

__all__ = ["RestrictedBackend"]

_SHOW_VALUE = "_show_value_"
_RECURSION_LIMIT = 10_000


class RestrictedBackend(PythonBackend):
    """Executes cells as ``PythonBackend`` does, after the policy has checked and transformed them."""

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
        # Report syntax errors of the original source: those of the transformed cell would differ.
        compile(code, filename, "exec", self._flags, dont_inherit=True)
        tree = ast.parse(code, filename)
        with _deep_recursion():
            try:
                tree = PolicyTransformer(filename, code).visit(tree)
            except SyntaxError as refusal:
                # The traceback contains only frames of the transformer, not user code.
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
    """Raise the recursion limit, so that the visitor can handle deeply nested cells."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _RECURSION_LIMIT))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
