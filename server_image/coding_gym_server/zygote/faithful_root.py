"""Root process of a faithful grading worker: imports libraries, and forks a process for each test of a submission."""

from __future__ import annotations

import gc
import os

from coding_gym_server.ipc.channel import Channel
from coding_gym_server.ipc.library_messages import ImportLibraries, LibrariesImported
from coding_gym_server.ipc.messages import ToProcess
from coding_gym_server.isolation.profile import IsolationProfile
from coding_gym_server.submission.faithful_process import FaithfulProcess, import_libraries
from coding_gym_server.workspace.layout import Layout
from coding_gym_server.zygote import heap
from coding_gym_server.zygote.session_root import Forked
from coding_gym_server.zygote.submission_root import SubmissionRoot

__all__ = ["FaithfulRoot"]


class FaithfulRoot(SubmissionRoot):
    """Root that forks processes which hold a submission and one test. It never sees either."""

    def __init__(
        self,
        channel: Channel[ToProcess],
        profile: IsolationProfile,
        workspace: str | None,
        *,
        backend: str,
        shared: str | None,
        user: int | None,
        authorized_imports: tuple[str, ...],
    ) -> None:
        super().__init__(
            channel,
            # That of the zygote is the profile of sessions.
            profile.of_submissions(),
            workspace,
            backend=backend,
            shared=shared,
            user=user,
            authorized_imports=authorized_imports,
        )

    def _handle(self, message: ToProcess, descriptors: list[int]) -> Forked | None:
        if not isinstance(message, ImportLibraries):
            return super()._handle(message, descriptors)
        import_libraries(message.names)
        gc.collect()
        gc.freeze()
        heap.collapse()
        self._channel.send(LibrariesImported())
        return None

    def _make_process(self, layout: Layout) -> FaithfulProcess:
        return FaithfulProcess(layout, profile=self._profile, prepared=self._prepared)

    def _fork_process(self) -> int:
        # With the hooks of libraries, which also seed Python's random numbers.
        return os.fork()
