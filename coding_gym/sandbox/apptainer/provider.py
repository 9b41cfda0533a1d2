"""The apptainer provider: the server of the local provider, with the files of an image."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from coding_gym.errors import ProviderUnavailableError
from coding_gym.sandbox.apptainer.images import ensure_image
from coding_gym.sandbox.config import SandboxConfig
from coding_gym.sandbox.process_tree import ProcessTree, Program, require_filter, start_process_tree, variables
from coding_gym.sandbox.server_config import server_config

__all__ = ["start_apptainer"]

_RUN, _WORKSPACES = Path("/run/coding-gym"), Path("/run/workspaces")
_VARIABLES = ("PATH", "HOME", "TMPDIR", "APPTAINER_CACHEDIR", "APPTAINER_CONFIGDIR", "APPTAINER_TMPDIR")


def start_apptainer(config: SandboxConfig) -> ProcessTree:
    """Start a container of Apptainer, converting its image first if necessary, and wait until it is ready.

    Its server has no capabilities. It moves into namespaces of its own, as that of a local sandbox does.

    Raises:
        ProviderUnavailableError: If Apptainer is not installed, this process is root, or there is nothing to convert.
        ImageBuildError: If the conversion fails.
        PackageInstallError: If the packages cannot be installed.
        ConfigurationError: If the server cannot fulfill its configuration, or there is no such image.
        SandboxStartError: If the container does not start.
    """
    apptainer = _find_apptainer()
    require_filter("apptainer")
    image = ensure_image(apptainer, config)

    def program_in(directory: Path) -> Program:
        return Program(
            command=(
                *(apptainer, "--silent", "exec", "--userns", "--containall", "--no-home", "--no-eval", "--pwd", "/"),
                *("--bind", f"{directory}/run:{_RUN}", "--bind", f"{directory}/ws:{_WORKSPACES}"),
                *(image, "coding-gym-server"),
            ),
            run=_RUN,
            workspaces=_WORKSPACES,
            environment={
                **variables(*_VARIABLES),
                **{f"APPTAINERENV_{name}": value for name, value in config.environment.items()},
            },
        )

    description = f"an Apptainer container of {image}"
    return start_process_tree(config, server_config(config), program_in, description=description)


def _find_apptainer() -> str:
    apptainer = shutil.which("apptainer")
    if apptainer is None:
        reason, remedy = "apptainer is not on PATH", "On a cluster, a module may provide it (module load apptainer)"
        raise ProviderUnavailableError(provider="apptainer", reason=reason, remedy=remedy)
    if os.geteuid() == 0:
        reason, remedy = "its containers are those of an ordinary user, and this process is root", "Pass provider='docker'"
        raise ProviderUnavailableError(provider="apptainer", reason=reason, remedy=remedy)
    return apptainer
