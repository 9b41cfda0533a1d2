"""The package can be installed beside the libraries that people train with."""

from __future__ import annotations

from tests.support.requirements import import_extra
from tests.support.resolution import conflicts


def test_no_extra_conflicts_with_a_trainer():
    import_extra("uv")
    assert conflicts() == {}
