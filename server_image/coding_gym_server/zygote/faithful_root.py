"""Root process of a faithful grading worker: imports libraries, and forks a process for each test of a submission."""

from __future__ import annotations

from coding_gym_server.submission.faithful_process import FaithfulProcess
from coding_gym_server.workspace.layout import Layout
from coding_gym_server.zygote.submission_root import SubmissionRoot

__all__ = ["FaithfulRoot"]


class FaithfulRoot(SubmissionRoot):
    """Root that forks processes which hold a submission and one test. It never sees either."""

    # They seed Python's random numbers.
    _needs_fork_hooks = True

    def _make_process(self, layout: Layout) -> FaithfulProcess:
        return FaithfulProcess(layout, profile=self._profile, prepared=self._prepared)
