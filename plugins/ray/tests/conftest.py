"""A Ray cluster of several nodes on this machine."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest

from tests.support.requirements import import_extra
from tests.support.timing import eventually

PLACES = 2
"""Places of a node."""

HOST = {"provider": "local", "preload": (), "idle_timeout": 3.0}
"""Options of the sandboxes in these tests."""

_NODE = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}

_QUICK_CHECKS = {"health_check_period_ms": 300, "health_check_failure_threshold": 5}
"""Ray's settings, so that tests need not wait until it knows that a node is dead."""


class Cluster:
    """A cluster whose head has no sandboxes."""

    def __init__(self) -> None:
        self._ray = import_extra("ray")
        head = {**_NODE, "_system_config": _QUICK_CHECKS}
        self._cluster = import_extra("ray.cluster_utils").Cluster(initialize_head=True, head_node_args=head)
        self._nodes: dict[str, Any] = {}
        self._ray.init(address=self._cluster.address, log_to_driver=False, configure_logging=False)

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    def set_nodes(self, count: int) -> list[str]:
        """Add or remove nodes with sandboxes, and return the ids of all."""
        while len(self._nodes) > count:
            self._cluster.remove_node(self._nodes.popitem()[1])
        while len(self._nodes) < count:
            node = self._cluster.add_node(resources={"sandbox": PLACES}, **_NODE)
            self._nodes[node.node_id] = node
        assert eventually(lambda: set(self._nodes) == self._alive() - {self._head()})
        return list(self._nodes)

    def kill(self, node_id: str) -> None:
        """Kill a node, as a power cut does."""
        self._cluster.remove_node(self._nodes.pop(node_id), allow_graceful=False)

    def close(self) -> None:
        self._ray.shutdown()
        self._cluster.shutdown()

    def _alive(self) -> set[str]:
        return {node["NodeID"] for node in self._ray.nodes() if node["Alive"]}

    def _head(self) -> str:
        return str(self._cluster.head_node.node_id)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    import_extra("ray")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    with warnings.catch_warnings():
        # Ray leaves file objects to the garbage collector.
        warnings.simplefilter("ignore")
        with contextlib.closing(Cluster()) as cluster:
            yield cluster


@pytest.fixture
def two_nodes(cluster: Cluster) -> list[str]:
    return cluster.set_nodes(2)


@pytest.fixture
def kill(cluster: Cluster) -> Callable[..., None]:
    """Kill the sandboxes, the host or the node with an id, which a pool uses."""

    def kill(what: str, pool: Any, node_id: str) -> None:
        worker = psutil.Process(pid_of_host(pool, node_id))
        if what == "node":
            cluster.kill(node_id)
        elif what == "host":
            worker.kill()
        else:
            for server in servers_of(worker):
                server.kill()

    return kill


def pid_of_host(pool: Any, node_id: str) -> int:
    ray = import_extra("ray")
    pid: int = ray.get(pool.host_actor(node_id).__ray_call__.remote(lambda _: os.getpid()), timeout=10)
    return pid


def servers_of(worker: psutil.Process) -> list[psutil.Process]:
    """Return the servers of local sandboxes of a host."""
    return [child for child in worker.children() if "coding_gym_server" in child.cmdline()]


@pytest.fixture
def descendants() -> Callable[[Any, str], set[psutil.Process]]:
    """Function that returns all processes of the host of a node."""

    def descendants(pool: Any, node_id: str) -> set[psutil.Process]:
        worker = psutil.Process(pid_of_host(pool, node_id))
        return {worker, *worker.children(recursive=True)}

    return descendants
