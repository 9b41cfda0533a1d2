"""Route ``/metrics``: the state and the counts of the server, in the format of Prometheus."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from coding_gym_server import __version__
from coding_gym_server.durations import DurationHistogram
from coding_gym_server.protocol import PROTOCOL_VERSION
from coding_gym_server.server.grading.service import GradingService
from coding_gym_server.server.measurements import Measurements
from coding_gym_server.server.memory_usage import MemoryUsage
from coding_gym_server.server.sessions.registry import SessionRegistry
from coding_gym_server.server.supervisor.executor_pool import ExecutorPool

if TYPE_CHECKING:
    from prometheus_client import Metric

__all__ = ["MetricSources", "metrics_route"]


@dataclass(frozen=True)
class MetricSources:
    """What the metrics are read from.

    Attributes:
        measurements: The counts.
        sessions: The open sessions.
        executors: The workers of sessions.
        grading: The workers of submissions and programs.
        memory: The memory of the sandbox.
    """

    measurements: Measurements
    sessions: SessionRegistry
    executors: ExecutorPool
    grading: GradingService
    memory: MemoryUsage


def metrics_route(sources: MetricSources) -> Route:
    """Return the route of the metrics.

    Args:
        sources: What they are read from.
    """

    async def metrics(request: Request) -> Response:
        accepted = request.headers.get("accept", "")
        memory = await asyncio.to_thread(_prepare, sources.memory)
        content, content_type = await asyncio.to_thread(_encode, [*_families(sources, memory)], accepted)
        return Response(content, headers={"content-type": content_type})

    return Route("/metrics", metrics)


def _prepare(memory: MemoryUsage) -> int:
    """Read the memory, in a thread, where the first call also imports the library: the import takes long."""
    importlib.import_module("prometheus_client")
    return memory.read()


def _encode(families: list[Metric], accepted: str) -> tuple[bytes, str]:
    """Return metrics, and those of the process, in a format that the client accepts, and the name of the format."""
    from prometheus_client import CollectorRegistry, ProcessCollector
    from prometheus_client.exposition import choose_encoder

    registry = CollectorRegistry()
    registry.register(_Families(families))
    ProcessCollector(registry=registry)
    encode, content_type = choose_encoder(accepted)
    return encode(registry), content_type


class _Families:
    """Collector of metrics that have been read already, in the event loop.

    Args:
        families: The metrics.
    """

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        """Return the metrics."""
        return self._families


def _families(sources: MetricSources, memory: int) -> Iterator[Metric]:
    yield from _state(sources)
    yield from _memory(sources, memory)
    counted = sources.measurements
    yield _counts("resets", "Resets by backend and outcome.", ("backend", "outcome"), counted.resets)
    yield _durations("reset_duration", "Durations of successful resets.", ("backend",), counted.reset_times)
    yield _durations("worker_wait", "How long episodes have waited for a worker.", (), {(): counted.worker_waits})
    yield _counts("steps", "Steps and executed cells by backend and outcome.", ("backend", "outcome"), counted.steps)
    yield _durations("step_duration", "Durations of steps and executed cells.", ("backend",), counted.step_times)
    yield _counts("grades", "Graded submissions by mode and outcome.", ("mode", "outcome"), counted.grades)
    yield _durations("grade_duration", "Durations of grading, without the wait for a place.", ("mode",), counted.grade_times)
    yield _counts("programs", "Programs of /run_code by outcome.", ("outcome",), counted.programs)
    yield _durations("program_duration", "Durations of programs, without the wait.", (), {(): counted.program_times})
    waits = sources.grading.places.waits
    yield _durations("place_wait", "How long submissions and programs have waited for a place.", (), {(): waits})
    yield _counts("refusals", "Requests refused at capacity, by what was missing.", ("missing",), counted.refusals)


def _state(sources: MetricSources) -> Iterator[Metric]:
    sessions, executors, grading = sources.sessions, sources.executors, sources.grading
    server = (__version__, str(PROTOCOL_VERSION))
    busy = len(executors.all) - executors.spares - executors.parked
    workers = {"spare": executors.spares, "parked": executors.parked, "busy": busy}
    yield _gauge("server_info", "Version of the server, and of its protocol.", {server: 1}, ("version", "protocol"))
    yield _gauge("sessions", "Open sessions, without forks.", {(): sessions.count})
    yield _gauge("sessions_limit", "Maximum number of open sessions, without forks.", {(): sessions.limit})
    yield _gauge("forks", "Open sessions that are forks of others.", {(): sessions.forks})
    yield _gauge("snapshots", "Snapshots, each a frozen copy of a worker.", {(): len(executors.frozen)})
    yield _gauge("workers", "Workers of sessions by state.", workers, ("state",))
    yield _gauge("grading_places", "Maximum number of submissions and programs at a time.", {(): grading.places.count})
    yield _gauge("grading_busy", "Workers that grade submissions or run programs.", {(): grading.busy})
    yield _gauge("grading_waiting", "Submissions and programs that wait for a place.", {(): grading.places.waiting})


def _memory(sources: MetricSources, memory: int) -> Iterator[Metric]:
    yield _gauge("memory_bytes", "Memory of the container, or of the server's processes without one.", {(): memory})
    if (limit := sources.memory.limit) is not None:
        yield _gauge("memory_limit_bytes", "Memory limit of the container.", {(): limit})


def _gauge(name: str, help_text: str, values: Mapping[Any, float], labels: tuple[str, ...] = ()) -> Metric:
    from prometheus_client.core import GaugeMetricFamily

    family = GaugeMetricFamily(f"coding_gym_{name}", help_text, labels=labels)
    for given, value in values.items():
        family.add_metric(_tuple(given), value)
    return family


def _counts(name: str, help_text: str, labels: tuple[str, ...], counts: Mapping[Any, float]) -> Metric:
    from prometheus_client.core import CounterMetricFamily

    family = CounterMetricFamily(f"coding_gym_{name}", help_text, labels=labels)
    for given, count in counts.items():
        family.add_metric(_tuple(given), count)
    return family


def _durations(name: str, help_text: str, labels: tuple[str, ...], times: Mapping[Any, DurationHistogram]) -> Metric:
    from prometheus_client.core import HistogramMetricFamily

    family = HistogramMetricFamily(f"coding_gym_{name}_seconds", help_text, labels=labels)
    for given, histogram in times.items():
        family.add_metric(_tuple(given), histogram.buckets, histogram.total)
    return family


def _tuple(labels: str | tuple[str, ...]) -> tuple[str, ...]:
    return (labels,) if isinstance(labels, str) else labels
