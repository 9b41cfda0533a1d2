"""Removal of orphaned containers."""

from __future__ import annotations

import contextlib
import logging
import threading

import docker
from docker.errors import APIError, DockerException, NotFound
from docker.models.containers import Container

from coding_gym.sandbox.docker.engine import root_cause
from coding_gym.sandbox.ownership import LABEL_OWNER, OwnerProcess, remove_orphaned_directories

_CONFLICT = 409


_log = logging.getLogger("coding_gym")
_cleanup_lock = threading.Lock()


_orphans_removed = False


def our_containers(client: docker.DockerClient) -> list[tuple[Container, OwnerProcess]]:
    """Return all coding_gym containers with their owners."""
    found = []
    for container in client.containers.list(all=True, filters={"label": LABEL_OWNER}, ignore_removed=True):
        with contextlib.suppress(ValueError):
            found.append((container, OwnerProcess.parse(container.labels[LABEL_OWNER])))
    return found


def remove_orphans(client: docker.DockerClient) -> list[str]:
    """Remove the containers and directories of dead processes; return the names of the containers."""
    orphans = [container for container, owner in our_containers(client) if owner.is_known_dead()]
    for container in orphans:
        try_to_remove(container)
    remove_orphaned_directories()
    return [str(container.name) for container in orphans]


def remove_container(container: Container) -> bool:
    """Remove a container; return whether it existed.

    Raises:
        DockerException: If the engine refuses.
        OSError: If the engine does not answer.
    """
    try:
        container.remove(force=True, v=True)
    except NotFound:
        return False
    except APIError as error:
        if error.status_code != _CONFLICT:
            raise
        # Its removal is already in progress, by itself or by another process.
        return False
    return True


def try_to_remove(container: Container) -> None:
    """Remove a container; log a warning if that fails."""
    try:
        remove_container(container)
    except (DockerException, OSError) as error:
        # Only the error's text: a reference to the error would keep the SDK's socket open.
        reason = root_cause(error)
        _log.warning("the container %s could not be removed: %s; it will end by itself", container.short_id, reason)


def remove_orphans_once(client: docker.DockerClient) -> None:
    """Remove orphaned containers, once per process."""
    global _orphans_removed
    with _cleanup_lock:
        if _orphans_removed:
            return
        _orphans_removed = True
    with contextlib.suppress(DockerException):
        for name in remove_orphans(client):
            _log.warning("removed the container %s, whose owner is gone", name)
