"""Lookup of installed Jupyter kernels."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from coding_gym_server.languages import language_of_kernel

if TYPE_CHECKING:
    from jupyter_client.kernelspec import KernelSpec, KernelSpecManager

__all__ = ["find_kernel", "has_kernel", "installed_kernels", "missing_kernel", "speaks_tcp_only"]

_BUNDLED = Path(__file__).with_name("kernels")
"""Kernel specs for packages that install a program without a spec. An installed spec of the same name takes precedence."""

_PYTHON_NAMES = {"python", f"python{sys.version_info[0]}", f"python{sys.version_info[0]}.{sys.version_info[1]}"}
_PREFIX = "{prefix}"
"""Beginning of a path in a bundled spec that is in the environment of the interpreter."""
_TCP = "tcp"


def installed_kernels() -> dict[str, KernelSpec]:
    """Return the available kernels by name; empty if ``jupyter_client`` is not installed.

    Reads files, so it must not be called in an event loop.
    """
    if importlib.util.find_spec("jupyter_client") is None:
        return {}
    specs = {}
    for name in _manager().find_kernel_specs():
        spec = find_kernel(name)
        if spec is not None:
            specs[name] = spec
    return specs


def has_kernel(name: str) -> bool:
    """Return whether a kernel is available. Reads files, so it must not be called in an event loop."""
    return importlib.util.find_spec("jupyter_client") is not None and find_kernel(name) is not None


def find_kernel(name: str) -> KernelSpec | None:
    """Return the spec of a kernel, or None if the kernel or its program is not installed.

    Raises:
        ImportError: If ``jupyter_client`` is not installed.
    """
    from jupyter_client.kernelspec import NoSuchKernel

    try:
        spec = _manager().get_kernel_spec(name)
    except (NoSuchKernel, ValueError, OSError):
        # The kernel does not exist, or its kernel.json cannot be read.
        return None
    if spec.argv and spec.argv[0] in _PYTHON_NAMES:
        spec.argv[0] = sys.executable
    files = [argument.replace(_PREFIX, sys.prefix) for argument in spec.argv if argument.startswith(_PREFIX)]
    return spec if spec.argv and _program(spec.argv[0]) and all(map(os.path.exists, files)) else None


def missing_kernel(name: str) -> str:
    """Return the error message for a kernel that is not installed: Jupyter's, unless an option installs it."""
    language = language_of_kernel(name)
    if language is not None and (kernel := language.kernel) is not None and (kernel.packages or kernel.distributions):
        installers = {"apt install": (*language.packages, *kernel.packages), "pip install": kernel.distributions}
        commands = [f"'{installer} {' '.join(names)}'" for installer, names in installers.items() if names]
        return (
            f"The sandbox lacks the Jupyter kernel {name!r}, which executes cells in {language.name}: pass "
            f"languages=({language.name!r},) with provider='docker', or provider='local' after {' and '.join(commands)}"
        )
    return f"The '{name}' kernel is not available. Please pick another suitable kernel instead, or install that kernel."


def speaks_tcp_only(spec: KernelSpec) -> bool:
    """Return whether a kernel supports TCP only, and not Unix sockets.

    A spec declares this with ``{"transport": "tcp"}`` in its metadata. The Deno kernel bundles a ZeroMQ implementation that
    supports TCP only.
    """
    return spec.metadata.get("transport") == _TCP or Path(spec.argv[0]).name == "deno"


def _program(name: str) -> str | None:
    # Programs of Python packages are installed next to the interpreter, whose directory need not be on the PATH.
    return shutil.which(name, path=os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)]))


@cache
def _manager() -> KernelSpecManager:
    from jupyter_client.kernelspec import KernelSpecManager
    from jupyter_core.paths import ENV_JUPYTER_PATH, SYSTEM_JUPYTER_PATH

    # Kernels in a home directory are neither intended for sessions nor accessible to them.
    directories = [os.path.join(path, "kernels") for path in (*ENV_JUPYTER_PATH, *SYSTEM_JUPYTER_PATH)]
    native = importlib.util.find_spec("ipykernel") is not None
    return KernelSpecManager(kernel_dirs=[*directories, str(_BUNDLED)], ensure_native_kernel=native)
