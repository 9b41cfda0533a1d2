"""Mapping from languages to the backends that execute them."""

from __future__ import annotations

from coding_gym_server.languages import UnknownLanguageError, find_language, languages
from coding_gym_server.protocol.backends import JUPYTER_PREFIX, canonical_backend

__all__ = ["DEFAULT_LANGUAGE", "USUAL_LANGUAGES", "backend_of", "normalize"]

DEFAULT_LANGUAGE = "python"
USUAL_LANGUAGES = (DEFAULT_LANGUAGE, "javascript")
"""Languages whose default contexts are listed even before their first use."""

_ALIASES = {"shell": "bash", "py": "python", "python3": "python"}
"""Those that the table of languages lacks."""


def normalize(language: str) -> str:
    """Return the canonical name of a language, given its name or an alias."""
    name = language.strip().lower()
    try:
        return find_language(name).name
    except UnknownLanguageError:
        return _ALIASES.get(name, name)


def backend_of(language: str, *, python: str) -> str:
    """Return the name of the backend for a language, whether or not it is installed.

    Args:
        language: Canonical name of the language, as returned by ``normalize``.
        python: The backend that executes Python.
    """
    if language == DEFAULT_LANGUAGE:
        return python
    return canonical_backend(language) if language in languages() else f"{JUPYTER_PREFIX}{language}"
