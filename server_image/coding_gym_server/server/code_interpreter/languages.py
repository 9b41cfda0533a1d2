"""Mapping from languages to the backends that execute them."""

from __future__ import annotations

__all__ = ["DEFAULT_LANGUAGE", "USUAL_LANGUAGES", "backend_of", "normalize"]

DEFAULT_LANGUAGE = "python"
USUAL_LANGUAGES = (DEFAULT_LANGUAGE, "javascript")
"""Languages whose default contexts are listed even before their first use."""

_ALIASES = {"js": "javascript", "ts": "typescript", "sh": "bash", "shell": "bash", "py": "python", "python3": "python"}
_BACKENDS = {"javascript": "jupyter:deno", "typescript": "jupyter:deno", "bash": "bash"}


def normalize(language: str) -> str:
    """Return the canonical name of a language, given its name or an alias."""
    name = language.strip().lower()
    return _ALIASES.get(name, name)


def backend_of(language: str, *, python: str) -> str:
    """Return the name of the backend for a language, whether or not it is installed.

    Args:
        language: Canonical name of the language, as returned by ``normalize``.
        python: The backend that executes Python.
    """
    if language == DEFAULT_LANGUAGE:
        return python
    return _BACKENDS.get(language, f"jupyter:{language}")
