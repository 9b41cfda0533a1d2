"""Runs Python code whose trailing comments show the values of expressions."""

from __future__ import annotations

import ast
import contextlib
import doctest
import io
import tokenize
from typing import Any

__all__ = ["PythonRunner", "same_output"]

_CHECKER = doctest.OutputChecker()


def same_output(expected: str, found: str) -> bool:
    """Return whether two outputs are equal; ``...`` stands for any text."""
    return _CHECKER.check_output(f"{expected.rstrip()}\n", f"{found.rstrip()}\n", doctest.ELLIPSIS)


class PythonRunner:
    """Runs code blocks in one namespace, and compares values and output with those shown.

    A comment after an expression statement is the ``repr`` of its value, or what the expression prints if its value is None.

    Args:
        filename: File name in tracebacks.
    """

    def __init__(self, filename: str) -> None:
        self.namespace: dict[str, Any] = {"__name__": "__main__", "_begin": self._begin, "_compare": self._compare}
        self._filename = filename
        self._output = io.StringIO()
        self._position = 0
        self._expected: dict[int, str] = {}
        self._pending: set[int] = set()

    def run(self, text: str, line: int) -> None:
        """Run a block that begins at a line of the file.

        Raises:
            AssertionError: A value differs from the one shown.
        """
        tree = ast.increment_lineno(ast.parse(text), line - 1)
        marker = _Marker({number + line - 1: comment for number, comment in _trailing_comments(text).items()})
        tree = ast.fix_missing_locations(marker.visit(tree))
        self._expected.update(marker.expected)
        self._pending.update(marker.expected)
        with contextlib.redirect_stdout(self._output):
            exec(compile(tree, self._filename, "exec"), self.namespace)

    def run_session(self, text: str, line: int) -> None:
        """Run the transcript of an interactive Python session.

        Raises:
            AssertionError: The output of a statement differs from the one shown.
        """
        test = doctest.DocTestParser().get_doctest(text, self.namespace, self._filename, self._filename, line - 1)
        test.globs = self.namespace
        report = io.StringIO()
        results = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=report.write, clear_globs=False)
        assert not results.failed, report.getvalue()

    def finish(self) -> None:
        """Check that every shown value was computed.

        Raises:
            AssertionError: The code that computes a value never ran.
        """
        assert not self._pending, (
            f"{self._filename}: the values shown in these lines were never computed: {sorted(self._pending)}"
        )

    def _begin(self) -> None:
        self._position = len(self._output.getvalue())

    def _compare(self, line: int, value: object) -> None:
        self._pending.discard(line)
        found = self._output.getvalue()[self._position :].rstrip() if value is None else repr(value)
        assert same_output(self._expected[line], found), f"{self._filename}:{line}: shown {self._expected[line]}, found {found}"


class _Marker(ast.NodeTransformer):
    """Makes expression statements with a trailing comment report their values.

    Args:
        comments: The trailing comments by line.
    """

    def __init__(self, comments: dict[int, str]) -> None:
        self.expected: dict[int, str] = {}
        self._comments = comments

    def visit_Expr(self, node: ast.Expr) -> Any:
        line = node.end_lineno or node.lineno
        if line not in self._comments:
            return node
        self.expected[line] = self._comments[line]
        begin = ast.Call(ast.Name("_begin", ast.Load()), [], [])
        compare = ast.Call(ast.Name("_compare", ast.Load()), [ast.Constant(line), node.value], [])
        return [ast.copy_location(ast.Expr(call), node) for call in (begin, compare)]


def _trailing_comments(text: str) -> dict[int, str]:
    comments = {}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and token.line[: token.start[1]].strip():
            comments[token.start[0]] = token.string.removeprefix("#").strip()
    return comments
