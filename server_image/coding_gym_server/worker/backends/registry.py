"""Registry of the backends, by name."""

from __future__ import annotations

import importlib
import re
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coding_gym_server.worker.backends.base import ExecutorBackend

__all__ = [
    "BACKENDS",
    "JUPYTER_PREFIX",
    "UnknownBackendError",
    "backend_class",
    "check_backend",
    "check_installed",
    "is_installed",
    "runs_in_worker",
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

_REQUIRED_MODULES = {
    "notebook": "IPython",
    "restricted": "RestrictedPython",
    "restrictedpython": "RestrictedPython",
    "smolagents": "smolagents",
}
"""Module that each backend requires in addition to the standard library and the dependencies of the server."""

_INSTALL_EXTRA = "pip install 'coding-gym[backends]'"
_INSTALL = {
    "smolagents": f"{_INSTALL_EXTRA}; for a container packages=['smolagents'], or docker build --build-arg WITH_SMOLAGENTS=1",
}

JUPYTER_PREFIX = "jupyter:"
"""Prefix of Jupyter backends: ``jupyter:NAME`` is the Jupyter kernel of that name."""

_KERNEL_NAME = re.compile(r"[a-z0-9._-]+", re.IGNORECASE)
_BASH = f"{JUPYTER_PREFIX}bash"


class UnknownBackendError(ValueError):
    """The backend name is unknown, or the backend is not installed."""


def check_backend(name: str) -> None:
    """Check that a backend name is known; for a Jupyter kernel, only the syntax of the name (see ``check_installed``).

    Raises:
        UnknownBackendError: If the name is unknown.
    """
    is_kernel = name.startswith(JUPYTER_PREFIX) and _KERNEL_NAME.fullmatch(name, len(JUPYTER_PREFIX))
    if name not in BACKENDS and not is_kernel:
        message = f"Unknown backend {name!r}: expected one of {', '.join(BACKENDS)}, or {JUPYTER_PREFIX}KERNEL"
        raise UnknownBackendError(message)


def check_installed(name: str) -> None:
    """Check that a backend, or the Jupyter kernel that it names, is installed.

    Reads files, so it must not be called in an event loop.

    Raises:
        UnknownBackendError: If the backend is unknown or not installed.
    """
    check_backend(name)
    required = _REQUIRED_MODULES.get(name)
    if required is not None and find_spec(required) is None:
        raise UnknownBackendError(_missing_module(name, required))
    if name.startswith(JUPYTER_PREFIX) and name != _BASH:
        from coding_gym_server.worker.backends.jupyter.kernelspecs import has_kernel, missing_kernel

        kernel = name.removeprefix(JUPYTER_PREFIX)
        if not has_kernel(kernel):
            message = f"the backend {name!r} is not installed: {missing_kernel(kernel)}"
            raise UnknownBackendError(message)


def is_installed(name: str) -> bool:
    """Return whether a backend is installed; see ``check_installed``."""
    try:
        check_installed(name)
    except UnknownBackendError:
        return False
    return True


def runs_in_worker(name: str) -> bool:
    """Return whether a backend executes cells in the interpreter of the worker, not in a shell or a kernel that it starts."""
    return name != "bash" and not name.startswith(JUPYTER_PREFIX)


def backend_class(name: str) -> type[ExecutorBackend]:
    """Return the class of a backend.

    Raises:
        UnknownBackendError: If no backend has that name.
        ImportError: If a required package is not installed.
    """
    check_backend(name)
    if name.startswith(JUPYTER_PREFIX):
        return _kernel_class(name.removeprefix(JUPYTER_PREFIX))
    path, _, attribute = BACKENDS[name].partition(":")
    try:
        module = importlib.import_module(path)
    except ModuleNotFoundError as error:
        raise ImportError(_missing_module(name, str(error.name)), name=error.name) from error
    found: type[ExecutorBackend] = getattr(module, attribute)
    return found


def _missing_module(backend: str, module: str) -> str:
    return f"the backend {backend!r} needs {module!r}, which is not installed: {_INSTALL.get(backend, _INSTALL_EXTRA)}"


def _kernel_class(kernel: str) -> type[ExecutorBackend]:
    from coding_gym_server.worker.backends.jupyter.kernelspecs import has_kernel

    if f"{JUPYTER_PREFIX}{kernel}" == _BASH and not has_kernel(kernel):
        return backend_class("bash")
    from coding_gym_server.worker.backends.jupyter.backend import of_kernel

    return of_kernel(kernel)
