"""Libraries that tests share by forking, because importing them takes longer than most tests."""

from __future__ import annotations

from coding_gym_server.protocol.grading import Asserts, UnitTests

__all__ = ["libraries_of"]

_LIBRARIES = ("numpy", "pandas", "scipy", "sklearn", "matplotlib")


def libraries_of(tests: Asserts | UnitTests) -> list[str]:
    """Return the names of the libraries that tests mention, which few tests do without importing them."""
    source = "\n".join((tests.setup, *tests.cases)) if isinstance(tests, Asserts) else tests.source
    return [name for name in _LIBRARIES if name in source]
