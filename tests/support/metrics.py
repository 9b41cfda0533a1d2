"""Metrics of ``/metrics``, parsed."""

from __future__ import annotations

from collections.abc import Iterable

import httpx
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

__all__ = ["Scraped", "scrape"]


class Scraped:
    """What an endpoint has said at one time.

    Args:
        families: The metrics.
    """

    def __init__(self, families: Iterable[Metric]) -> None:
        self.families = {family.name: family for family in families}

    @property
    def samples(self) -> set[str]:
        """Names of the series."""
        return {sample.name for family in self.families.values() for sample in family.samples}

    def value(self, sample: str, **labels: str) -> float:
        """Return the sum of the series of a name whose labels are these, or contain them."""
        matching = [
            found.value
            for family in self.families.values()
            for found in family.samples
            if found.name == sample and labels.items() <= found.labels.items()
        ]
        assert matching, (sample, labels)
        return sum(matching)


def scrape(url: str, **headers: str) -> Scraped:
    """Return the metrics of a server at a URL."""
    with httpx.Client(verify=False) as client:
        response = client.get(f"{url}/metrics", headers=headers)
    assert response.status_code == 200, response.text
    return Scraped(text_string_to_metric_families(response.text))
