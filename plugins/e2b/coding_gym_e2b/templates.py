"""What E2B sandboxes are made of: images by name, and templates that clients have built."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import secrets
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from coding_gym_e2b.builds import BuildError, run_step
from coding_gym_e2b.control_messages import BuildSource, NewTemplate
from coding_gym_e2b.event_log import timestamp
from coding_gym_e2b.failures import ApiError, RpcError
from coding_gym_e2b.image_builds import build_image
from coding_gym_e2b.process_messages import Config, StartRequest
from coding_gym_e2b.registry import SandboxRegistry, Snapshot
from coding_gym_e2b.sandbox import E2BSandbox, Lifecycle, size_of
from coding_gym_e2b.settings import BASE_TEMPLATES, GatewaySettings
from coding_gym_e2b.uploads import Uploads
from coding_gym_e2b.users import account_of

__all__ = ["Image", "Template", "Templates"]

_HOME = "/home/user"
_BUILD_SECONDS = 24 * 3600.0
_READY_SECONDS = 60.0
_READY_PAUSE = 0.5
_MAX_LOG = 1000
_MAX_PAST = 1000
"""Maximum number of builds that are neither usable nor running."""


@dataclass(frozen=True)
class Image:
    """An image that sandboxes start from.

    Attributes:
        image: Its name, None for the default one.
    """

    image: str | None


@dataclass(eq=False)
class Template:
    """A build of a template.

    Attributes:
        id: Id of the template, which its builds share.
        build_id: Its id.
        names: Names of the template.
        source: What sandboxes are made of once it is built; None again once a later build replaces it.
        sandbox: Where it is being built.
        environment: Variables of the processes of its sandboxes.
        start: Command that runs in its sandboxes from their start.
        ready: Command that succeeds once a sandbox can be used.
        status: ``waiting``, ``building``, ``ready`` or ``error``.
        reason: Why the build failed.
        log: Messages of the build with their times and levels.
        created_at: When it was requested.
    """

    id: str
    build_id: str
    names: tuple[str, ...]
    source: Image | Snapshot | None = None
    sandbox: E2BSandbox | None = None
    environment: dict[str, str] = field(default_factory=dict)
    start: str | None = None
    ready: str | None = None
    status: str = "waiting"
    reason: str = ""
    log: list[dict[str, str]] = field(default_factory=list)
    created_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    def fail(self, reason: str) -> None:
        """Record why the build failed."""
        self.reason = reason
        self.write(reason, "error")
        self.status = "error"

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
        # The oldest first.
        self._builds: list[Template] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def create(
        self, name: str, lifecycle: Lifecycle, *, timeout: float, is_own: bool, is_root: bool = False
    ) -> E2BSandbox:
        """Make a sandbox of a template, start what has to be started in it, and wait until it is ready.

        Args:
            name: Id or name of the template, the image or the snapshot.
            lifecycle: What the client wants.
            timeout: Seconds that it has.
            is_own: Whether it gets its own container, if it is made of an image.
            is_root: Whether its programs can be root, if it is made of an image.

        Raises:
            ApiError: If the template does not exist, all places are taken, or the sandbox does not become ready.
        """
        template, source = self._find(name)
        if isinstance(source, Image):
            if template is not None:
                lifecycle = dataclasses.replace(lifecycle, environment={**template.environment, **lifecycle.environment})
            sandbox = await self._registry.create(lifecycle, source.image, timeout=timeout, is_own=is_own, is_root=is_root)
        else:
            sandbox = await self._registry.create_from(source, lifecycle, timeout=timeout)
        if template is not None:
            try:
                await self._begin(template, sandbox)
            except BaseException as error:
                self._registry.kill(sandbox)
                if not isinstance(error, BuildError | RpcError):
                    raise
                message = f"The sandbox does not start: {error}"
                raise ApiError(500, message) from error
        return sandbox

    def get(self, name: str) -> Template | None:
        """Return the newest usable build of the template with an id or a name; if there is none, the newest one, or None."""
        builds = self._builds_of(name)
        return next(
            (build for build in builds if build.source is not None and build.status == "ready"), next(iter(builds), None)
        )

    def get_build(self, name: str, build_id: str) -> Template | None:
        """Return a build of the template with an id or a name, None if there is none."""
        return next((build for build in self._builds_of(name) if build.build_id == build_id), None)

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
        identifier = next((build.id for build in self._builds if build.names[0] == name), f"t{secrets.token_hex(10)}")
        template = Template(identifier, str(uuid.uuid4()), names)
        self._builds.append(template)
        return template

    def build(self, template: Template, source: BuildSource) -> None:
        """Begin to build a template.

        Raises:
            ApiError: If that has begun already.
        """
        if template.status != "waiting":
            raise ApiError(409, "The build has begun already: request another one")
        template.status = "building"
        task = asyncio.create_task(self._build(template, source))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def delete(self, name: str) -> bool:
        """Remove a template with all its builds, or a snapshot; return whether there was one."""
        template = self.get(name)
        if template is not None:
            deleted = [build for build in self._builds if build.id == template.id]
            self._builds = [build for build in self._builds if build.id != template.id]
            for build in deleted:
                self._free(build)
                if build.sandbox is not None:
                    # Its build fails.
                    self._registry.kill(build.sandbox)
            return True
        snapshot = self._registry.snapshot(name)
        if snapshot is not None:
            self._registry.delete_snapshot(snapshot)
        return snapshot is not None

    async def close(self) -> None:
        """End all builds."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.uploads.close()

    def list_all(self) -> list[dict[str, Any]]:
        """Return what lists of templates say of them."""
        return [
            {
                "templateID": template.id,
                "buildID": template.build_id,
                "names": list(template.names),
                "aliases": list(template.names),
                **size_of(self._settings.config),
                "createdAt": timestamp(template.created_at),
                "updatedAt": timestamp(template.created_at),
                "createdBy": None,
                "buildStatus": template.status,
                "buildCount": len(self._builds_of(template.id)),
                "public": False,
            }
            for template in {build.id: build for build in self._builds}.values()
        ]

    def _image(self, name: str) -> Image | None:
        if name in self._settings.images:
            return Image(self._settings.images[name] or self._settings.config.image)
        if name in BASE_TEMPLATES or name == self._settings.config.image:
            return Image(self._settings.config.image)
        return None

    def _builds_of(self, name: str) -> list[Template]:
        """Return the builds of the template with an id or a name, the newest first."""
        name = name.removesuffix(":default")
        return [build for build in reversed(self._builds) if name in (build.id, *build.names)]

    def _find(self, name: str) -> tuple[Template | None, Image | Snapshot]:
        """Return what a template stands for, and its build, if it is one that a client has built.

        Raises:
            ApiError: If it does not exist, or is not built.
        """
        template = self.get(name)
        if template is not None:
            if template.status != "ready" or template.source is None:
                message = f"template {name[:100]!r} is not ready: its build is in the state {template.status}"
                raise ApiError(400, message)
            if isinstance(template.source, Snapshot) and template.source.session.is_lost:
                message = f"template {name[:100]!r} was lost with its sandbox: build it again"
                raise ApiError(404, message)
            return template, template.source
        source = self._image(name) or self._registry.snapshot(name)
        if source is None:
            message = f"template {name[:100]!r} not found: build it, or start the server with --template {name[:100]}=IMAGE"
            raise ApiError(404, message)
        return None, source

    def _find_base(self, request: BuildSource) -> tuple[Template | None, Image | Snapshot]:
        """Return what a build begins with: a template, or an image, which is any if programs can be root.

        Raises:
            ApiError: If it does not exist.
        """
        name = request.from_template or request.from_image or BASE_TEMPLATES[0]
        try:
            return self._find(name)
        except ApiError as error:
            if request.from_template is not None or error.status != HTTPStatus.NOT_FOUND:
                raise
            if not self._settings.root:
                message = (
                    f"the image {name[:100]!r} is not one of this server's: start it with --template {name[:100]}=IMAGE, "
                    "or with --root, whose engine builds templates of any image"
                )
                raise ApiError(HTTPStatus.NOT_FOUND, message) from error
        return None, Image(name)

    async def _build(self, template: Template, request: BuildSource) -> None:
        try:
            await self._run(template, request)
            template.status = "ready"
        except (ApiError, BuildError, RpcError) as error:
            template.fail(str(error))
        except BaseException as error:
            template.fail(f"unexpected error: {type(error).__name__}: {error}")
            raise
        finally:
            if template.sandbox is not None:
                self._registry.kill(template.sandbox)
                template.sandbox = None
            if template.status != "ready":
                self._free(template)
            self._free_replaced()

    async def _run(self, template: Template, request: BuildSource) -> None:
        parent, base = self._find_base(request)
        template.environment = dict(parent.environment) if parent is not None else {}
        template.start = request.start_cmd or (parent.start if parent is not None else None)
        template.ready = request.ready_cmd or (parent.ready if parent is not None else None)
        if self._settings.root and isinstance(base, Image):
            # Sandboxes that continue from a snapshot have no root.
            for step in request.steps:
                if step.type.upper() == "ENV":
                    template.environment.update(zip(step.args[::2], step.args[1::2], strict=False))
            image = await build_image(base.image, request.steps, self.uploads, on_line=template.write)
            self._check_exists(template)
            template.source = Image(image)
            return
        template.sandbox = sandbox = await self._open(base, template)
        directory = _HOME
        for number, step in enumerate(request.steps, 1):
            self._check_exists(template)
            template.write(f"[{number}/{len(request.steps)}] {step.type} {' '.join(step.args)[:200]}")
            printed, directory = await run_step(
                sandbox, step, self.uploads, environment=template.environment, directory=directory
            )
            for line in printed.splitlines()[-50:]:
                template.write(line)
        template.source = await self._registry.take_snapshot(sandbox, None, is_listed=False)
        if template.start is not None or template.ready is not None:
            await self._begin(template, sandbox)
        self._check_exists(template)

    def _check_exists(self, template: Template) -> None:
        if template not in self._builds:
            message = "the template was deleted"
            raise BuildError(message)

    def _free(self, template: Template) -> None:
        source, template.source = template.source, None
        if isinstance(source, Snapshot):
            self._registry.delete_snapshot(source)

    def _free_replaced(self) -> None:
        """Free the builds all of whose names have newer ones, and forget the oldest of those that cannot be used."""
        names: set[str] = set()
        for build in reversed(self._builds):
            if build.status == "ready" and build.source is not None:
                if names.issuperset(build.names):
                    self._free(build)
                names.update(build.names)
        past = [build for build in self._builds if build.source is None and build.status != "building"]
        forgotten = set(past[:-_MAX_PAST])
        self._builds = [build for build in self._builds if build not in forgotten]

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
    events = sandbox.processes.start(_shell(command, environment), timeout=None, user=account_of("", sandbox))
    await anext(events)
    await events.aclose()


async def _exit_code(sandbox: E2BSandbox, command: str, environment: dict[str, str]) -> int:
    code = 0
    request = _shell(command, environment)
    async for event in sandbox.processes.start(request, timeout=_READY_SECONDS, user=account_of("", sandbox)):
        code = event["event"].get("end", {}).get("exitCode", 0)
    return code


def _shell(command: str, environment: dict[str, str]) -> StartRequest:
    return StartRequest(process=Config(cmd="/bin/bash", args=["-l", "-c", command], envs=environment), stdin=False)
