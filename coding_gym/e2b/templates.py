"""What E2B sandboxes are made of: images by name, and templates that clients have built."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from coding_gym.e2b.builds import BuildError, Uploads, run_step
from coding_gym.e2b.control_messages import BuildSource, NewTemplate
from coding_gym.e2b.failures import ApiError, RpcError
from coding_gym.e2b.process_messages import Config, StartRequest
from coding_gym.e2b.registry import SandboxRegistry, Snapshot
from coding_gym.e2b.sandbox import E2BSandbox, Lifecycle, timestamp
from coding_gym.e2b.settings import BASE_TEMPLATES, GatewaySettings

__all__ = ["Image", "Template", "Templates"]

_HOME = "/home/user"
_BUILD_SECONDS = 24 * 3600.0
_READY_SECONDS = 60.0
_READY_PAUSE = 0.5
_MAX_LOG = 1000


@dataclass(frozen=True)
class Image:
    """An image that sandboxes start from.

    Attributes:
        image: Its name, None for the default one.
    """

    image: str | None


@dataclass(eq=False)
class Template:
    """A template that a client builds.

    Attributes:
        id: Its id.
        build_id: Id of its build.
        names: Its names.
        source: What sandboxes are made of once it is built.
        environment: Variables of the processes of its sandboxes.
        start: Command that runs in its sandboxes from their start.
        ready: Command that succeeds once a sandbox can be used.
        status: ``waiting``, ``building``, ``ready`` or ``error``.
        reason: Why the build failed.
        log: Messages of the build with their times and levels.
    """

    id: str
    build_id: str
    names: tuple[str, ...]
    source: Image | Snapshot | None = None
    environment: dict[str, str] = field(default_factory=dict)
    start: str | None = None
    ready: str | None = None
    status: str = "waiting"
    reason: str = ""
    log: list[dict[str, str]] = field(default_factory=list)

    def write(self, message: str, level: str = "info") -> None:
        """Add a message to the log."""
        if len(self.log) < _MAX_LOG:
            self.log.append({"timestamp": timestamp(datetime.now(UTC)), "level": level, "message": message})


class Templates:
    """The templates of a gateway.

    Args:
        settings: The gateway's settings.
        registry: Its sandboxes and snapshots.

    Attributes:
        uploads: Files for builds.
    """

    def __init__(self, settings: GatewaySettings, registry: SandboxRegistry) -> None:
        self.uploads = Uploads()
        self._settings = settings
        self._registry = registry
        self._templates: dict[str, Template] = {}
        self._builds: set[asyncio.Task[None]] = set()

    def find(self, name: str) -> Image | Snapshot:
        """Return what a template stands for.

        Raises:
            ApiError: If it does not exist, or is not built.
        """
        template = self.get(name)
        if template is not None:
            source = template.source
            if template.status != "ready" or source is None:
                message = f"template {name[:100]!r} is not ready: its build is in the state {template.status}"
                raise ApiError(400, message)
            if isinstance(source, Snapshot) and source.session.is_lost:
                message = f"template {name[:100]!r} was lost with its sandbox: build it again"
                raise ApiError(404, message)
            return source
        image = self._image(name)
        if image is not None:
            return image
        snapshot = self._registry.snapshot(name)
        if snapshot is None:
            message = f"template {name[:100]!r} not found: build it, or start the server with --template {name[:100]}=IMAGE"
            raise ApiError(404, message)
        return snapshot

    def get(self, name: str) -> Template | None:
        """Return the template with an id or a name that a client has built or builds, None if there is none."""
        for template in reversed(self._templates.values()):
            if name.removesuffix(":default") in (template.id, *template.names):
                return template
        return None

    def exists(self, name: str) -> bool:
        """Return whether there is something with a name."""
        return self.get(name) is not None or self._image(name) is not None or self._registry.snapshot(name) is not None

    def add(self, request: NewTemplate) -> Template:
        """Add a template, which is to be built.

        Raises:
            ApiError: If it has no name.
        """
        name = request.name or request.alias
        if not name:
            raise ApiError(400, "Expected the template to have a name")
        names = (name, *(f"{name.partition(':')[0]}:{tag}" for tag in request.tags))
        template = Template(f"t{secrets.token_hex(10)}", str(uuid.uuid4()), names)
        self._templates[template.id] = template
        return template

    def build(self, template: Template, source: BuildSource) -> None:
        """Begin to build a template."""
        template.status = "building"
        task = asyncio.create_task(self._build(template, source))
        self._builds.add(task)
        task.add_done_callback(self._builds.discard)

    def delete(self, name: str) -> bool:
        """Remove a template or a snapshot; return whether there was one."""
        template = self.get(name)
        if template is not None:
            del self._templates[template.id]
            if isinstance(template.source, Snapshot):
                self._registry.delete_snapshot(template.source)
            return True
        snapshot = self._registry.snapshot(name)
        if snapshot is not None:
            self._registry.delete_snapshot(snapshot)
        return snapshot is not None

    async def begin(self, name: str, sandbox: E2BSandbox) -> None:
        """Start what a template has to be started in its sandboxes, and wait until they are ready.

        Raises:
            ApiError: If they do not become ready.
        """
        template = self.get(name)
        if template is not None:
            try:
                await self._begin(template, sandbox)
            except (BuildError, RpcError) as error:
                self._registry.kill(sandbox)
                message = f"The sandbox does not start: {error}"
                raise ApiError(500, message) from error

    async def close(self) -> None:
        """End all builds."""
        for task in self._builds:
            task.cancel()
        await asyncio.gather(*self._builds, return_exceptions=True)
        self.uploads.close()

    def list_all(self) -> list[dict[str, Any]]:
        """Return what lists of templates say of them."""
        return [
            {
                "templateID": template.id,
                "buildID": template.build_id,
                "names": list(template.names),
                "aliases": [],
                "public": False,
            }
            for template in self._templates.values()
        ]

    def _image(self, name: str) -> Image | None:
        if name in self._settings.images:
            return Image(self._settings.images[name] or self._settings.config.image)
        if name in BASE_TEMPLATES or name == self._settings.config.image:
            return Image(self._settings.config.image)
        return None

    async def _build(self, template: Template, request: BuildSource) -> None:
        sandbox = None
        try:
            base = self.find(request.from_template or request.from_image or BASE_TEMPLATES[0])
            parent = self.get(request.from_template or "")
            template.environment = dict(parent.environment) if parent is not None else {}
            template.start = request.start_cmd or (parent.start if parent is not None else None)
            template.ready = request.ready_cmd or (parent.ready if parent is not None else None)
            sandbox = await self._open(base, template)
            directory = _HOME
            for number, step in enumerate(request.steps, 1):
                template.write(f"[{number}/{len(request.steps)}] {step.type} {' '.join(step.args)[:200]}")
                printed, directory = await run_step(
                    sandbox, step, self.uploads, environment=template.environment, directory=directory
                )
                for line in printed.splitlines()[-50:]:
                    template.write(line)
            snapshot = await self._registry.take_snapshot(sandbox, None, is_listed=False)
            template.source = snapshot
            if template.start is not None or template.ready is not None:
                await self._begin(template, sandbox)
            template.status = "ready"
        except (ApiError, BuildError, RpcError) as error:
            template.reason = str(error)
            template.write(template.reason, "error")
            template.status = "error"
        finally:
            if sandbox is not None:
                self._registry.kill(sandbox)

    async def _open(self, base: Image | Snapshot, template: Template) -> E2BSandbox:
        lifecycle = Lifecycle(template_id=template.id, environment=template.environment, is_listed=False)
        if isinstance(base, Snapshot):
            return await self._registry.create_from(base, lifecycle, timeout=_BUILD_SECONDS)
        return await self._registry.create(lifecycle, base.image, timeout=_BUILD_SECONDS, is_own=False)

    async def _begin(self, template: Template, sandbox: E2BSandbox) -> None:
        if template.start is not None:
            await _start(sandbox, template.start, template.environment)
        if template.ready is None:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_READY_SECONDS):
                while await _exit_code(sandbox, template.ready, template.environment):
                    await asyncio.sleep(_READY_PAUSE)
                return
        message = f"the command {template.ready[:200]!r} did not succeed within {_READY_SECONDS:g} s"
        raise BuildError(message)


async def _start(sandbox: E2BSandbox, command: str, environment: dict[str, str]) -> None:
    events = sandbox.processes.start(_shell(command, environment), timeout=None)
    await anext(events)
    await events.aclose()


async def _exit_code(sandbox: E2BSandbox, command: str, environment: dict[str, str]) -> int:
    code = 0
    async for event in sandbox.processes.start(_shell(command, environment), timeout=_READY_SECONDS):
        code = event["event"].get("end", {}).get("exitCode", 0)
    return code


def _shell(command: str, environment: dict[str, str]) -> StartRequest:
    return StartRequest(process=Config(cmd="/bin/bash", args=["-l", "-c", command], envs=environment), stdin=False)
