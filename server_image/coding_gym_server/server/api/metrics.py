"""Route ``/metrics``: the state and the counts of the server, in the formats of Prometheus."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from coding_gym_server import __version__
from coding_gym_server.exposition import counter, encode, gauge, histogram
from coding_gym_server.protocol import PROTOCOL_VERSION
from coding_gym_server.server.grading.service import GradingService
from coding_gym_server.server.measurements import Measurements
from coding_gym_server.server.memory_usage import MemoryUsage
from coding_gym_server.server.sessions.registry import SessionRegistry
from coding_gym_server.server.supervisor.executor_pool import ExecutorPool
from coding_gym_server.server.threads import in_thread

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
        groups = [*sources.executors.all, *sources.grading.process_groups]
        roots = {group.root_pid for group in groups if group.root_pid > 0}
        memory = await in_thread(_prepare, sources.memory, roots)
        # Read in the event loop, where nothing changes in the meantime.
        families = [*_state(sources), *_memory(sources.memory, memory), *_counted(sources)]
        content, content_type = await in_thread(encode, families, accepted)
        return Response(content, headers={"content-type": content_type})

    return Route("/metrics", metrics)


def _prepare(memory: MemoryUsage, roots: set[int]) -> int:
    """Read the memory, in a thread; the first call also imports the library, which takes long."""
    importlib.import_module("prometheus_client")
    return memory.read(roots)


def _state(sources: MetricSources) -> Iterator[Metric]:
    sessions, executors, grading = sources.sessions, sources.executors, sources.grading
    server = (__version__, str(PROTOCOL_VERSION))
    busy = len(executors.all) - executors.spares - executors.parked
    workers = {"spare": executors.spares, "parked": executors.parked, "busy": busy}
    yield gauge("server_info", "Version of the server and of its protocol; always 1.", {server: 1}, ("version", "protocol"))
    yield gauge("sessions", "Open sessions, without forks.", {(): sessions.count})
    yield gauge("sessions_limit", "Maximum number of open sessions, without forks.", {(): sessions.limit})
    yield gauge("forks", "Open sessions that are forks of others.", {(): sessions.forks})
    opened = sources.measurements.open_door_connections
    yield gauge("door_connections_open", "Open connections of sessions to their doors.", {(): opened})
    yield gauge("snapshots", "Frozen copies of workers.", {(): len(executors.frozen)})
    yield gauge("workers", "Workers of sessions by state.", workers, ("state",))
    yield gauge("grading_places", "Maximum number of submissions and programs at a time.", {(): grading.slots.count})
    yield gauge("grading_busy", "Workers that grade submissions or run programs.", {(): grading.busy})
    yield gauge("grading_waiting", "Submissions and programs that wait for a place.", {(): grading.slots.waiting})


def _memory(memory: MemoryUsage, used: int) -> Iterator[Metric]:
    yield gauge("memory_bytes", "Memory of the container, or of the server's processes without one.", {(): used})
    if (limit := memory.limit) is not None:
        yield gauge("memory_limit_bytes", "Memory limit of the container.", {(): limit})


def _counted(sources: MetricSources) -> Iterator[Metric]:
    counted, waits = sources.measurements, sources.grading.slots.waits
    yield counter("resets", "Resets by backend and outcome.", counted.resets, ("backend", "outcome"))
    yield histogram("reset_duration", "Durations of successful resets.", counted.reset_times, ("backend",))
    yield histogram("worker_wait", "How long episodes have waited for a worker.", {(): counted.worker_waits})
    yield counter("steps", "Steps and executed cells by backend and outcome.", counted.steps, ("backend", "outcome"))
    yield histogram("step_duration", "Durations of steps and executed cells.", counted.step_times, ("backend",))
    yield counter("grades", "Graded submissions by mode and outcome.", counted.grades, ("mode", "outcome"))
    yield counter("door_connections", "Connections of sessions to their doors.", {(): counted.door_connections})
    disagreements = {(): counted.disagreements}
    yield counter("disagreements", "Submissions that passed apart from their tests, and failed with them.", disagreements)
    yield histogram("grade_duration", "Durations of grading, without the wait for a place.", counted.grade_times, ("mode",))
    yield counter("programs", "Programs of /run_code by outcome.", counted.programs, ("outcome",))
    yield histogram("program_duration", "Durations of programs, without the wait for a place.", {(): counted.program_times})
    yield histogram("place_wait", "How long submissions and programs have waited for a place.", {(): waits})
    yield counter("refusals", "Requests refused at capacity, by what was missing.", counted.refusals, ("missing",))
