"""Images of the apptainer provider: directories in the user's cache, each converted once from an image of an engine."""

from __future__ import annotations

import contextlib
import logging
import shutil
import subprocess
import tempfile
from pathlib import Path

import docker

from coding_gym.cache import cache_directory
from coding_gym.errors import ConfigurationError, ImageBuildError, ProviderUnavailableError
from coding_gym.sandbox.config import SandboxConfig
from coding_gym.sandbox.docker.builds import build_lock
from coding_gym.sandbox.docker.derived_images import ensure_image_with_packages
from coding_gym.sandbox.docker.engine import connect_to_engine
from coding_gym.sandbox.docker.images import image_name
from coding_gym.waiting import waiting_for

__all__ = ["convert", "converted_image", "ensure_image"]

_INCOMPLETE = ".half-made-"
_LOG_LINES = 20
_REMEDY = (
    "Convert it where there is an engine ('coding-gym build-image', 'docker save', 'apptainer build'; see docs/slurm.md), "
    "and pass image='/path/to/it.sif'"
)

_log = logging.getLogger("coding_gym")


def ensure_image(apptainer: str, config: SandboxConfig) -> str:
    """Return what Apptainer runs: the given image, or else the default one with the packages, converted if necessary.

    Raises:
        ConfigurationError: If the given image does not exist, or packages should be installed in it.
        ProviderUnavailableError: If the default image is not converted, and no engine has it.
        ImageBuildError: If it fails to build, or to be converted.
        PackageInstallError: If the packages cannot be installed.
    """
    has_packages = bool(config.packages or config.debian_packages)
    if config.image is not None:
        return _given_image(config.image, has_packages=has_packages)
    if not has_packages and (converted := converted_image(image_name())).is_dir():
        return str(converted)
    try:
        client = connect_to_engine()
    except ProviderUnavailableError as error:
        reason = f"its image must be converted from one of an engine ({error.reason})"
        raise ProviderUnavailableError(provider="apptainer", reason=reason, remedy=_REMEDY) from error
    with contextlib.closing(client):
        name = ensure_image_with_packages(client, config)
        converted = converted_image(name)
        if not converted.is_dir():
            with build_lock("apptainer"):
                if not converted.is_dir():
                    convert(apptainer, client, name, converted)
    return str(converted)


def converted_image(name: str) -> Path:
    """Return the directory of a converted image, which exists if it has been converted.

    Args:
        name: Name of the image in the engine.
    """
    return cache_directory() / "apptainer" / name.replace("/", "-").replace(":", "-")


def convert(apptainer: str, client: docker.DockerClient, name: str, converted: Path) -> None:
    """Convert an image of an engine to a directory, which Apptainer runs without a file system in user space.

    Args:
        apptainer: The program.
        client: The engine.
        name: Name of the image there.
        converted: The directory; its parent is for this package's images only.

    Raises:
        ImageBuildError: If Apptainer fails; nothing is left behind.
    """
    converted.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    for left in converted.parent.glob(f"{_INCOMPLETE}*"):
        # Left by a process that was killed: a living process holds the lock.
        shutil.rmtree(left, ignore_errors=True)
    unfinished = Path(tempfile.mkdtemp(prefix=_INCOMPLETE, dir=converted.parent))
    try:
        archive, directory = unfinished / "archive.tar", unfinished / "image"
        with waiting_for(f"converting the image {name} for Apptainer (once, takes a minute)", _log):
            with archive.open("wb") as file:
                file.writelines(client.images.get(name).save())
            command = [apptainer, "build", "--sandbox", "--fix-perms", str(directory), f"docker-archive:{archive}"]
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            message = f"Apptainer cannot convert the image {name}. Its log ends:"
            raise ImageBuildError(message, (done.stdout + done.stderr).splitlines()[-_LOG_LINES:])
        directory.rename(converted)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _given_image(image: str, *, has_packages: bool) -> str:
    if has_packages:
        options = "packages=, system_packages= and languages="
        message = f"{options} cannot be combined with image= of the apptainer provider: install them in it"
        raise ConfigurationError(message)
    if "://" not in image and not Path(image).exists():
        message = f"Expected image= to be a .sif file, the directory of an image or a URI of Apptainer, found no {image!r}"
        raise ConfigurationError(message)
    return image
