"""Command ``coding-gym logs``."""

from __future__ import annotations

import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from coding_gym.cli.common import errors_in_red
from coding_gym.errors import ProviderUnavailableError

if TYPE_CHECKING:
    from docker.models.containers import Container

    from coding_gym.sandbox.local.logs import LocalLog
    from coding_gym.sandbox.ownership import OwnerProcess

__all__ = ["age", "logs", "owner_state"]

_POLL_SECONDS = 0.2


def logs(
    name: Annotated[
        str | None, typer.Argument(help="Name of a sandbox, or its beginning, or its owner's pid; all if omitted.")
    ] = None,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="Show this many lines from the end of each.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Show new lines of one sandbox until it ends.")] = False,
) -> None:
    """Show what the servers of this user's sandboxes have logged: containers and local sandboxes, the oldest first.

    A sandbox's log is removed with the sandbox. Servers log warnings and errors only, so most logs are empty.
    """
    with errors_in_red(), contextlib.suppress(KeyboardInterrupt), _sources() as found:
        chosen = sorted((source for source in found if source.is_called(name)), key=lambda source: source.started)
        if not chosen:
            if name is not None:
                message = f"there is no sandbox {name}: expected one of {', '.join(source.name for source in found) or 'none'}"
                raise typer.BadParameter(message)
            typer.echo("There are no sandboxes.")
            return
        if follow and len(chosen) > 1:
            message = f"--follow requires one of these sandboxes: {', '.join(source.name for source in chosen)}"
            raise typer.BadParameter(message)
        for source in chosen:
            owner = f"owner {source.owner.pid} is {owner_state(source.owner)}"
            typer.echo(f"==> {source.name} ({source.kind}, {age(source.started)} old, {owner}) <==", err=True)
            typer.echo(source.tail(lines), nl=False)
            if follow:
                for text in source.news():
                    typer.echo(text, nl=False)


class _Source(ABC):
    """Log of a sandbox.

    Attributes:
        name: Name of the sandbox.
        owner: The process that started it.
        started: When it was started.
        kind: Its provider.
    """

    name: str
    owner: OwnerProcess
    started: datetime
    kind: str

    def is_called(self, name: str | None) -> bool:
        """Return whether a name, the beginning of one or an owner's pid refers to this sandbox."""
        return name is None or self.name.startswith(name) or name == str(self.owner.pid)

    @abstractmethod
    def tail(self, count: int) -> str:
        """Return the last lines."""

    @abstractmethod
    def news(self) -> Iterator[str]:
        """Yield what is logged after ``tail``, until the sandbox ends."""


class _ContainerSource(_Source):
    kind = "docker"

    def __init__(self, container: Container, owner: OwnerProcess) -> None:
        self.name = str(container.name)
        self.owner = owner
        self.started = datetime.fromisoformat(container.attrs["Created"])
        self._container = container
        self._since = datetime.now(UTC)

    def tail(self, count: int) -> str:
        from docker.errors import APIError

        self._since = datetime.now(UTC)
        # It may have been removed in the meantime.
        with contextlib.suppress(APIError):
            logged: bytes = self._container.logs(tail=count)
            return logged.decode(errors="replace")
        return ""

    def news(self) -> Iterator[str]:
        from docker.errors import APIError

        with contextlib.suppress(APIError):
            for chunk in self._container.logs(stream=True, follow=True, since=self._since):
                yield chunk.decode(errors="replace")


class _LocalSource(_Source):
    kind = "local"

    def __init__(self, log: LocalLog) -> None:
        self.name, self.owner, self.started = log.name, log.owner, log.started
        self._file = log.path.open(errors="replace")
        self._path = log.path

    def tail(self, count: int) -> str:
        lines = self._file.readlines()
        return "".join(lines[len(lines) - min(count, len(lines)) :])

    def news(self) -> Iterator[str]:
        while self._path.exists():
            yield self._file.read()
            time.sleep(_POLL_SECONDS)
        yield self._file.read()

    def close(self) -> None:
        self._file.close()


@contextlib.contextmanager
def _sources() -> Iterator[list[_Source]]:
    """Provide the logs of all sandboxes; without an engine, those of local ones."""
    from coding_gym.sandbox.docker.cleanup import our_containers
    from coding_gym.sandbox.docker.engine import connect_to_engine
    from coding_gym.sandbox.local.logs import local_logs

    found: list[_Source] = []
    with contextlib.ExitStack() as stack:
        for log in local_logs():
            # It may have been removed in the meantime.
            with contextlib.suppress(FileNotFoundError):
                found.append(stack.enter_context(contextlib.closing(_LocalSource(log))))
        with contextlib.suppress(ProviderUnavailableError):
            client = stack.enter_context(contextlib.closing(connect_to_engine()))
            found += [_ContainerSource(container, owner) for container, owner in our_containers(client)]
        yield found


def age(started: datetime) -> str:
    """Return the time since a moment, in the largest unit of which there are at least two."""
    seconds = max(int((datetime.now(UTC) - started).total_seconds()), 0)
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def owner_state(owner: OwnerProcess) -> str:
    """Return whether the process that started a sandbox is alive, gone or elsewhere, on another machine."""
    if owner.is_known_dead():
        return "gone"
    return "alive" if owner.host == type(owner).current().host else "elsewhere"
