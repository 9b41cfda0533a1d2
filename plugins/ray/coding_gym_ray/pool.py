"""``RayPool``: the sandboxes of a Ray cluster."""

from __future__ import annotations

import os
import secrets
import time
import weakref
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Unpack

from coding_gym.client.session import Session
from coding_gym.errors import ConfigurationError, PoolClosedError, PoolTimeoutError
from coding_gym.plugins import check_count, parameter_names
from coding_gym.sandbox.config import SandboxConfig, SandboxKwargs, sandbox_config
from coding_gym.sandbox.pool import PooledMember, SandboxPool
from coding_gym.sandbox.remote import RemoteSandbox
from coding_gym_ray.cluster import RESOURCE, connect, disconnect, request_places
from coding_gym_ray.hosts import HostManager

__all__ = ["RayPool", "own_pool"]

_SESSIONS = 8
_START_SECONDS = 600.0
"""Default time limit of ``start``: a host may have to build an image."""

_NODE_SECONDS = 10.0
"""Seconds within which ``start`` must find a node with sandboxes."""

_CHECKED_AT_ONCE = 64
_DEMAND_SECONDS = 2.0


class RayPool(SandboxPool):
    """``SandboxPool`` over the nodes of a Ray cluster, accepted as ``pool=`` wherever a ``SandboxPool`` is.

    Each node with the resource ``sandbox``, as of ``ray start --resources '{"sandbox": 64}'``, gets a ``SandboxHost`` that
    serves as many concurrent sessions; nodes that join later get one, too. Steps are not Ray calls: clients connect to the
    sandboxes over TCP, with a secret token.

    When a node or its host is lost, the episodes there end with ``truncated=True``, the outcome ``infrastructure`` and
    ``info["lost"]``, and the next ones begin elsewhere. While callers wait for a slot, an environment gives its own up at the
    next reset, and queues again.

    A copy that is sent to a task or actor of the cluster uses the same hosts, which end with the original. Copies share the
    places of the hosts, but not the order of the queue.

    Args:
        address: Address of the cluster, as of ``ray.init``. If None, that of this process or machine; if there is none, a
            cluster of one node is started.
        places: Maximum number of concurrent sessions of a node; its quantity of ``sandbox`` if None.
        acquire_timeout: Default number of seconds that ``acquire`` waits for a slot; None for no limit.
        config: The sandboxes, as a ``SandboxConfig`` or a mapping of its fields; ``sessions`` is the number of places of each,
            8 by default.
        sandbox_options: Fields of ``SandboxConfig``, instead of ``config``.

    Raises:
        ConfigurationError: If an option is invalid, Ray is not installed, or no cluster answers at the address.
    """

    def __init__(
        self,
        *,
        address: str | None = None,
        places: int | None = None,
        acquire_timeout: float | None = 120.0,
        config: SandboxConfig | Mapping[str, Any] | None = None,
        **sandbox_options: Unpack[SandboxKwargs],
    ) -> None:
        if places is not None:
            check_count("places", places, 1)
        if config is None:
            sandbox_options = {"sessions": _SESSIONS, **sandbox_options}
        own = sandbox_config(config, sandbox_options, parameter_names(RayPool))
        if own.base_url is not None or own.base_urls:
            message = "base_url= and base_urls= are servers that run already: pass them to SandboxPool, or omit them here"
            raise ConfigurationError(message)
        # Everyone who reaches a node could use its sandboxes otherwise.
        own = replace(own, token=own.token or secrets.token_urlsafe(32))
        self._attach(own, address=address, places=places, acquire_timeout=acquire_timeout, name=secrets.token_hex(8))
        self._is_owner = True

    def _attach(
        self, config: SandboxConfig, *, address: str | None, places: int | None, acquire_timeout: float | None, name: str
    ) -> None:
        self._address, self._places, self._name = address, places, name
        self._is_owner = False
        self._has_started_ray = False
        self._manager: HostManager | None = None
        self._nodes: dict[str, str] = {}
        self._demand = (0, -_DEMAND_SECONDS)
        self._next_check = 0
        self._set_up(config, size=0, max_episodes=None, acquire_timeout=acquire_timeout, servers=())

    @property
    def hosts(self) -> dict[str, int]:
        """Number of slots of each node whose host is ready, by the id of the node."""
        with self._lock:
            slots = dict.fromkeys(self._nodes.values(), 0)
            for member in self._usable():
                node_id = self._nodes.get(member.base_url or "")
                if node_id is not None:
                    slots[node_id] += max(member.slots, 0)
            return slots

    @property
    def capacity_source(self) -> str:
        return f"places that {len(self.hosts)} nodes of the Ray cluster have for this pool"

    def start(self, *, timeout: float | None = None) -> None:
        """Connect to the cluster, start its hosts, and wait until those of the present nodes are ready. Idempotent.

        Args:
            timeout: Timeout in seconds; 10 minutes if None.

        Raises:
            ConfigurationError: If the hosts cannot fulfill the configuration, or no cluster answers.
            ProviderError: If no host can be started.
            PoolTimeoutError: If no node with the resource ``sandbox`` joins within 10 s, or no host is ready in time.
            PoolClosedError: If the pool is closed.
        """
        self._check_owner()
        manager = self._begin()
        limit = _START_SECONDS if timeout is None else timeout
        started_at = time.monotonic()
        with self._lock:
            self._error = None
            while not self._closing.is_set() and not self._is_settled(manager):
                waited = time.monotonic() - started_at
                if self._error is not None and not self._members:
                    raise self._error
                if not self._members and not manager.starting and not self._starts and waited > min(limit, _NODE_SECONDS):
                    raise PoolTimeoutError(self._no_nodes(waited))
                if waited > limit:
                    message = f"No host was ready within {limit:g} s: {self._describe()}"
                    raise PoolTimeoutError(message)
                self._changed.wait(0.05)
            if self._closing.is_set():
                raise PoolClosedError

    def host_actor(self, node_id: str) -> Any:
        """Return the handle of the ``SandboxHost`` of a node, one of ``hosts``.

        Raises:
            ConfigurationError: If it has none.
        """
        manager = self._begin()
        try:
            return manager.actor(node_id)
        except KeyError:
            raise self._unknown_node(node_id) from None

    def drain(self, node_id: str) -> None:
        """Begin no more episodes on a node, and end its host after those in progress; for scaling down.

        Args:
            node_id: Id of the node, one of ``hosts``.

        Raises:
            ConfigurationError: If it has no host.
        """
        with self._lock:
            members = [member for member in self._members if self._nodes.get(member.base_url or "") == node_id]
            if not members or self._manager is None:
                raise self._unknown_node(node_id)
            self._manager.drain(node_id)
            self._servers = self._leasable()
            for member in members:
                member.is_leaving = True
            self._assign()

    # The interface of the manager of hosts, called without the lock.

    def on_hosts(self, servers: dict[str, str]) -> None:
        """Use these servers and no others; sessions on others end at once."""
        with self._lock:
            self._nodes = servers
            self._unreachable = {url: error for url, error in self._unreachable.items() if url in servers}
            self._servers = self._leasable()
            self.size = len(servers)
            lost = [member for member in self._members if member.base_url not in servers]
            self._members = [member for member in self._members if member.base_url in servers]
            self._not_retried.intersection_update(servers)
            self._counts["lost"] += sum(not member.is_leaving for member in lost)
            for member in lost:
                member.is_leaving = True
            self._assign()
        for member in lost:
            member.sandbox.close()

    def on_host_failure(self, node_id: str, error: Exception) -> None:
        """Record the error, and raise it in waiting callers unless another host is available."""
        with self._lock:
            self._counts["failed"] += 1
            self._on_unreachable(f"node {node_id[:8]}", error)
            self._error = error
            self._changed.notify_all()

    def close(self) -> None:
        """End all hosts and their sandboxes, including those in use; waiting callers get a ``PoolClosedError``."""
        super().close()
        if self._has_started_ray:
            self._has_started_ray = False
            disconnect()

    # The rest is called with the lock held, unless stated otherwise.

    def _begin(self) -> HostManager:
        """Connect to the cluster, and start to look for nodes. Called without the lock."""
        with self._lock:
            if self._closing.is_set():
                raise PoolClosedError
            if self._manager is None:
                self._has_started_ray = connect(self._address)
                self._manager = HostManager(
                    self.config, name=self._name, places=self._places, listener=_Listener(self), is_owner=self._is_owner
                )
                self._manager.start()
            return self._manager

    def _is_settled(self, manager: HostManager) -> bool:
        return bool(self._members) and not self._starts and not manager.starting

    def _request(self, future: Any) -> None:
        self._begin()
        super()._request(future)

    def _assign(self) -> None:
        super()._assign()
        self._drop_drained()
        self._request_nodes()

    def _unknown_node(self, node_id: str) -> ConfigurationError:
        known = ", ".join(self.hosts) or "none, as no host is ready"
        return ConfigurationError(f"Expected node_id= to be one of {known}, got {node_id!r}")

    @property
    def _draining(self) -> set[str]:
        return set() if self._manager is None else self._manager.draining

    @property
    def _may_retire(self) -> bool:
        return bool(self._draining)

    def _leasable(self) -> tuple[str, ...]:
        return tuple(url for url, node_id in self._nodes.items() if node_id not in self._draining)

    def _drop_drained(self) -> None:
        """End the hosts of draining nodes that have no more episodes."""
        used = {self._nodes.get(member.base_url or "") for member in self._members} if self._draining else set()
        for node_id in self._draining.intersection(self._nodes.values()) - used:
            if self._manager is not None:
                self._in_background(partial(self._manager.remove, node_id))

    def _request_nodes(self) -> None:
        """Tell the autoscaler how many places are needed, when callers wait or have stopped to do so."""
        count, since = self._demand
        is_waiting = self._next_waiting() is not None
        if is_waiting and time.monotonic() - since > _DEMAND_SECONDS:
            needed = sum(member.busy for member in self._members) + sum(not future.done() for future in self._waiting)
        elif not is_waiting and count:
            needed = 0
        else:
            return
        self._demand = (needed, time.monotonic())
        if needed != count:
            self._in_background(partial(request_places, needed))

    def _open_server(self, base_url: str) -> PooledMember:
        member = super()._open_server(base_url)
        return PooledMember(HostedSandbox(member.sandbox.address, member.sandbox.description), member.slots, base_url=base_url)

    def _to_check(self) -> list[PooledMember]:
        # Ray reports lost hosts; checks of thousands of servers would keep the driver busy.
        members = self._members
        begin = self._next_check % len(members) if members else 0
        self._next_check = begin + _CHECKED_AT_ONCE
        return members[begin : begin + _CHECKED_AT_ONCE]

    def _no_nodes(self, waited: float) -> str:
        return (
            f"No node of the Ray cluster has offered the resource {RESOURCE!r} for {waited:.0f} s: start nodes with "
            f"ray start --address=... --resources='{{\"{RESOURCE}\": 64}}', 64 being the number of concurrent sessions there"
        )

    def _close(self, *, wait: bool) -> None:
        super()._close(wait=wait)
        if self._manager is not None and os.getpid() == self._owner:
            self._manager.close()

    def __reduce__(self) -> Any:
        return _attached, (self.config, self._name, self.acquire_timeout)


