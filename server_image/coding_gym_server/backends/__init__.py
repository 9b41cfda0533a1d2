"""The ways to execute a cell, by name."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coding_gym_server.backends.base import ExecutorBackend

__all__ = ["BACKENDS", "JUPYTER_PREFIX", "UnknownBackendError", "backend_class", "check_backend"]

BACKENDS = {
    "python": "coding_gym_server.backends.python:PythonBackend",
    "notebook": "coding_gym_server.backends.notebook:NotebookBackend",
    "restricted": "coding_gym_server.backends.restricted:RestrictedBackend",
    "smolagents": "coding_gym_server.backends.smolagents:SmolagentsBackend",
}
"""The class behind each name, imported when a session wants it."""

_INSTALL_EXTRA = "pip install 'coding-gym[backends]'"
_INSTALL = {
    "smolagents": f"{_INSTALL_EXTRA}; for a container packages=['smolagents'], or docker build --build-arg WITH_SMOLAGENTS=1",
}

JUPYTER_PREFIX = "jupyter:"
"""``jupyter:NAME`` is the Jupyter kernel of that name."""


class UnknownBackendError(ValueError):
    """There is no backend of that name."""


def check_backend(name: str) -> None:
    """Find out whether a name is that of a backend.

    Raises:
        UnknownBackendError: It is not.
    """
    if name not in BACKENDS:
        message = f"Unknown backend {name!r}: expected one of {', '.join(BACKENDS)}"
        raise UnknownBackendError(message)


def backend_class(name: str) -> type[ExecutorBackend]:
    """Return the class of a backend.

    Raises:
        UnknownBackendError: There is none of that name.
        ImportError: A package that it needs is not installed.
    """
    check_backend(name)
    path, _, attribute = BACKENDS[name].partition(":")
    try:
        module = importlib.import_module(path)
    except ModuleNotFoundError as error:
        message = f"the backend {name!r} needs {error.name!r}, which is not installed: {_INSTALL.get(name, _INSTALL_EXTRA)}"
        raise ImportError(message, name=error.name) from error
    found: type[ExecutorBackend] = getattr(module, attribute)
    return found
