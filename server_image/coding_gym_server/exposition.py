"""Metrics in the formats of Prometheus, from numbers that have been counted without its library.

The library is imported by the first call: most servers are never asked for metrics, and the import would delay each start.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from coding_gym_server.durations import DurationHistogram

if TYPE_CHECKING:
    from prometheus_client import Metric

__all__ = ["counter", "encode", "gauge", "histogram"]

_PREFIX = "coding_gym_"


def gauge(name: str, help_text: str, values: Mapping[Any, float], labels: tuple[str, ...] = ()) -> Metric:
    """Return a metric of the present state.

    Args:
        name: Its name without the prefix ``coding_gym_``.
        help_text: What it is.
        values: Its values by the values of the labels: a tuple, or a str of the only label.
        labels: Names of the labels.
    """
    from prometheus_client.core import GaugeMetricFamily

    family = GaugeMetricFamily(_PREFIX + name, help_text, labels=labels)
    for given, value in values.items():
        family.add_metric(_tuple(given), float(value))
    return family


def counter(name: str, help_text: str, counts: Mapping[Any, float], labels: tuple[str, ...] = ()) -> Metric:
    """Return a metric of what has happened since the start, whose series end with ``_total``; see ``gauge``."""
    from prometheus_client.core import CounterMetricFamily

    family = CounterMetricFamily(_PREFIX + name, help_text, labels=labels)
    for given, count in counts.items():
        family.add_metric(_tuple(given), float(count))
    return family


def histogram(name: str, help_text: str, times: Mapping[Any, DurationHistogram], labels: tuple[str, ...] = ()) -> Metric:
    """Return a metric of durations, whose name ends with ``_seconds``; see ``gauge``."""
    from prometheus_client.core import HistogramMetricFamily

    family = HistogramMetricFamily(f"{_PREFIX}{name}_seconds", help_text, labels=labels)
    for given, durations in times.items():
        family.add_metric(_tuple(given), durations.buckets, durations.total)
    return family


def encode(families: Iterable[Metric], accepted: str) -> tuple[bytes, str]:
    """Return metrics, and those of this process, in a format that a client accepts, and the name of the format.

    Args:
        families: The metrics.
        accepted: The client's header ``Accept``.
    """
    from prometheus_client import CollectorRegistry, ProcessCollector
    from prometheus_client.exposition import choose_encoder

    registry = CollectorRegistry()
    registry.register(_Families(families))
    ProcessCollector(registry=registry)
    encoder, content_type = choose_encoder(accepted)
    return encoder(registry), content_type


class _Families:
    """Collector of metrics that have been read already.

    Args:
        families: The metrics.
    """

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        """Return the metrics."""
        return self._families


def _tuple(labels: str | tuple[str, ...]) -> tuple[str, ...]:
    return (labels,) if isinstance(labels, str) else labels
