"""Setting environment variables in a running kernel, by code of its language.

What a variable is set to never becomes part of the source: it travels as a JSON string, which is a literal of the language too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

__all__ = ["restoring", "setting"]

_JAVASCRIPT_SETTING = """
(() => {
  const before = {};
  for (const [name, value] of Object.entries(JSON.parse(%s))) {
    before[name] = Deno.env.get(name);
    Deno.env.set(name, value);
  }
  Object.defineProperty(globalThis, Symbol.for("coding_gym.environment"), {value: before, configurable: true});
})()
"""
_JAVASCRIPT_RESTORING = """
(() => {
  const key = Symbol.for("coding_gym.environment");
  for (const name of JSON.parse(%s)) {
    const value = globalThis[key][name];
    value === undefined ? Deno.env.delete(name) : Deno.env.set(name, value);
  }
  delete globalThis[key];
})()
"""
_PYTHON_SETTING = """
__import__("sys")._coding_gym_environment = (lambda now, environ: (
    {name: environ.get(name) for name in now}, environ.update(now)
)[0])(__import__("json").loads(%s), __import__("os").environ)
"""
_PYTHON_RESTORING = """
(lambda sys, environ: [
    environ.pop(name, None) if value is None else environ.__setitem__(name, value)
    for name, value in vars(sys).pop("_coding_gym_environment").items() if name in __import__("json").loads(%s)
])(__import__("sys"), __import__("os").environ) and None
"""
_BY_LANGUAGE = {
    "typescript": (_JAVASCRIPT_SETTING, _JAVASCRIPT_RESTORING),
    "javascript": (_JAVASCRIPT_SETTING, _JAVASCRIPT_RESTORING),
    "python": (_PYTHON_SETTING, _PYTHON_RESTORING),
}


def setting(language: str, variables: Mapping[str, str]) -> str | None:
    """Return code that sets variables and notes what they were; None if it is not known how in this language."""
    sources = _BY_LANGUAGE.get(language)
    return None if sources is None else sources[0].strip() % _literal(dict(variables))


def restoring(language: str, variables: Mapping[str, str]) -> str:
    """Return code that undoes ``setting``."""
    return _BY_LANGUAGE[language][1].strip() % _literal(list(variables))


def _literal(document: object) -> str:
    return json.dumps(json.dumps(document))
