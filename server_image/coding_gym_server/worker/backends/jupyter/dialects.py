"""Kernel-specific operations that the Jupyter protocol does not cover, implemented as code in the language of the kernel.

User input is never inserted into the source directly: it is passed as a JSON string, which is also a literal of the language.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["DIAGNOSIS", "SETTLED", "Dialect", "dialect_of"]

SETTLED = "coding_gym_settled"
"""Type of the message that the code of ``Dialect.settle`` makes the kernel publish."""

DIAGNOSIS = "coding_gym_diagnosis"
"""Type of the message that the code of ``Dialect.diagnose`` makes the kernel publish."""

_DENO_PRELUDE = Path(__file__).with_name("kernels") / "deno" / "prelude.js"
_NAMESPACE = 'globalThis[Symbol.for("coding_gym")]'

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


_R_SET = """
options(coding_gym_environment = local({{
  now <- as.list(jsonlite::fromJSON({}))
  before <- Sys.getenv(names(now), unset = NA, names = TRUE)
  do.call(Sys.setenv, now)
  before
}}))
"""
_R_RESTORE = """
invisible(local({
  before <- getOption("coding_gym_environment")
  options(coding_gym_environment = NULL)
  Sys.unsetenv(names(before)[is.na(before)])
  if (!all(is.na(before))) do.call(Sys.setenv, as.list(before[!is.na(before)]))
}))
"""
# Java's environment cannot be changed but by reflection. E2B's server sets properties instead, by which its users know them.
_JAVA_CHANGE = """
{{
  var field = Class.forName("java.util.Collections$UnmodifiableMap").getDeclaredField("m");
  field.setAccessible(true);
  @SuppressWarnings("unchecked") var environment = (java.util.Map<String, String>) field.get(System.getenv());
  {}
}}
"""
_JAVA_SET = """
  var before = new java.util.HashMap<String, String[]>();
  for (var set : new String[][] {{{}}})
    before.put(set[0], new String[] {{environment.put(set[0], set[1]), System.setProperty(set[0], set[1])}});
  System.getProperties().put("coding_gym_environment", before);
"""
_JAVA_RESTORE = """
  for (var set : ((java.util.Map<String, String[]>) System.getProperties().remove("coding_gym_environment")).entrySet()) {
    if (set.getValue()[0] == null) environment.remove(set.getKey());
    else environment.put(set.getKey(), set.getValue()[0]);
    if (set.getValue()[1] == null) System.clearProperty(set.getKey());
    else System.setProperty(set.getKey(), set.getValue()[1]);
  }
"""


@dataclass(frozen=True)
class Dialect:
    """Default dialect, for kernels without kernel-specific operations.

    Attributes:
        prelude: Code that runs before the first cell; empty for none.
        settle: Code that runs after each cell, to publish ``SETTLED`` after all other messages; empty if the end of a cell
            implies that already.
        sets_environment: Whether environment variables can be set while the kernel runs.
    """

    prelude: str = ""
    settle: str = ""
    sets_environment: bool = False

    def set_environment(self, variables: Mapping[str, str]) -> str:
        """Return code that sets environment variables and saves their previous values."""
        raise NotImplementedError

    def restore_environment(self) -> str:
        """Return code that restores the values saved by ``set_environment``."""
        raise NotImplementedError

    def diagnose(self, code: str) -> str:
        """Return code that publishes, as ``DIAGNOSIS``, why a cell fails to compile; empty if unsupported."""
        del code
        return ""


class _Python(Dialect):
    def set_environment(self, variables: Mapping[str, str]) -> str:
        return _PYTHON_SET.strip().format(_literal(dict(variables)))

    def restore_environment(self) -> str:
        return _PYTHON_RESTORE.strip()


class _R(Dialect):
    def set_environment(self, variables: Mapping[str, str]) -> str:
        return _R_SET.strip().format(_literal(dict(variables)))

    def restore_environment(self) -> str:
        return _R_RESTORE.strip()


class _Java(Dialect):
    def set_environment(self, variables: Mapping[str, str]) -> str:
        pairs = ", ".join(f"{{{json.dumps(name)}, {json.dumps(value)}}}" for name, value in variables.items())
        return _JAVA_CHANGE.strip().format(_JAVA_SET.strip().format(pairs))

    def restore_environment(self) -> str:
        return _JAVA_CHANGE.strip().format(_JAVA_RESTORE.strip())


class _Deno(Dialect):
    def set_environment(self, variables: Mapping[str, str]) -> str:
        return f"{_NAMESPACE}.setEnvironment(JSON.parse({_literal(dict(variables))}))"

    def restore_environment(self) -> str:
        return f"{_NAMESPACE}.restoreEnvironment()"

    def diagnose(self, code: str) -> str:
        return f"await {_NAMESPACE}.diagnose(JSON.parse({_literal(code)}))"


def dialect_of(implementation: str, language: str) -> Dialect:
    """Return the dialect of a kernel.

    Args:
        implementation: The implementation name that the kernel reports.
        language: The language that the kernel reports.
    """
    if implementation == "Deno kernel":
        return _Deno(_DENO_PRELUDE.read_text(), f"{_NAMESPACE}.settle()", sets_environment=True)
    if language == "python":
        return _Python(sets_environment=True)
    if language == "r":
        return _R(sets_environment=True)
    if implementation == "JJava":
        return _Java(sets_environment=True)
    return Dialect()


def _literal(document: object) -> str:
    return json.dumps(json.dumps(document))
