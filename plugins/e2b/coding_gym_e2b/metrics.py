"""Route ``/metrics`` of the gateway, in the formats of Prometheus."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from coding_gym import __version__
from coding_gym_e2b.hosts import Hosts
from coding_gym_e2b.registry import SandboxRegistry
from coding_gym_server.exposition import counter, encode, gauge, histogram

if TYPE_CHECKING:
    from prometheus_client import Metric

__all__ = ["metrics_route"]


def metrics_route(hosts: Hosts, registry: SandboxRegistry) -> Route:
    """Return the route of the metrics.

    Args:
        hosts: The containers, or local sandboxes.
        registry: The E2B sandboxes.
    """

    async def metrics(request: Request) -> Response:
        accepted = request.headers.get("accept", "")
        # The first import takes long.
        await asyncio.to_thread(importlib.import_module, "prometheus_client")
        content, content_type = await asyncio.to_thread(encode, [*_families(hosts, registry)], accepted)
        return Response(content, headers={"content-type": content_type})

    return Route("/metrics", metrics, methods=["GET"])


def _families(hosts: Hosts, registry: SandboxRegistry) -> Iterator[Metric]:
    counts = registry.counts
    paused = sum(sandbox.is_paused for sandbox in registry.sandboxes)
    states = {"running": len(registry.sandboxes) - paused, "paused": paused}
    kinds = {"shared": 0, "own": 0}
    for host in hosts.all:
        kinds["own" if host.is_own else "shared"] += 1
    places = {"used": sum(host.used for host in hosts.all), "free": hosts.free_places}
    yield gauge("e2b_gateway_info", "Version of the gateway; always 1.", {__version__: 1}, ("version",))
    yield gauge("e2b_sandboxes", "E2B sandboxes by state.", states, ("state",))
    yield gauge("e2b_snapshots", "Snapshots that sandboxes can be made from.", {(): len(registry.snapshots)})
    yield gauge(
        "e2b_hosts", "Containers, or local sandboxes, by kind: for several E2B sandboxes, or for one.", kinds, ("kind",)
    )
    yield gauge("e2b_hosts_limit", "Maximum number of containers, or local sandboxes.", {(): hosts.limit})
    yield gauge(
        "e2b_places", "Places of E2B sandboxes, without forks, by state; those of future hosts are free.", places, ("state",)
    )
    yield gauge("e2b_forks", "Forks and snapshots, which occupy no places.", {(): sum(host.forks for host in hosts.all)})
    yield counter("e2b_created", "E2B sandboxes made, by what they were made of.", counts.created, ("origin",))
    yield counter("e2b_ended", "E2B sandboxes that have ended, by reason.", counts.ended, ("reason",))
    yield counter(
        "e2b_refused", "E2B sandboxes that were not made, by the status of the response.", counts.refused, ("status",)
    )
    yield histogram(
        "e2b_create_duration", "How long it took to make an E2B sandbox, other than by a fork.", {(): counts.create_times}
    )
