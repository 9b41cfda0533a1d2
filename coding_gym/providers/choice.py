"""Which provider a configuration means."""

from __future__ import annotations

import logging

from coding_gym.config import SandboxConfig
from coding_gym.errors import ProviderUnavailableError
from coding_gym.providers.base import Sandbox

__all__ = ["start_sandbox"]

_log = logging.getLogger("coding_gym")


def start_sandbox(config: SandboxConfig) -> Sandbox:
    """Start a sandbox and wait until it is ready.

    With ``provider="auto"`` it is a container if an engine answers, else a local process tree, and the log says which: at level
    INFO the one, WARNING the other.

    Raises:
        ProviderUnavailableError: The provider does not work on this machine; with ``auto``, none does.
        ImageBuildError: The image does not build.
        PackageInstallError: The packages cannot be installed.
        SandboxStartError: The sandbox did not come up.
    """
    if config.provider == "docker":
        return _docker(config)
    if config.provider == "local":
        return _local(config)
    if config.base_url is not None:
        from coding_gym.providers.remote import start_remote

        return start_remote(config)
    try:
        sandbox = _docker(config)
    except ProviderUnavailableError as no_docker:
        try:
            sandbox = _local(config)
        except ProviderUnavailableError as no_local:
            reason = f"neither docker ({no_docker.reason}) nor local ({no_local.reason})"
            raise ProviderUnavailableError(provider="auto", reason=reason) from no_local
        _log.warning("no Docker engine answers (%s): using %s", no_docker.reason, sandbox.description)
    else:
        _log.info("using %s", sandbox.description)
    return sandbox


def _docker(config: SandboxConfig) -> Sandbox:
    from coding_gym.providers.docker import start_container

    return start_container(config)


def _local(config: SandboxConfig) -> Sandbox:
    from coding_gym.providers.local import start_local

    return start_local(config)