class HostedSandbox(RemoteSandbox):
    """Sandbox of a host. ``close`` aborts the sessions of this process, which would otherwise wait for a lost node."""

    def _add(self, session: Session) -> None:
        super()._add(session)
        if self.is_closed:
            session.abort()

    def _remove(self) -> None:
        for session in self.open_sessions:
            # Closing it would not wake up a thread that waits for a response.
            session.abort()


class _Listener:
    """Weak reference to a pool, for the thread of its manager.

    Args:
        pool: The pool.
    """

    def __init__(self, pool: RayPool) -> None:
        self._pool = weakref.ref(pool)

    def on_hosts(self, servers: dict[str, str]) -> None:
        if (pool := self._pool()) is not None:
            pool.on_hosts(servers)

    def on_host_failure(self, node_id: str, error: Exception) -> None:
        if (pool := self._pool()) is not None:
            pool.on_host_failure(node_id, error)


def own_pool(
    pool: RayPool | None,
    *,
    address: str | None,
    places: int | None,
    config: SandboxConfig | Mapping[str, Any] | None,
    sandbox_options: Mapping[str, Any],
) -> RayPool | None:
    """Return a pool of the caller's own; None if a pool was passed.

    Raises:
        ConfigurationError: If options of a pool are passed beside one, or an option is invalid.
    """
    if pool is None:
        return RayPool(address=address, places=places, config=config, **sandbox_options)
    if address is not None or places is not None:
        message = "address= and places= are options of the pool: pass them to RayPool instead"
        raise ConfigurationError(message)
    return None


def _attached(config: SandboxConfig, name: str, acquire_timeout: float | None) -> RayPool:
    """Return a copy of a pool in another process: it uses the hosts of the original."""
    pool = RayPool.__new__(RayPool)
    pool._attach(config, address=None, places=None, acquire_timeout=acquire_timeout, name=name)
    return pool
