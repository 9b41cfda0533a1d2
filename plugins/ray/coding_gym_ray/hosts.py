"""``HostManager``: keeps a ``SandboxHost`` on each node that has sandboxes."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from dataclasses import dataclass, replace
from typing import Any, Protocol

from coding_gym.errors import CodingGymError
from coding_gym.plugins import import_extra
from coding_gym.sandbox.config import SandboxConfig
from coding_gym_ray.cluster import RESOURCE, Node, sandbox_nodes
from coding_gym_ray.host import HostReport, SandboxHost

__all__ = ["HostListener", "HostManager"]

_log = logging.getLogger("coding_gym")

_NAMESPACE = "coding_gym"
_POLL_SECONDS = 1.0
"""Interval at which nodes that join are looked for. Lost hosts are reported by Ray."""

_RETRY_SECONDS = 5.0
"""Pause after a host that failed to start, or was lost: its node may be dead, too, which Ray notices later."""

_CLOSE_SECONDS = 10.0
"""Seconds within which the hosts must have removed their sandboxes, before they are killed."""


class HostListener(Protocol):
    """A pool, as it learns of hosts."""

    def on_hosts(self, servers: dict[str, str]) -> None:
        """Use these servers, whose keys are addresses and whose values are the ids of their nodes, and no others."""

    def on_host_failure(self, node_id: str, error: Exception) -> None:
        """Note that the host of a node did not start."""


@dataclass
class _Host:
    """A host.

    Attributes:
        actor: Handle of the actor.
        call: Reference to its call in progress: ``start`` or ``until_lost``.
        report: Its servers, None while it starts.
        is_known: Whether the listener has learned of its servers.
    """

    actor: Any
    call: Any
    report: HostReport | None = None
    is_known: bool = False


class HostManager:
    """Starts a host on each node that has sandboxes, also on nodes that join later, and notices when one is lost.

    Hosts are never restarted by Ray: a restarted one would have lost the sessions of its predecessor without anyone noticing.

    Args:
        config: The sandboxes; with a token, and ``sessions`` places each.
        name: Name of the pool, which prefixes those of its hosts.
        places: Maximum number of places of a node; None for all that it has.
        listener: Learns of hosts, in the manager's thread.
        is_owner: Whether to start hosts; if not, those that the owner of the pool has started are used.

    Attributes:
        draining: Ids of the nodes that get no host any more.
    """

    def __init__(self, config: SandboxConfig, *, name: str, places: int | None, listener: HostListener, is_owner: bool) -> None:
        self._config = config
        self._name = name
        self._places = places
        self._listener = listener
        self._is_owner = is_owner
        self._hosts: dict[str, _Host] = {}
        self._retry_at: dict[str, float] = {}
        self.draining: set[str] = set()
        self._ray = import_extra("ray", extra="ray")
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="coding_gym_ray_hosts", daemon=True)

    def start(self) -> None:
        """Start to look for nodes, in a thread."""
        self._thread.start()

    @property
    def starting(self) -> int:
        """Number of hosts that are starting, up to when the listener has learned of their servers."""
        with self._lock:
            return sum(not host.is_known for host in self._hosts.values())

    def actor(self, node_id: str) -> Any:
        """Return the handle of a node's host.

        Raises:
            KeyError: If it has none.
        """
        with self._lock:
            return self._hosts[node_id].actor

    def drain(self, node_id: str) -> None:
        """Start no host on a node any more; ``remove`` ends the present one."""
        self.draining.add(node_id)

    def remove(self, node_id: str) -> None:
        """End the host of a node."""
        with self._lock:
            host = self._hosts.pop(node_id, None)
        if host is not None:
            self._publish()
            if self._is_owner:
                self._close([host])

    def close(self) -> None:
        """End all hosts. Idempotent."""
        self._closing.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(_CLOSE_SECONDS)
        with self._lock:
            hosts, self._hosts = list(self._hosts.values()), {}
        if self._is_owner:
            self._close(hosts)

    def _run(self) -> None:
        polled_at = -_POLL_SECONDS
        while not self._closing.is_set():
            try:
                if time.monotonic() - polled_at >= _POLL_SECONDS:
                    polled_at = time.monotonic()
                    self._look_for_nodes()
                with self._lock:
                    calls = {host.call: node_id for node_id, host in self._hosts.items()}
                if calls:
                    done, _ = self._ray.wait(list(calls), timeout=_POLL_SECONDS)
                    for call in done:
                        self._on_return(calls[call], call)
                else:
                    self._closing.wait(_POLL_SECONDS)
            except Exception as error:  # noqa: BLE001 - the connection to the cluster may come back
                if not self._ray.is_initialized():
                    return
                _log.warning("the Ray cluster does not answer: %s", error)
                self._closing.wait(_POLL_SECONDS)

    def _look_for_nodes(self) -> None:
        """Start hosts on new nodes, and give up those of nodes that have left."""
        nodes = {node.id: node for node in sandbox_nodes()}
        with self._lock:
            gone = [node_id for node_id in self._hosts if node_id not in nodes]
        for node_id in gone:
            self._lose(node_id, "its node has left the cluster")
        for node in nodes.values():
            if node.id not in self._hosts and node.id not in self.draining:
                self._add(node)

    def _add(self, node: Node) -> None:
        if time.monotonic() < self._retry_at.get(node.id, 0.0):
            return
        actor = self._new_actor(node) if self._is_owner else self._find_actor(node)
        if actor is not None:
            with self._lock:
                self._hosts[node.id] = _Host(actor, actor.start.remote())

    def _new_actor(self, node: Node) -> Any:
        strategies = import_extra("ray.util.scheduling_strategies", extra="ray")
        places = min(node.places, self._places or node.places)
        sandboxes = -(-places // self._config.sessions)
        config = replace(self._config, sessions=-(-places // sandboxes))
        kind = self._ray.remote(num_cpus=0, max_restarts=0, max_task_retries=0, max_concurrency=1000)(SandboxHost)
        return kind.options(
            name=self._actor_name(node),
            namespace=_NAMESPACE,
            resources={RESOURCE: places},
            scheduling_strategy=strategies.NodeAffinitySchedulingStrategy(node.id, soft=False),
        ).remote(config, sandboxes=sandboxes, ip=node.ip)

    def _find_actor(self, node: Node) -> Any:
        try:
            return self._ray.get_actor(self._actor_name(node), namespace=_NAMESPACE)
        except ValueError:
            return None

    def _actor_name(self, node: Node) -> str:
        return f"sandbox_host_{self._name}_{node.id}"

    def _on_return(self, node_id: str, call: Any) -> None:
        """Handle the end of a host's call: it has started, or failed to, or is lost."""
        host = self._hosts.get(node_id)
        if host is None or host.call != call:
            return
        try:
            report: HostReport = self._ray.get(call, timeout=_POLL_SECONDS)
        except self._ray.exceptions.RayTaskError as error:
            cause = error.as_instanceof_cause()
            self._lose(node_id, str(cause))
            self._listener.on_host_failure(node_id, _original(cause))
        except self._ray.exceptions.RayError as error:
            # Also "unavailable", which Ray means as temporary: what is in progress there cannot be waited for.
            self._lose(node_id, str(error).strip().splitlines()[0])
        else:
            _log.info("the host of node %s serves %s", node_id[:8], report.description)
            with self._lock:
                host.report, host.call = report, host.actor.until_lost.remote()
            self._publish()
            with self._lock:
                host.is_known = True

    def _lose(self, node_id: str, reason: str) -> None:
        with self._lock:
            host = self._hosts.pop(node_id, None)
        if host is None:
            # Another thread has removed it.
            return
        self._retry_at[node_id] = time.monotonic() + _RETRY_SECONDS
        if self._is_owner:
            with contextlib.suppress(self._ray.exceptions.RayError, ValueError):
                self._ray.kill(host.actor)
        _log.warning("the host of node %s is lost: %s", node_id[:8], reason)
        self._publish()

    def _close(self, hosts: list[_Host]) -> None:
        """Let hosts remove their sandboxes, and end them."""
        if not self._ray.is_initialized():
            return
        with contextlib.suppress(self._ray.exceptions.RayError, ConnectionError):
            # A host that is starting may wait for places of its node; what it has started ends with it.
            calls = [host.actor.close.remote() for host in hosts if host.report is not None]
            self._ray.wait(calls, num_returns=len(calls), timeout=_CLOSE_SECONDS)
        for host in hosts:
            with contextlib.suppress(self._ray.exceptions.RayError, ValueError, ConnectionError):
                self._ray.kill(host.actor)

    def _publish(self) -> None:
        with self._lock:
            servers = {
                url: node_id for node_id, host in self._hosts.items() if host.report is not None for url in host.report.servers
            }
        self._listener.on_hosts(servers)


def _original(cause: Exception) -> Exception:
    """Return the error of a host as it was raised there, without the traceback that Ray has put into its message."""
    error = getattr(cause, "cause", cause)
    return error if isinstance(error, CodingGymError) else cause
