"""What can go wrong on our side. Failing user code is an observation, never one of these.

::

    CodingGymError
    ├── ConfigurationError (ValueError)         a setting that cannot be
    ├── InvalidActionError (ValueError)         an action outside the action space
    ├── ProviderError (RuntimeError)            a sandbox cannot be had
    │   ├── ProviderUnavailableError            no engine, or a kernel that cannot isolate
    │   ├── ImageBuildError                     the image does not build
    │   ├── PackageInstallError                 packages= cannot be installed
    │   ├── SandboxStartError                   the sandbox did not come up
    │   ├── PoolClosedError                     the pool is closed
    │   └── PoolTimeoutError (TimeoutError)     no sandbox of the pool was free in time
    ├── StepTimeoutError (TimeoutError)         a step ran out of time, where that was asked to raise
    ├── DatasetError (RuntimeError)             episodes cannot be collected, written or read
    │   └── PolicyError                         a policy raised
    ├── TransportError (ConnectionError)        the connection to the server broke
    │   └── TransportTimeoutError (TimeoutError)  the server did not answer in time
    └── ProtocolError (RuntimeError)            the server refused a request, or sent something else
        └── CapacityError                       the server has no free session
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = [
    "CapacityError",
    "CodingGymError",
    "ConfigurationError",
    "DatasetError",
    "ImageBuildError",
    "InvalidActionError",
    "PackageInstallError",
    "PolicyError",
    "PoolClosedError",
    "PoolTimeoutError",
    "ProtocolError",
    "ProviderError",
    "ProviderUnavailableError",
    "SandboxStartError",
    "StepTimeoutError",
    "TransportError",
    "TransportTimeoutError",
]


class CodingGymError(Exception):
    """The root of all errors of this package."""


class ConfigurationError(CodingGymError, ValueError):
    """A setting that cannot be, or two that do not go together."""


class InvalidActionError(CodingGymError, ValueError):
    """An action that is not in the action space. Nothing was sent: the episode goes on as if it had not been tried."""


class ProviderError(CodingGymError, RuntimeError):
    """A sandbox cannot be had."""


class ProviderUnavailableError(ProviderError):
    """The provider does not work on this machine.

    Attributes:
        provider: Its name.
        reason: What is missing.
    """

    def __init__(self, *, provider: str, reason: str) -> None:
        super().__init__(f"The {provider} provider is not available: {reason}")
        self.provider = provider
        self.reason = reason


class ImageBuildError(ProviderError):
    """The image does not build.

    Attributes:
        log: The end of the build's log.
    """

    def __init__(self, message: str, log: list[str]) -> None:
        super().__init__("\n".join([message, *(f"  | {line}" for line in log)]))
        self.log = log


class PackageInstallError(ProviderError):
    """The packages that a sandbox is to have cannot be installed. Nothing is left of the attempt.

    Attributes:
        requirements: What was to be installed.
        log: The end of what pip printed.
    """

    def __init__(self, requirements: Sequence[str], reason: Sequence[str], log: Sequence[str]) -> None:
        named = ", ".join(requirements)
        super().__init__("\n".join([f"Cannot install {named}. pip says:", *(f"  | {line}" for line in reason)]))
        self.requirements = tuple(requirements)
        self.log = list(log)


class SandboxStartError(ProviderError):
    """A sandbox was started, but did not come up."""


class PoolClosedError(ProviderError):
    """The pool is closed."""

    def __init__(self) -> None:
        super().__init__("The pool is closed. Make a new one.")


class PoolTimeoutError(ProviderError, TimeoutError):
    """No sandbox of a pool was free, or ready, in time."""


class StepTimeoutError(CodingGymError, TimeoutError):
    """A step ran out of time, in an environment that was told to raise then. The next step works.

    Attributes:
        observation: What the step showed.
        info: Its info.
    """

    def __init__(self, observation: dict[str, Any], info: dict[str, Any]) -> None:
        last_line = str(observation["stderr"]).rstrip().rpartition("\n")[2]
        super().__init__(f"The step ran out of time: {last_line}")
        self.observation = observation
        self.info = info


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
            "All others that had begun are written; run the same again to try what is missing."
        )
        self.causes = dict(causes)


class TransportError(CodingGymError, ConnectionError):
    """The connection to a server could not be made, or broke."""


class TransportTimeoutError(TransportError, TimeoutError):
    """The server did not answer in time."""


class ProtocolError(CodingGymError, RuntimeError):
    """The server refused a request, or answered with something that is no answer.

    Attributes:
        code: The server's error code, empty if it did not send one.
    """

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(f"{message} (code: {code})" if code else message)
        self.code = code


class CapacityError(ProtocolError):
    """The server has as many sessions as it may have."""
