"""The ways to execute a cell, by name."""

from __future__ import annotations

import importlib
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coding_gym_server.backends.base import ExecutorBackend

__all__ = [
    "BACKENDS",
    "JUPYTER_PREFIX",
    "UnknownBackendError",
    "backend_class",
    "check_backend",
    "check_installed",
]

BACKENDS = {
    "python": "coding_gym_server.backends.python:PythonBackend",
    "notebook": "coding_gym_server.backends.notebook:NotebookBackend",
    "restricted": "coding_gym_server.backends.restricted:RestrictedBackend",
    # OpenEnv's name for it.
    "restrictedpython": "coding_gym_server.backends.restricted:RestrictedBackend",
    "smolagents": "coding_gym_server.backends.smolagents:SmolagentsBackend",
    "bash": "coding_gym_server.backends.bash:BashBackend",
}
"""The class behind each name, imported when a session wants it."""

_INSTALL_EXTRA = "pip install 'coding-gym[backends]'"
_INSTALL = {
    "smolagents": f"{_INSTALL_EXTRA}; for a container packages=['smolagents'], or docker build --build-arg WITH_SMOLAGENTS=1",
}

JUPYTER_PREFIX = "jupyter:"
"""``jupyter:NAME`` is the Jupyter kernel of that name."""

_KERNEL_NAME = re.compile(r"[a-z0-9._-]+", re.IGNORECASE)
_BASH = f"{JUPYTER_PREFIX}bash"


class UnknownBackendError(ValueError):
    """There is no backend of that name."""


def check_backend(name: str) -> None:
    """Find out whether a name is that of a backend; of a Jupyter kernel, whether it could be one: see ``check_installed``.

    Raises:
        UnknownBackendError: It is not.
    """
    is_kernel = name.startswith(JUPYTER_PREFIX) and _KERNEL_NAME.fullmatch(name, len(JUPYTER_PREFIX))
    if name not in BACKENDS and not is_kernel:
        message = f"Unknown backend {name!r}: expected one of {', '.join(BACKENDS)}, or {JUPYTER_PREFIX}KERNEL"
        raise UnknownBackendError(message)


def check_installed(name: str) -> None:
    """Find out whether a backend is there, if it is that of a Jupyter kernel. It reads files: not for an event loop.

    Raises:
        UnknownBackendError: The kernel is not installed.
    """
    if name.startswith(JUPYTER_PREFIX) and name != _BASH:
        from coding_gym_server.backends.kernelspecs import has_kernel, missing_kernel

        kernel = name.removeprefix(JUPYTER_PREFIX)
        if not has_kernel(kernel):
            raise UnknownBackendError(missing_kernel(kernel))


def backend_class(name: str) -> type[ExecutorBackend]:
    """Return the class of a backend.

    Raises:
        UnknownBackendError: There is none of that name.
        ImportError: A package that it needs is not installed.
    """
    check_backend(name)
    if name.startswith(JUPYTER_PREFIX):
        return _kernel_class(name.removeprefix(JUPYTER_PREFIX))
    path, _, attribute = BACKENDS[name].partition(":")
    try:
        module = importlib.import_module(path)
    except ModuleNotFoundError as error:
        message = f"the backend {name!r} needs {error.name!r}, which is not installed: {_INSTALL.get(name, _INSTALL_EXTRA)}"
        raise ImportError(message, name=error.name) from error
    found: type[ExecutorBackend] = getattr(module, attribute)
    return found


def _kernel_class(kernel: str) -> type[ExecutorBackend]:
    from coding_gym_server.backends.kernelspecs import has_kernel

    if f"{JUPYTER_PREFIX}{kernel}" == _BASH and not has_kernel(kernel):
        return backend_class("bash")
    from coding_gym_server.backends.jupyter import of_kernel

    return of_kernel(kernel)
