"""The Jupyter kernels that are installed."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jupyter_client.kernelspec import KernelSpec, KernelSpecManager

__all__ = ["find_kernel", "has_kernel", "installed_kernels", "missing_kernel", "speaks_tcp_only"]

_OURS = Path(__file__).parent.parent / "kernels"
"""Specs of kernels whose packages bring a program, but no spec. A spec that is installed under the same name comes first."""

_PYTHON_NAMES = {"python", f"python{sys.version_info[0]}", f"python{sys.version_info[0]}.{sys.version_info[1]}"}
_TCP = "tcp"


def installed_kernels() -> dict[str, KernelSpec]:
    """Return the kernels that a session can have, by name; empty where ``jupyter_client`` is not installed.

    It reads files: not for an event loop.
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
    """Say whether a session can have a kernel. It reads files: not for an event loop."""
    return importlib.util.find_spec("jupyter_client") is not None and find_kernel(name) is not None


def find_kernel(name: str) -> KernelSpec | None:
    """Return a kernel's spec; None if it, or the program that it starts, is not installed.

    Raises:
        ImportError: ``jupyter_client`` is not installed.
    """
    from jupyter_client.kernelspec import NoSuchKernel

    try:
        spec = _manager().get_kernel_spec(name)
    except (NoSuchKernel, ValueError, OSError):
        # There is none, or its kernel.json cannot be read.
        return None
    if spec.argv and spec.argv[0] in _PYTHON_NAMES:
        spec.argv[0] = sys.executable
    return spec if spec.argv and _program(spec.argv[0]) else None


def missing_kernel(name: str) -> str:
    """Say in Jupyter's words that a kernel is not installed."""
    return f"The '{name}' kernel is not available. Please pick another suitable kernel instead, or install that kernel."


def speaks_tcp_only(spec: KernelSpec) -> bool:
    """Say whether a kernel cannot be reached over Unix sockets.

    A spec says so by ``{"transport": "tcp"}`` in its metadata. Deno's kernel has a ZeroMQ of its own, which knows ports only.
    """
    return spec.metadata.get("transport") == _TCP or Path(spec.argv[0]).name == "deno"


def _program(name: str) -> str | None:
    # A program that came with a Python package is beside the interpreter, which need not be on the PATH.
    return shutil.which(name, path=os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)]))


@cache
def _manager() -> KernelSpecManager:
    from jupyter_client.kernelspec import KernelSpecManager
    from jupyter_core.paths import ENV_JUPYTER_PATH, SYSTEM_JUPYTER_PATH

    # What is in somebody's home is not for sessions, and out of their reach.
    directories = [os.path.join(path, "kernels") for path in (*ENV_JUPYTER_PATH, *SYSTEM_JUPYTER_PATH)]
    native = importlib.util.find_spec("ipykernel") is not None
    return KernelSpecManager(kernel_dirs=[*directories, str(_OURS)], ensure_native_kernel=native)
