"""What an engine says of itself, and what its containers are started with for it."""

from __future__ import annotations

from typing import Any

import pytest

from coding_gym.sandbox.docker import provider
from coding_gym.sandbox.docker.engine import inspect_engine

# From the documented responses of Docker's API 1.48; nobody has run this with such an engine.
DOCKER_28 = {
    "version": {"Version": "28.0.1", "ApiVersion": "1.48", "Components": [{"Name": "Engine"}, {"Name": "containerd"}]},
    "info": {
        "OperatingSystem": "Ubuntu 24.04.2 LTS",
        "CgroupDriver": "systemd",
        "CgroupVersion": "2",
        "SecurityOptions": ["name=apparmor", "name=seccomp,profile=builtin", "name=cgroupns"],
    },
}


class Engine:
    """The two requests of ``inspect_engine``."""

    def __init__(self, *, version: dict[str, Any] | None = None, info: dict[str, Any] | None = None) -> None:
        self._version = DOCKER_28["version"] | (version or {})
        self._info = DOCKER_28["info"] | (info or {})

    def version(self) -> dict[str, Any]:
        return self._version

    def info(self) -> dict[str, Any]:
        return self._info


def options_of(engine: Engine) -> dict[str, Any]:
    traits = inspect_engine(engine)  # type: ignore[arg-type]
    return provider._user_options(traits, "", has_root=False)


def test_container_may_share_out_its_control_group():
    options = options_of(Engine())
    assert "writable-cgroups=true" in options["security_opt"]
    assert options["cgroupns"] == "private"


@pytest.mark.parametrize(
    "engine",
    [
        Engine(version={"Version": "27.5.1"}),
        Engine(version={"Version": "dev"}),
        Engine(version={"Version": "29.0.0", "Components": [{"Name": "Podman Engine"}]}),
        Engine(info={"CgroupVersion": "1"}),
        Engine(info={"SecurityOptions": ["name=seccomp,profile=builtin", "name=rootless", "name=cgroupns"]}),
        Engine(info={"SecurityOptions": ["name=userns"]}),
    ],
    ids=["old", "unknown version", "Podman", "version 1", "rootless", "mapped users"],
)
def test_other_engines_share_out_none(engine):
    options = options_of(engine)
    assert "writable-cgroups=true" not in options["security_opt"]
    assert "cgroupns" not in options
