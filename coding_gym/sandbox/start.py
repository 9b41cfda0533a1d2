"""Selection of the provider of a configuration."""

from __future__ import annotations

import logging

from coding_gym.errors import ProviderUnavailableError
from coding_gym.sandbox.base import Sandbox
from coding_gym.sandbox.config import SandboxConfig

__all__ = ["start_sandbox"]

_log = logging.getLogger("coding_gym")


def start_sandbox(config: SandboxConfig) -> Sandbox:
    """Start a sandbox and wait until it is ready.

    With ``provider="auto"``, the sandbox is a container if an engine answers (logged at level INFO), else a local process tree
    (logged at level WARNING).

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
    if config.base_url is not None:
        from coding_gym.sandbox.remote import start_remote

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
    from coding_gym.sandbox.docker.provider import start_container

    return start_container(config)


def _local(config: SandboxConfig) -> Sandbox:
    from coding_gym.sandbox.local.provider import start_local

    return start_local(config)
