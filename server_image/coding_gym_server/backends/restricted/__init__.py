"""Plain CPython under a policy: RestrictedPython checks and rewrites a cell before it is compiled.

The policy keeps a program that was not asked to leave its sandbox from leaving it by accident or by the usual tricks; the
boundary is the process that it runs in.
"""

from __future__ import annotations

from coding_gym_server.backends.restricted.backend import RestrictedBackend

__all__ = ["RestrictedBackend"]
