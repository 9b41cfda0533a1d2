"""Selection of the provider of a configuration."""

from __future__ import annotations

import logging
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from coding_gym import plugins
from coding_gym.client.address import Address
from coding_gym.errors import ConfigurationError, ProviderUnavailableError, SandboxStartError
from coding_gym.sandbox.base import Sandbox
from coding_gym.sandbox.config import DOCKER_OPTIONS, SandboxConfig
from coding_gym_server.display.availability import missing_for_screens

__all__ = ["start_sandbox"]

_log = logging.getLogger("coding_gym")


def start_sandbox(config: SandboxConfig) -> Sandbox:
    """Start a sandbox and wait until it is ready.

    With ``provider="auto"``, the sandbox is a container of Apptainer if ``image`` is a path without a Dockerfile, else one of
    an engine if any answers and starts it (logged at level INFO), else a local process tree (logged at level WARNING).

    Raises:
        ProviderUnavailableError: If the provider is unavailable on this machine; with ``auto``, if all are.
        ImageBuildError: If the image build fails.
        PackageInstallError: If the packages cannot be installed.
        ConfigurationError: If the server cannot fulfill its configuration.
        SandboxStartError: If the sandbox does not start.
    """
    if config.provider == "docker":
        return _docker(config)
    if config.provider == "local":
        return _local(config)
    if config.provider == "apptainer" or (config.provider == "auto" and _is_of_apptainer(config.image)):
        return _apptainer(config)
    if config.base_urls:
        message = "base_urls= are the servers of a pool: pass them to SandboxPool, and the pool as pool="
        raise ConfigurationError(message)
    if config.base_url is not None:
        from coding_gym.sandbox.remote import start_remote

        return start_remote(Address.of_url(config.base_url, token=config.token), timeout=config.start_timeout)
    if config.provider != "auto":
        added: Callable[[SandboxConfig], Sandbox] = plugins.load("providers", config.provider)
        return added(config)
    try:
        sandbox = _docker(config)
    except (ProviderUnavailableError, SandboxStartError) as no_docker:
        if isinstance(no_docker, ProviderUnavailableError):
            why, remedy = no_docker.reason, no_docker.remedy
        elif _docker_options(config):
            # It may be such an option because of which the engine does not start the container.
            raise
        else:
            why, remedy = str(no_docker).splitlines()[0], ""
        if config.root:
            raise
        try:
            sandbox = _local(config)
        except ProviderUnavailableError as no_local:
            reason = f"neither docker ({why}) nor local ({no_local.reason})"
            raise ProviderUnavailableError(provider="auto", reason=reason, remedy=remedy) from no_local
        _log.warning(
            "no Docker engine starts a container (%s): using %s, without %s. Pass provider='local' if that is intended",
            why,
            sandbox.description,
            _missing_locally(config, sandbox),
        )
    else:
        _log.info("using %s", sandbox.description)
    return sandbox


def _is_of_apptainer(image: str | None) -> bool:
    if image is None or not image.startswith("/"):
        return False
    return "Dockerfile" not in Path(image).name and not Path(image, "Dockerfile").exists()


def _missing_locally(config: SandboxConfig, sandbox: Sandbox) -> str:
    """Describe what a container would have and a local sandbox lacks, on this machine and with this configuration."""
    missing = ["the image and the limits of a container"]
    if screen := missing_for_screens():
        missing.append(f"a screen ({'; '.join(screen.values())})")
    if not sandbox.health()["isolation"]["session_users"]:
        missing.append("a user for each session")
    if ignored := _docker_options(config):
        missing.append(f"the effect of {', '.join(ignored)}")
    if modules := [name for name in config.preload if find_spec(name.partition(".")[0]) is None]:
        missing.append(f"the modules {', '.join(modules)} (pip install 'coding-gym[local]')")
    return "; ".join(missing)


def _docker_options(config: SandboxConfig) -> list[str]:
    """Return the options of a configuration that only containers have, as in a call."""
    return [f"{name}=" for name in DOCKER_OPTIONS if getattr(config, name) is not None]


def _docker(config: SandboxConfig) -> Sandbox:
    from coding_gym.sandbox.docker.provider import start_container

    return start_container(config)


def _apptainer(config: SandboxConfig) -> Sandbox:
    from coding_gym.sandbox.apptainer.provider import start_apptainer

    return start_apptainer(config)


def _local(config: SandboxConfig) -> Sandbox:
    from coding_gym.sandbox.local.provider import start_local

    return start_local(config)
