"""The Ray cluster: connection, nodes with sandboxes, and demand."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

from coding_gym.errors import ConfigurationError
from coding_gym.plugins import import_extra

__all__ = ["RESOURCE", "Node", "connect", "disconnect", "request_places", "sandbox_nodes"]

RESOURCE = "sandbox"
"""Custom resource of the nodes that have sandboxes; its quantity is the number of concurrent sessions there."""

_LOCAL_PLACES = 16
"""Places of a cluster that is started on this machine."""


@dataclass(frozen=True)
class Node:
    """A node that has sandboxes.

    Attributes:
        id: Ray's id of the node, in hexadecimal.
        ip: Its address.
        places: Number of concurrent sessions.
    """

    id: str
    ip: str
    places: int


def connect(address: str | None) -> bool:
    """Connect to a cluster, unless this process is connected; return whether a local cluster was started.

    Args:
        address: Address of the cluster; ``auto`` or None for the one of this machine. With None, one is started here if
            none runs.

    Raises:
        ConfigurationError: If Ray is not installed, or no cluster answers at the address.
    """
    ray = import_extra("ray", extra="ray")
    if ray.is_initialized():
        return False
    options: dict[str, Any] = {"log_to_driver": False, "configure_logging": False}
    try:
        ray.init(address=address or "auto", **options)
    except (ConnectionError, ValueError, RuntimeError) as error:
        if address is not None:
            message = f"There is no Ray cluster at address={address!r}: {error}. Start one with: ray start --head"
            raise ConfigurationError(message) from error
        ray.init(address="local", include_dashboard=False, resources={RESOURCE: _LOCAL_PLACES}, **options)
        return True
    return False


def disconnect() -> None:
    """End the cluster that ``connect`` has started."""
    ray = import_extra("ray", extra="ray")
    ray.shutdown()


def sandbox_nodes() -> list[Node]:
    """Return the nodes that are alive and have sandboxes."""
    ray = import_extra("ray", extra="ray")
    found = []
    for node in ray.nodes():
        places = int(node["Resources"].get(RESOURCE, 0))
        if node["Alive"] and places > 0:
            found.append(Node(node["NodeID"], node["NodeManagerAddress"], places))
    return found


def request_places(count: int) -> None:
    """Ask the cluster's autoscaler, if there is one, for enough nodes to have a number of places in total."""
    sdk = import_extra("ray.autoscaler.sdk", extra="ray")
    # It fails while the connection is lost, and is repeated with the next change.
    with contextlib.suppress(RuntimeError, ConnectionError):
        sdk.request_resources(bundles=[{RESOURCE: 1}] * count)
