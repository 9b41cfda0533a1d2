"""Metrics of pools in Prometheus' format. Servers have a route ``/metrics`` for theirs.

Example:
    >>> from coding_gym import SandboxPool
    >>> from coding_gym.metrics import serve_metrics
    >>> pool = SandboxPool(size=8)
    >>> server = serve_metrics({"train": pool}, port=9464)  # doctest: +SKIP
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, Metric, ProcessCollector, start_http_server
from prometheus_client.registry import Collector

from coding_gym.errors import ConfigurationError
from coding_gym.sandbox.pool import PoolStats, SandboxPool
from coding_gym_server.exposition import counter, gauge, histogram

__all__ = ["MetricsServer", "PoolCollector", "serve_metrics"]

_DEFAULT_NAME = "default"
_LABEL = ("pool",)


class PoolCollector(Collector):
    """Collector of the metrics of pools, for a registry of ``prometheus_client``; they are read at each scrape.

    It does not keep the pools alive. A registry can have one such collector: pass it all pools.

    Args:
        pools: A pool, or pools by name, the value of the label ``pool``; a single pool is named ``default``. Pools over a Ray
            cluster are pools, too.

    Raises:
        ConfigurationError: If it is something else.

    Example:
        >>> from coding_gym import SandboxPool
        >>> from prometheus_client import CollectorRegistry, generate_latest
        >>> registry = CollectorRegistry()
        >>> pool = SandboxPool(size=2, provider="local")
        >>> registry.register(PoolCollector(pool))
        >>> registry.get_sample_value("coding_gym_pool_sandboxes_wanted", {"pool": "default"})
        2.0
    """

    def __init__(self, pools: SandboxPool | Mapping[str, SandboxPool]) -> None:
        named: Any = {_DEFAULT_NAME: pools} if isinstance(pools, SandboxPool) else pools
        if not isinstance(named, Mapping) or not all(isinstance(pool, SandboxPool) for pool in named.values()):
            message = f"Expected a SandboxPool, or a mapping of names to pools, got {pools!r:.200}"
            raise ConfigurationError(message)
        self._pools = {str(name): weakref.ref(pool) for name, pool in named.items()}

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        pools = {name: pool for name, reference in self._pools.items() if (pool := reference()) is not None}
        wanted = {name: pool.size for name, pool in pools.items()}
        yield gauge("pool_sandboxes_wanted", "Number of sandboxes, or of servers, that the pool is to have.", wanted, _LABEL)
        yield from _families({name: pool.stats for name, pool in pools.items()})


def _families(stats: Mapping[str, PoolStats]) -> Iterator[Metric]:
    places = {
        (name, state): number
        for name, pool in stats.items()
        for state, number in (("idle", pool.idle), ("busy", pool.busy), ("starting", pool.starting))
    }
    yield gauge("pool_places", "Slots by state.", places, ("pool", "state"))
    for kind, attribute, help_text in (
        (gauge, "sandboxes", "Sandboxes that are ready, or servers that answer."),
        (gauge, "waiting", "Callers that wait for a slot."),
        (counter, "waits", "Callers that had to wait for a slot."),
        (counter, "timeouts", "Callers that got no slot in time."),
        (counter, "episodes", "Episodes that have begun."),
        (counter, "started", "Sandboxes that have started."),
        (counter, "recycled", "Sandboxes that were replaced after their last episode."),
        (counter, "lost", "Sandboxes that were replaced because they died."),
        (counter, "failed", "Sandboxes that failed to start."),
    ):
        yield kind(f"pool_{attribute}", help_text, {name: getattr(pool, attribute) for name, pool in stats.items()}, _LABEL)
    waits = {name: pool.wait_times for name, pool in stats.items()}
    yield histogram("pool_wait", "How long callers have waited that had to.", waits, _LABEL)
    starts = {name: pool.start_times for name, pool in stats.items()}
    yield histogram("pool_start_duration", "How long sandboxes took to start.", starts, _LABEL)


class MetricsServer:
    """HTTP server of metrics in a thread, until ``close``. Use it as a context manager, or leave it to the end of the process.

    Args:
        server: The server.
        thread: Its thread.
    """

    def __init__(self, server: WSGIServer, thread: threading.Thread) -> None:
        self._server = server
        self._thread = thread

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._server.server_port)

    def close(self) -> None:
        """Stop the server. Idempotent."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> MetricsServer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def serve_metrics(
    pools: SandboxPool | Mapping[str, SandboxPool], *, port: int = 9464, host: str = "127.0.0.1"
) -> MetricsServer:
    """Serve the metrics of pools, and those of this process, at ``http://HOST:PORT/metrics``, without authentication.

    A program that serves metrics already registers a ``PoolCollector`` instead.

    Args:
        pools: See ``PoolCollector``.
        port: Port to listen on, 0 for a free one.
        host: Address to listen on; ``0.0.0.0`` for all interfaces.

    Raises:
        ConfigurationError: If the address cannot be used, or the pools are none.
    """
    registry = CollectorRegistry()
    registry.register(PoolCollector(pools))
    ProcessCollector(registry=registry)
    try:
        return MetricsServer(*start_http_server(port, host, registry))
    except OSError as error:
        message = f"Metrics cannot be served at {host}:{port}: {error}. Pass another port=, or 0 for a free one"
        raise ConfigurationError(message) from error
