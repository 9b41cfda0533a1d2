"""What is asked of some kernels beyond the protocol, in code of their languages.

What a user has chosen never becomes part of the source as it is: it travels as a JSON string, a literal of the language too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["DIAGNOSIS", "SETTLED", "Dialect", "dialect_of"]

SETTLED = "coding_gym_settled"
"""The type of the message that ``Dialect.settle`` has the kernel publish."""

DIAGNOSIS = "coding_gym_diagnosis"
"""The type of the message that ``Dialect.diagnose`` has the kernel publish."""

_DENO_PRELUDE = Path(__file__).parent.parent / "kernels" / "deno" / "prelude.js"
_OURS = 'globalThis[Symbol.for("coding_gym")]'

_PYTHON_SET = """
__import__("sys")._coding_gym_environment = (lambda now, environ: (
    {{name: environ.get(name) for name in now}}, environ.update(now)
)[0])(__import__("json").loads({}), __import__("os").environ)
"""
_PYTHON_RESTORE = """
(lambda before, environ: [
    environ.pop(name, None) if value is None else environ.__setitem__(name, value) for name, value in before.items()
])(vars(__import__("sys")).pop("_coding_gym_environment"), __import__("os").environ) and None
"""


@dataclass(frozen=True)
class Dialect:
    """A kernel that is asked for nothing.

    Attributes:
        prelude: Run before the first cell.
        settle: Run after each cell, to publish ``SETTLED`` after everything else; empty where a cell's end says so already.
        sets_environment: Whether environment variables can be set while the kernel runs.
    """

    prelude: str = ""
    settle: str = ""
    sets_environment: bool = False

    def set_environment(self, variables: Mapping[str, str]) -> str:
        """Return code that sets environment variables and remembers what they were."""
        raise NotImplementedError

    def restore_environment(self) -> str:
        """Return code that undoes ``set_environment``."""
        raise NotImplementedError

    def diagnose(self, code: str) -> str:
        """Return code that publishes, as ``DIAGNOSIS``, why other code fails without a reason; empty if nothing can."""
        del code
        return ""


class _Python(Dialect):
    def set_environment(self, variables: Mapping[str, str]) -> str:
        return _PYTHON_SET.strip().format(_literal(dict(variables)))

    def restore_environment(self) -> str:
        return _PYTHON_RESTORE.strip()


class _Deno(Dialect):
    def set_environment(self, variables: Mapping[str, str]) -> str:
        return f"{_OURS}.setEnvironment(JSON.parse({_literal(dict(variables))}))"

    def restore_environment(self) -> str:
        return f"{_OURS}.restoreEnvironment()"

    def diagnose(self, code: str) -> str:
        return f"await {_OURS}.diagnose(JSON.parse({_literal(code)}))"


def dialect_of(implementation: str, language: str) -> Dialect:
    """Return what to ask of a kernel.

    Args:
        implementation: The name that it gives itself.
        language: The language that it says it executes.
    """
    if implementation == "Deno kernel":
        return _Deno(_DENO_PRELUDE.read_text(), f"{_OURS}.settle()", sets_environment=True)
    if language == "python":
        return _Python(sets_environment=True)
    return Dialect()


def _literal(document: object) -> str:
    return json.dumps(json.dumps(document))
