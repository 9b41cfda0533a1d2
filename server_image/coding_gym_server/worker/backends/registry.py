"""Registry of the backends, by name."""

from __future__ import annotations

import importlib
import os
import shutil
from importlib.util import find_spec
from typing import TYPE_CHECKING

from coding_gym_server.languages import LanguageMissingError
from coding_gym_server.protocol.backends import (
    BACKENDS,
    JUPYTER_PREFIX,
    PYTHON_PREFIX,
    UnknownBackendError,
    added_backends,
    canonical_backend,
    check_backend,
    language_of_programs,
)

if TYPE_CHECKING:
    from coding_gym_server.worker.backends.base import ExecutorBackend

__all__ = ["backend_class", "check_installed", "is_installed", "runs_in_worker"]

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

_BASH = f"{JUPYTER_PREFIX}bash"


def _path_of(name: str) -> str | None:
    return BACKENDS.get(name) or added_backends().get(name)


def check_installed(name: str) -> None:
    """Check that a backend, or the Jupyter kernel that it names, is installed.

    Reads files, so it must not be called in an event loop.

    Raises:
        UnknownBackendError: If the backend is unknown or not installed.
    """
    check_backend(name)
    if (language := language_of_programs(name)) is not None and (missing := language.missing()):
        message = f"the backend {name!r} is not installed: {LanguageMissingError(language, missing)}"
        raise UnknownBackendError(message)
    name = canonical_backend(name)
    required = _REQUIRED_MODULES.get(name)
    if required is not None and find_spec(required) is None:
        raise UnknownBackendError(_missing_module(name, required))
    if name.startswith(PYTHON_PREFIX) and not os.access(path := name.removeprefix(PYTHON_PREFIX), os.X_OK):
        message = f"the backend {name!r} needs an interpreter at {path}, which the sandbox does not have"
        raise UnknownBackendError(message)
    if name == "bash" and shutil.which(name) is None:
        message = f"the backend {name!r} needs a program of this name, which the sandbox lacks: expected an image with bash"
        raise UnknownBackendError(message)
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
    """Return whether a backend executes cells in the interpreter of the worker, not in another program that it starts."""
    name = canonical_backend(name)
    is_program = name == "bash" or language_of_programs(name) is not None
    return not is_program and not name.startswith((JUPYTER_PREFIX, PYTHON_PREFIX))


def backend_class(name: str) -> type[ExecutorBackend]:
    """Return the class of a backend.

    Raises:
        UnknownBackendError: If no backend has that name.
        ImportError: If a required package is not installed.
    """
    check_backend(name)
    if (language := language_of_programs(name)) is not None:
        from coding_gym_server.worker.backends.program import of_language

        return of_language(language)
    name = canonical_backend(name)
    if name.startswith(JUPYTER_PREFIX):
        return _kernel_class(name.removeprefix(JUPYTER_PREFIX))
    if name.startswith(PYTHON_PREFIX):
        from coding_gym_server.worker.backends.interpreter import of_interpreter

        return of_interpreter(name)
    path, _, attribute = (_path_of(name) or "").partition(":")
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
