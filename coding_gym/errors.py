"""Errors of this package. Failing user code is an observation, never one of these.

::

    CodingGymError
    ├── ConfigurationError (ValueError)         an invalid option, or one that the machine or server cannot fulfill
    │   └── ProtocolVersionError                client and server speak different versions
    ├── InvalidActionError (ValueError)         an action outside the action space
    ├── ConcurrentUseError (RuntimeError)       two threads, or two event loops, use one environment
    ├── ProviderError (RuntimeError)            no sandbox is available
    │   ├── ProviderUnavailableError            no engine, or a kernel that cannot isolate
    │   ├── ImageBuildError                     the image failed to build
    │   ├── PackageInstallError                 packages= cannot be installed
    │   ├── SandboxStartError                   the sandbox did not come up
    │   ├── PoolClosedError                     the pool is closed
    │   └── PoolTimeoutError (TimeoutError)     no sandbox of the pool was free in time
    ├── SnapshotError (RuntimeError)            an episode cannot be copied, or a snapshot is lost
    ├── StepTimeoutError (TimeoutError)         a step exceeded its time limit (on_timeout="raise")
    ├── ReceiveTimeoutError (TimeoutError)      recv() of a vector environment got too few answers in time
    ├── DatasetError (RuntimeError)             episodes cannot be collected, written or read
    │   └── PolicyError                         a policy raised
    ├── TransportError (ConnectionError)        the connection to the server broke
    │   └── TransportTimeoutError (TimeoutError)  the server did not answer in time
    └── ProtocolError (RuntimeError)            the server rejected a request, or sent a malformed response
        └── CapacityError                       the server has no free session
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = [
    "CapacityError",
    "CodingGymError",
    "ConcurrentUseError",
    "ConfigurationError",
    "DatasetError",
    "ImageBuildError",
    "InvalidActionError",
    "PackageInstallError",
    "PolicyError",
    "PoolClosedError",
    "PoolTimeoutError",
    "ProtocolError",
    "ProtocolVersionError",
    "ProviderError",
    "ProviderUnavailableError",
    "ReceiveTimeoutError",
    "SandboxStartError",
    "SnapshotError",
    "StepTimeoutError",
    "TransportError",
    "TransportTimeoutError",
]


class CodingGymError(Exception):
    """Base class of all errors of this package. They can be pickled, for example by process pools."""

    def __reduce__(self) -> Any:
        # The arguments of a constructor may differ from those of the error.
        return _restored, (type(self), self.args), self.__dict__


def _restored(kind: type[CodingGymError], args: tuple[Any, ...]) -> CodingGymError:
    error = kind.__new__(kind)
    error.args = args
    return error


class ConfigurationError(CodingGymError, ValueError):
    """An option is invalid, options conflict, or this machine or server cannot fulfill one.

    The same call would fail again, so nothing is retried, and no step or verdict has the outcome ``infrastructure`` for it.
    The message says what was requested, what is missing, and what to do.
    """


class ProtocolVersionError(ConfigurationError):
    """The client and the server speak different versions of the wire protocol. Trying again does not help.

    Attributes:
        client_version: The client's version.
        server_version: The server's version; 0 if it reports none.
    """

    def __init__(self, *, address: str, client_version: int, server_version: int) -> None:
        reported = f"speaks {server_version}" if server_version else "speaks 0 (it reports none)"
        super().__init__(
            f"This client speaks wire protocol {client_version}, the server at {address} {reported}: install the same "
            "coding-gym version on both sides or rebuild the image: coding-gym build-image"
        )
        self.client_version = client_version
        self.server_version = server_version


class InvalidActionError(CodingGymError, ValueError):
    """An action that is not in the action space. Nothing was sent, and the episode continues."""


class ConcurrentUseError(CodingGymError, RuntimeError):
    """Two threads, or two event loops, use one environment. The call has no effect, and the other one is not affected."""

    def __init__(
        self,
        message: str = (
            "Another thread is in a call of this environment: use each environment in one thread at a time. Make one for each "
            "thread, or a vector environment, whose steps are concurrent"
        ),
    ) -> None:
        super().__init__(message)


class ProviderError(CodingGymError, RuntimeError):
    """Base class for failures to obtain a sandbox."""


class ProviderUnavailableError(ProviderError):
    """The provider does not work on this machine.

    Attributes:
        provider: Its name.
        reason: What is missing.
        remedy: What to do about it; empty if the reason says so.
    """

    def __init__(self, *, provider: str, reason: str, remedy: str = "") -> None:
        super().__init__(f"The {provider} provider is not available: {reason}{f'. {remedy}' if remedy else ''}")
        self.provider = provider
        self.reason = reason
        self.remedy = remedy


class ImageBuildError(ProviderError):
    """The image failed to build.

    Attributes:
        log: The end of the build's log.
    """

    def __init__(self, message: str, log: list[str]) -> None:
        super().__init__("\n".join([message, *(f"  | {line}" for line in log)]))
        self.log = log


class PackageInstallError(ProviderError):
    """Installing ``packages`` or ``system_packages`` failed. The partial installation is removed.

    Attributes:
        requirements: The requirements that the installer was given.
        log: The end of what the installer printed.
    """

    def __init__(
        self, requirements: Sequence[str], reason: Sequence[str], log: Sequence[str], *, installer: str = "pip"
    ) -> None:
        named = ", ".join(requirements)
        super().__init__("\n".join([f"Cannot install {named}. {installer} says:", *(f"  | {line}" for line in reason)]))
        self.requirements = tuple(requirements)
        self.log = list(log)


class SandboxStartError(ProviderError):
    """A sandbox was started, but did not come up."""


class PoolClosedError(ProviderError):
    """The pool is closed."""

    def __init__(self) -> None:
        super().__init__("The pool is closed. Create a new one.")


class PoolTimeoutError(ProviderError, TimeoutError):
    """No sandbox of a pool was free, or ready, in time."""


class SnapshotError(CodingGymError, RuntimeError):
    """A snapshot cannot be taken, or is lost. Unless the message says otherwise, the episode continues unchanged.

    ``restore_state(snapshot, replay=True)`` runs the recorded actions of a lost snapshot again, and
    ``clone_state(replay=True)`` takes a record of an episode whose state cannot be copied.

    Attributes:
        reasons: All reasons.
    """

    def __init__(self, reasons: Sequence[str]) -> None:
        super().__init__(f"The snapshot cannot be taken or restored: {'; '.join(reasons)}")
        self.reasons = tuple(reasons)


class StepTimeoutError(CodingGymError, TimeoutError):
    """A step exceeded its time limit, in an environment with ``on_timeout="raise"``. The next step works.

    Attributes:
        observation: The observation of the step.
        info: Its info.
    """

    def __init__(self, observation: dict[str, Any], info: dict[str, Any]) -> None:
        last_line = str(observation["stderr"]).rstrip().rpartition("\n")[2]
        super().__init__(f"The step ran out of time: {last_line}")
        self.observation = observation
        self.info = info


class ReceiveTimeoutError(CodingGymError, TimeoutError):
    """``recv`` of a vector environment got fewer answers in time than it should. They are kept for the next call.

    Attributes:
        min_ready: The number of answers that it waited for.
        arrived: The number of those that have arrived.
    """

    def __init__(self, *, min_ready: int, arrived: int, timeout: float) -> None:
        super().__init__(
            f"Expected answers of {min_ready} environments within {timeout:g} s, got {arrived}: they are kept. Call recv() "
            "again, with a larger timeout= or a smaller min_ready="
        )
        self.min_ready = min_ready
        self.arrived = arrived


class DatasetError(CodingGymError, RuntimeError):
    """Episodes cannot be collected, written or read."""


class PolicyError(DatasetError):
    """A policy raised. Its episodes are missing; the others are written, and the same call tries those again.

    Attributes:
        causes: What was raised, by the number of the episode.
    """

    def __init__(self, causes: Mapping[int, BaseException]) -> None:
        index, cause = next(iter(sorted(causes.items())))
        others = f", and in {len(causes) - 1} more" if len(causes) > 1 else ""
        super().__init__(
            f"The policy raised in episode {index}{others}: {type(cause).__name__}: {cause}. "
            "All other episodes that had begun are written; repeat the call to retry the missing ones."
        )
        self.causes = dict(causes)


class TransportError(CodingGymError, ConnectionError):
    """The connection to a server could not be made, or broke."""


class TransportTimeoutError(TransportError, TimeoutError):
    """The server did not answer in time."""


class ProtocolError(CodingGymError, RuntimeError):
    """The server rejected a request, or sent a malformed response. Rejected options of a reset: ``ConfigurationError``.

    Attributes:
        code: The server's error code, empty if it did not send one.
        status: The status of the HTTP response that rejected the request, None for any other failure.
    """

    def __init__(self, message: str, code: str = "", *, status: int | None = None) -> None:
        super().__init__(f"{message} (code: {code})" if code else message)
        self.code = code
        self.status = status


class CapacityError(ProtocolError):
    """The server's session limit has been reached."""
