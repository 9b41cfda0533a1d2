"""``ZygoteConfig``: what the server tells a zygote. The server imports nothing else of it."""

from __future__ import annotations

import msgspec

from coding_gym_server.ipc.zygote_messages import SLOT_MAKER, SUBMISSION
from coding_gym_server.isolation.profile import IsolationProfile
from coding_gym_server.workspace.image_programs import ImagePrograms

__all__ = ["ZygoteConfig"]

# Small objects of a zygote of slots; of submissions; of sessions; and of sessions that preload numpy, pandas and matplotlib.
_SLOT_MAKER_BYTES = 1 << 20
_MINIMAL_BYTES = 5 << 20
_BASE_BYTES = 11 << 20
_PRELOAD_BYTES = 40 << 20
_SMALL = {SLOT_MAKER: _SLOT_MAKER_BYTES, SUBMISSION: _MINIMAL_BYTES}


class ZygoteConfig(msgspec.Struct, kw_only=True):
    """Configuration of the zygote, passed on its command line as JSON.

    Attributes:
        preload: Modules to import before serving. Modules that are not installed are skipped.
        backend: Name of the backend of its roots; those of submissions are forked by any.
        profile: Isolation profile of each session.
        authorized_imports: Modules that backends with an import allowlist permit in addition to their own.
        overlay: Directory of packages in addition to the interpreter's.
        namespace: Descriptor of the user namespace that it enters, None to stay in the present one.
        image: How programs of sessions run if they are those of another image, else None.
    """

    preload: list[str]
    backend: str
    profile: IsolationProfile
    authorized_imports: tuple[str, ...] = ()
    overlay: str | None = None
    namespace: int | None = None
    image: ImagePrograms | None = None

    @property
    def heap_bytes(self) -> int:
        """Approximate size of the small objects of the zygote and its imported modules."""
        if self.is_minimal:
            return _SMALL[self.backend]
        return _PRELOAD_BYTES if self.preload else _BASE_BYTES

    @property
    def is_minimal(self) -> bool:
        """Whether no session is forked from it."""
        return self.backend in _SMALL
