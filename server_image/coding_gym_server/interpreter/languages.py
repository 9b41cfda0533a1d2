"""Which backend executes a language."""

from __future__ import annotations

__all__ = ["DEFAULT_LANGUAGE", "USUAL_LANGUAGES", "backend_of", "normalize"]

DEFAULT_LANGUAGE = "python"
USUAL_LANGUAGES = (DEFAULT_LANGUAGE, "javascript")
"""Those whose default contexts are listed before they are used."""

_ALIASES = {"js": "javascript", "ts": "typescript", "sh": "bash", "shell": "bash", "py": "python", "python3": "python"}
_BACKENDS = {"javascript": "jupyter:deno", "typescript": "jupyter:deno", "bash": "bash"}


def normalize(language: str) -> str:
    """Return the name of a language as it is listed."""
    name = language.strip().lower()
    return _ALIASES.get(name, name)


def backend_of(language: str, *, python: str) -> str:
    """Return the name of the backend for a language, which need not be installed.

    Args:
        language: As ``normalize`` returns it.
        python: The backend for Python.
    """
    if language == DEFAULT_LANGUAGE:
        return python
    return _BACKENDS.get(language, f"jupyter:{language}")
