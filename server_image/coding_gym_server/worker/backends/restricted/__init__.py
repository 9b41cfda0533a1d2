"""Restricted backend: CPython with a policy, for which RestrictedPython checks and rewrites each cell before it is compiled.

The policy prevents a program that does not target this sandbox from escaping by accident or with common techniques. It is not
a security boundary; the boundary is the process in which the program runs.
"""

from __future__ import annotations

from coding_gym_server.worker.backends.restricted.backend import RestrictedBackend

__all__ = ["RestrictedBackend"]
