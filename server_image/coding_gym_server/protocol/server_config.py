"""Configuration of a server: the document that starts one, and the options of its command line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from coding_gym_server.protocol.backends import canonical_backend
from coding_gym_server.protocol.messages import REWARDS

__all__ = ["ImageSettings", "ServerConfig"]

_SPARE_GRADERS = 1
"""Number of grading workers beyond the number of cores: tests and submissions wait for each other and for the server."""


class ImageSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What an image sets for the programs of its containers (see "Image Configuration" in the OCI image format).

    Attributes:
        environment: Environment variables.
        user: Name or id of the user, and perhaps those of its group behind a colon; root if empty.
        directory: The working directory; ``/`` if empty.
    """

    environment: dict[str, str] = {}
    user: str = ""
    directory: str = ""


class ServerConfig(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Server configuration: addresses, sessions and isolation.

    The descriptions of its fields are the help of the server's command line.
    """

    uds: Annotated[str | None, Meta(description="path of the Unix socket to listen on, instead of TCP")] = None
    host: Annotated[str, Meta(description="TCP address to listen on")] = "0.0.0.0"  # noqa: S104 - containers publish ports
    port: Annotated[int, Meta(description="TCP port to listen on")] = 8000
    token: Annotated[str | None, Meta(description="bearer token that clients must present; not in documents")] = None
    workspaces: Annotated[Path, Meta(description="parent directory of the session workspaces")] = Path("/workspaces/sessions")
    max_sessions: Annotated[int, Meta(description="maximum number of concurrent sessions")] = 64
    spare_workers: Annotated[int, Meta(description="number of idle workers to keep ready")] = 1
    preload: Annotated[tuple[str, ...], Meta(description="modules to import before workers are forked")] = (
        "numpy",
        "pandas",
        "matplotlib.pyplot",
    )
    backend: Annotated[str | None, Meta(description="default backend, also EXECUTOR_BACKEND (default: python)")] = None
    authorized_imports: Annotated[
        tuple[str, ...], Meta(description="modules that backends with an import allowlist permit in addition to their own")
    ] = ()
    distributions: Annotated[
        tuple[str, ...], Meta(description="installed distributions whose modules import allowlists permit")
    ] = ()
    packages: Annotated[
        tuple[str, ...],
        Meta(description="packages to install before serving and to permit: numpy>=2,yaml,math; also ADDITIONAL_IMPORTS"),
    ] = ()
    overlay: Annotated[Path | None, Meta(description="directory of packages in addition to the interpreter's")] = None
    isolation: Annotated[
        Literal["require", "prefer"],
        Meta(description="whether to exit if the kernel cannot isolate sessions, or to continue without"),
    ] = "prefer"
    network: Annotated[bool, Meta(description="let user code use TCP")] = False
    container: Annotated[
        bool,
        Meta(
            description="the server is in a container of its own, whose files and processes may be those of its session; else "
            "it makes namespaces for itself"
        ),
    ] = False
    max_memory_bytes: Annotated[
        int | None, Meta(description="limit on a process's private writable memory, if no container limits it")
    ] = None
    max_file_bytes: Annotated[int | None, Meta(description="limit on the size of a file")] = None
    max_inodes: Annotated[
        int, Meta(description="limit on the files and directories of each file system that the sandbox mounts")
    ] = 100_000
    max_processes: Annotated[
        int | None,
        Meta(description="limit on processes and threads in addition to the user's existing ones, if no container limits them"),
    ] = None
    shared_user_reason: Annotated[str, Meta(description="why sessions cannot have users, if that is known")] = ""
    session_root: Annotated[bool, Meta(description="run programs of sessions as root, on a copy of the files")] = False
    image: Annotated[
        ImageSettings | None,
        Meta(description="what the container's image sets for programs, if it is not the server's own; in documents only"),
    ] = None
    mounts: Annotated[tuple[str, ...], Meta(description="directories that are mounted for sessions to read")] = ()
    layers: Annotated[
        Path | None, Meta(description="directory on a disk for files that sessions of root change (default: in memory)")
    ] = None
    session_disk_bytes: Annotated[int, Meta(description="size of the file system of a session that has its own")] = 512 << 20
    session_processes: Annotated[
        int | None,
        Meta(
            description="limit on the processes of a session (default: three quarters of the container's "
            "limit, or all with a single session)"
        ),
    ] = None
    opengl: Annotated[bool, Meta(description="offer OpenGL to programs, also CODING_GYM_OPENGL")] = False
    step_timeout: Annotated[float, Meta(description="wall-clock limit of a step in seconds")] = 30.0
    rewards: Annotated[tuple[str, ...], Meta(description="rewards of OpenEnv to add up, also REWARDS; none if empty")] = REWARDS
    first_client_within: Annotated[
        float | None, Meta(description="seconds after which the server exits without a first client")
    ] = None
    idle_timeout: Annotated[float | None, Meta(description="seconds after which the server exits without clients")] = None

    @classmethod
    def of(cls, document: Any) -> ServerConfig:
        """Return the configuration of a document, a mapping of fields to values.

        Raises:
            msgspec.ValidationError: If a field is unknown or its value is invalid.
        """
        return msgspec.convert(document, cls, dec_hook=lambda kind, value: kind(value))

    def document(self) -> str:
        """Return the configuration as JSON, without what is default."""
        return msgspec.json.encode(self, enc_hook=str).decode()

    @property
    def default_backend(self) -> str:
        """Name of the default backend."""
        return canonical_backend(self.backend or "python")

    @property
    def grading_workers(self) -> int:
        """Maximum number of submissions that are graded at the same time."""
        return (os.cpu_count() or 1) + _SPARE_GRADERS
