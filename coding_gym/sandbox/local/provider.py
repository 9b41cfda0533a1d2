"""The local provider: the server as a child process in namespaces, under resource limits."""

from __future__ import annotations

import sys
from pathlib import Path

from msgspec.structs import replace

from coding_gym.sandbox.config import SandboxConfig
from coding_gym.sandbox.process_tree import ProcessTree, Program, require_filter, start_process_tree, variables
from coding_gym.sandbox.server_config import server_config

__all__ = ["start_local"]

_VARIABLES = (
    "PATH",
    "LD_LIBRARY_PATH",
    "PYTHONHOME",
    "PYTHONPATH",
    "PYTHONUSERBASE",
    "VIRTUAL_ENV",
    "HOME",
    "LANG",
    "TZ",
    "MPLCONFIGDIR",
)


def start_local(config: SandboxConfig) -> ProcessTree:
    """Start a server and wait until it is ready.

    Raises:
        ProviderUnavailableError: If the kernel cannot filter system calls.
        PackageInstallError: If the packages cannot be installed.
        ConfigurationError: If the server cannot fulfill its configuration: the backend is not installed, for example.
        SandboxStartError: If the server does not start.
    """
    require_filter("local")
    overlay = _prepare_packages(config) if config.packages or config.debian_packages else None

    def program_in(directory: Path) -> Program:
        return Program(
            command=(sys.executable, "-P", "-m", "coding_gym_server"),
            run=directory / "run",
            workspaces=directory / "ws",
            environment={**variables(*_VARIABLES), **config.environment},
        )

    server = replace(server_config(config), overlay=overlay)
    return start_process_tree(config, server, program_in, description="a local sandbox")


def _prepare_packages(config: SandboxConfig) -> Path | None:
    """Return the overlay with the packages of a configuration; None if this machine has them all."""
    from coding_gym.sandbox.local.overlay import ensure_overlay
    from coding_gym.sandbox.packages import check_installed_on_machine, check_languages_on_machine, resolve_packages

    check_installed_on_machine(config.system_packages)
    check_languages_on_machine(config.languages)
    return ensure_overlay(resolve_packages(config).requirements)
