"""Names of the backends; both sides check them."""

from __future__ import annotations

import functools
import re
from importlib.metadata import entry_points

from coding_gym_server.languages import Language, UnknownLanguageError, find_language, languages

__all__ = [
    "BACKENDS",
    "JUPYTER_PREFIX",
    "PYTHON_PREFIX",
    "UnknownBackendError",
    "added_backends",
    "canonical_backend",
    "check_backend",
    "known_backends",
    "language_of_programs",
]

BACKENDS = {
    "python": "coding_gym_server.worker.backends.python:PythonBackend",
    "notebook": "coding_gym_server.worker.backends.notebook:NotebookBackend",
    "restricted": "coding_gym_server.worker.backends.restricted:RestrictedBackend",
    # OpenEnv's name for the restricted backend.
    "restrictedpython": "coding_gym_server.worker.backends.restricted:RestrictedBackend",
    "smolagents": "coding_gym_server.worker.backends.smolagents:SmolagentsBackend",
    "bash": "coding_gym_server.worker.backends.bash:BashBackend",
}
"""Class of each backend, imported when a session requests it."""

JUPYTER_PREFIX = "jupyter:"
"""Prefix of Jupyter backends: ``jupyter:NAME`` is the Jupyter kernel of that name."""

PYTHON_PREFIX = "python:"
"""Prefix of other interpreters: ``python:PATH`` is that with an absolute path in the files of the session."""

_KERNEL_NAME = re.compile(r"[a-z0-9._-]+", re.IGNORECASE)


class UnknownBackendError(ValueError):
    """The backend name is unknown, or the backend is not installed."""


@functools.cache
def added_backends() -> dict[str, str]:
    """Return the class of each backend that another distribution adds by an entry point of ``coding_gym.backends``."""
    return {entry.name: entry.value for entry in entry_points(group="coding_gym.backends")}


def check_backend(name: str) -> None:
    """Check that a backend name is known; for a Jupyter kernel or an interpreter, only its syntax (see ``check_installed``).

    Raises:
        UnknownBackendError: If the name is unknown.
    """
    name = canonical_backend(name)
    is_kernel = name.startswith(JUPYTER_PREFIX) and _KERNEL_NAME.fullmatch(name, len(JUPYTER_PREFIX))
    is_interpreter = name.startswith(f"{PYTHON_PREFIX}/") and "\0" not in name
    if not is_kernel and not is_interpreter and name not in known_backends():
        known = ", ".join(known_backends())
        message = f"Unknown backend {name!r}: expected one of {known}, {JUPYTER_PREFIX}KERNEL, or {PYTHON_PREFIX}/PATH"
        raise UnknownBackendError(message)


def known_backends() -> tuple[str, ...]:
    """Return the names of all backends but kernels and other interpreters, with a name of each language of programs."""
    return tuple(dict.fromkeys((*BACKENDS, *added_backends(), *languages())))


def canonical_backend(name: str) -> str:
    """Return the name of a backend that may be called by a language or its alias; any other name is returned unchanged.

    Example:
        >>> canonical_backend("C++"), canonical_backend("js"), canonical_backend("sh"), canonical_backend("notebook")
        ('cpp', 'jupyter:deno', 'bash', 'notebook')
    """
    if name in BACKENDS or name in added_backends():
        return name
    try:
        language = find_language(name)
    except UnknownLanguageError:
        return name
    return language.name if language.kernel is None else f"{JUPYTER_PREFIX}{language.kernel.name}"


def language_of_programs(name: str) -> Language | None:
    """Return the language whose programs a backend runs as a whole; None if it is another backend."""
    name = canonical_backend(name)
    return None if name in BACKENDS or name in added_backends() else languages().get(name)
