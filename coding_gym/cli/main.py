"""Entry point and commands of the ``coding-gym`` command line."""

from __future__ import annotations

import contextlib
import shutil
import tokenize
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from coding_gym import plugins
from coding_gym.cli import datasets as commands
from coding_gym.cli.audit import audit
from coding_gym.cli.common import PoolOption, Provider, errors_in_red, parse_size_option
from coding_gym.cli.completion import completion
from coding_gym.cli.evaluate import evaluate
from coding_gym.cli.logs import age, logs, owner_state
from coding_gym.cli.run import ARGUMENTS_AFTER_FILE, run
from coding_gym.cli.serve import serve
from coding_gym.cli.shell import shell
from coding_gym.cli.suites import suites
from coding_gym.errors import ConfigurationError
from coding_gym_server.protocol.grading import GradingMode

if TYPE_CHECKING:
    import docker
    from docker.models.containers import Container
    from rich.console import Console

    from coding_gym.cli.doctor import Diagnosis

__all__ = ["app"]

_WIDTH_WITHOUT_TERMINAL = 160
_CONFLICT = 409


class _Commands(TyperGroup):
    """The commands. That of a plug-in may look like an option: ``serve --e2b`` is the command ``serve-e2b``."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        for option in args[1:]:
            if option.startswith("--") and f"{args[0]}{option[1:]}" in self.commands:
                rest = list(args)
                rest.remove(option)
                return super().resolve_command(ctx, [f"{args[0]}{option[1:]}", *rest[1:]])
        return super().resolve_command(ctx, args)


app = typer.Typer(cls=_Commands, no_args_is_help=True, pretty_exceptions_show_locals=False)
app.command(context_settings=ARGUMENTS_AFTER_FILE)(run)
for _command in (shell, serve, audit, evaluate, logs, completion, commands.collect, commands.replay, commands.export):
    app.command()(_command)
app.add_typer(suites, name="suites")
for _name, _added in plugins.load_all("commands").items():
    if isinstance(_added, typer.Typer):
        app.add_typer(_added, name=_name)
    else:
        app.command(_name)(_added)


def _show_version(is_requested: bool) -> None:
    if is_requested:
        from coding_gym import __version__

        typer.echo(f"coding-gym {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Run code in sandboxes, serve and manage them, grade submissions and collect episodes."""


@app.command()
def build_image(
    build_arg: Annotated[
        list[str] | None,
        typer.Option(
            "--build-arg",
            metavar="NAME=VALUE",
            help="Build argument such as WITH_OPENGL=1, or WITH_GUI= to omit the screen; repeatable.",
        ),
    ] = None,
    languages: Annotated[
        str, typer.Option("--languages", metavar="NAMES", help="Languages of programs to install too, such as cpp,java.")
    ] = "",
    tag: Annotated[str | None, typer.Option("--tag", "-t", help="Additional name for the image, to pass as image=.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Rebuild an existing image from scratch.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the image's name.")] = False,
) -> None:
    """Build the image of the docker provider, and the volume by which other images get its server, unless they exist."""
    from coding_gym.cli.build_progress import BuildProgress
    from coding_gym.sandbox.config import SandboxConfig
    from coding_gym.sandbox.docker.derived_images import ensure_image_with_packages
    from coding_gym.sandbox.docker.images import build_image as build
    from coding_gym.sandbox.docker.images import tag_image
    from coding_gym.sandbox.docker.runtime import ensure_runtime

    arguments = dict(_name_and_value(argument) for argument in build_arg or ())
    try:
        names = tuple(name.strip() for name in languages.split(",") if name.strip())
        config = SandboxConfig(provider="docker", languages=names)
    except ConfigurationError as error:
        raise typer.BadParameter(str(error), param_hint="--languages") from error
    with _engine() as client:
        with BuildProgress(_console(), quiet=quiet) as progress:
            try:
                name = build(client, arguments=arguments, on_line=progress.show, force=force)
            except ValueError as error:
                raise typer.BadParameter(str(error), param_hint="--build-arg") from error
        if not progress.has_begun and not quiet:
            typer.echo("The image exists already:")
        if not arguments:
            ensure_runtime(client)
        if names:
            name = ensure_image_with_packages(client, replace(config, image=name))
        if tag is not None:
            name = tag_image(client, name, tag)
    typer.echo(name)


def _name_and_value(argument: str) -> tuple[str, str]:
    name, equals, value = argument.partition("=")
    if not equals:
        message = f"{argument!r} is not NAME=VALUE."
        raise typer.BadParameter(message, param_hint="--build-arg")
    return name, value


@app.command()
def ps() -> None:
    """List this package's containers, and whether their owner processes are alive."""
    from rich.markup import escape
    from rich.table import Table

    from coding_gym.sandbox.docker.cleanup import (
        our_containers,
    )

    with _engine() as client:
        found = our_containers(client)
    if not found:
        typer.echo("There are no containers.")
        return
    table = Table("name", "image", "status", "age", "owner pid", "owner")
    for container, owner in found:
        table.add_row(
            str(container.name),
            escape(container.attrs["Config"]["Image"]),
            container.status,
            _age(container),
            str(owner.pid),
            owner_state(owner),
        )
    _console().print(table)


@app.command()
def prune(
    everything: Annotated[bool, typer.Option("--all", help="Also containers whose owner is alive or on another host.")] = False,
    images: Annotated[
        bool,
        typer.Option(
            "--images", help="Also images and volumes of other versions, and images of Dockerfiles, that no container uses."
        ),
    ] = False,
) -> None:
    """Remove the containers and runtime directories of processes that have ended."""
    from coding_gym.sandbox.docker.cleanup import (
        our_containers,
        remove_container,
        remove_orphans,
    )
    from coding_gym.sandbox.ownership import remove_orphaned_directories

    # First, because it does not require an engine.
    remove_orphaned_directories()
    with _engine() as client:
        removed = [f"container {name}" for name in remove_orphans(client)]
        if everything:
            removed += [f"container {container.name}" for container, _ in our_containers(client) if remove_container(container)]
        if images:
            removed += [f"image {tag}" for tag in _remove_old_images(client)]
            removed += [f"volume {name}" for name in _remove_old_runtimes(client)]
    for entry in removed:
        typer.echo(f"removed {entry}")
    if not removed:
        typer.echo("There was nothing to remove.")


@app.command()
def doctor(
    runtime: Annotated[str | None, typer.Option(help="OCI runtime of the engine, such as runsc.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Start a sandbox of each provider and show how its sessions are isolated. The exit code is 1 if none works."""
    from coding_gym.cli.doctor import diagnose

    with _console().status("Starting sandboxes ..."):
        # Few machines have Apptainer, and its first sandbox takes minutes.
        apptainer = ["apptainer"] if shutil.which("apptainer") else []
        found = [diagnose(provider, runtime=runtime) for provider in ("docker", *apptainer, "local")]
    if json:
        typer.echo(dumps([diagnosis.as_dict() for diagnosis in found], indent=2))
    else:
        for diagnosis in found:
            _show_diagnosis(diagnosis)
        chosen = next(
            (diagnosis.provider for diagnosis in found if diagnosis.works and diagnosis.provider != "apptainer"), None
        )
        if chosen:
            typer.echo(f"provider='auto' is {chosen} here.")
        elif not any(diagnosis.works for diagnosis in found):
            typer.echo("No sandbox is available here.")
    raise typer.Exit(0 if any(diagnosis.works for diagnosis in found) else 1)


@app.command()
def grade(
    samples: Annotated[
        Path,
        typer.Argument(
            exists=True, dir_okay=False, readable=True, help="JSON Lines or array of task_id and completion, possibly .gz."
        ),
    ],
    suite: Annotated[
        str, typer.Option(metavar="SUITE", help="humaneval, mbpp:PATH, hf:NAME, a .jsonl file, or a bundled suite.")
    ],
    grading: Annotated[
        GradingMode | None, typer.Option(help="Where the tests run; by default, what the suite says.", show_default=False)
    ] = None,
    k: Annotated[str, typer.Option("--k", metavar="K,...", help="Values of k for pass@k, separated by commas.")] = "1,10,100",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", dir_okay=False, help="Output file; SAMPLES_results.jsonl by default.")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Number of concurrent gradings; two per core by default.")] = None,
    provider: Annotated[Provider, typer.Option(help="Sandbox provider.")] = Provider.AUTO,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not show progress.")] = False,
    pool: PoolOption = None,
) -> None:
    """Grade samples, write one result per line, and print pass@k. The exit code is 0 even if samples fail."""
    from coding_gym.cli.grade import grade_samples, parse_ks

    with errors_in_red():
        grade_samples(
            _console(),
            samples,
            suite=suite,
            grading=grading,
            ks=parse_ks(k),
            output=output,
            workers=workers,
            progress=not quiet,
            pool=pool,
            provider=provider.value,
        )


@app.command()
def record(
    program: Annotated[Path, typer.Argument(exists=True, dir_okay=False, readable=True, help="Python program with windows.")],
    output: Annotated[
        Path, typer.Argument(dir_okay=False, help="Output file: .mp4, .webm, .gif, or .png for the last picture.")
    ],
    fps: Annotated[float, typer.Option(min=1, max=120, help="Frames per second.")] = 30,
    screen: Annotated[str, typer.Option(metavar="WxH", help="Width and height of the screen in pixels.")] = "800x600",
    seconds: Annotated[float, typer.Option(min=0.1, help="Stop the program after this many seconds.")] = 10,
    window_manager: Annotated[bool, typer.Option("--window-manager", help="Run a window manager on the screen.")] = False,
    provider: Annotated[Provider, typer.Option(help="Sandbox provider.")] = Provider.AUTO,
    packages: Annotated[
        list[str] | None, typer.Option("--packages", metavar="NAME", help="Package to install; repeatable.")
    ] = None,
    system_packages: Annotated[
        list[str] | None, typer.Option("--system-packages", metavar="NAME", help="Debian package to install; repeatable.")
    ] = None,
) -> None:
    """Run a program in a sandbox and record its screen to a file.

    The exit code is the program's; 0 if it was stopped in time, and 1 if there is no file.
    """
    from coding_gym.cli.record import record_program
    from coding_gym.media.export import check_movie_path, write_movie

    with errors_in_red():
        check_movie_path(output)
        recording = record_program(
            _source(program),
            seconds=seconds,
            rate=fps,
            screen=parse_size_option(screen),
            window_manager=window_manager,
            provider=provider.value,
            packages=packages or (),
            system_packages=system_packages or (),
        )
        typer.echo(recording.stdout, nl=False)
        typer.echo(recording.stderr, nl=False, err=True)
        typer.echo(recording.ending, err=True)
        count = write_movie(output, recording.video, rate=fps, end=recording.end)
    typer.echo(f"wrote {output}: {count} frames, {screen}, {output.stat().st_size / 1e3:.0f} kB", err=True)
    raise typer.Exit(0 if recording.was_stopped else recording.exit_code)


def _show_diagnosis(diagnosis: Diagnosis) -> None:
    from rich.markup import escape
    from rich.table import Table

    from coding_gym.cli.doctor import MEANINGS

    seconds = f", started in {diagnosis.start_seconds:.1f} s" if diagnosis.start_seconds is not None else ""
    table = Table("", "", "", title=f"{diagnosis.provider}: {'works' if diagnosis.works else 'does not work'}{seconds}")
    table.show_header = False
    for name, value in (*diagnosis.facts.items(), *diagnosis.isolation.items()):
        if value == "":
            continue
        shown = ", ".join(value) if isinstance(value, list) else {True: "yes", False: "no"}.get(value, str(value))
        table.add_row(name.replace("_", " "), escape(shown), MEANINGS.get(name, ""))
    if diagnosis.problem:
        table.add_row("problem", escape(diagnosis.problem))
    _console().print(table)


def _source(program: Path) -> str:
    # Honor an encoding declaration, as Python does.
    try:
        with tokenize.open(program) as file:
            return file.read()
    except (SyntaxError, UnicodeError) as error:
        message = f"{program} is not a Python program: {error}"
        raise typer.BadParameter(message) from None


def _console() -> Console:
    from rich.console import Console

    console = Console(highlight=False)
    # In a pipe, do not truncate names to the default width of 80 columns.
    return console if console.is_terminal else Console(highlight=False, width=_WIDTH_WITHOUT_TERMINAL)


@contextlib.contextmanager
def _engine() -> Iterator[docker.DockerClient]:
    from coding_gym.sandbox.docker.engine import (
        connect_to_engine,
    )

    with errors_in_red(), contextlib.closing(connect_to_engine()) as client:
        yield client


def _age(container: Container) -> str:
    return age(datetime.fromisoformat(container.attrs["Created"]))


def _remove_old_runtimes(client: docker.DockerClient) -> Iterator[str]:
    from docker.errors import APIError

    from coding_gym.sandbox.docker.runtime import RUNTIME_PREFIX, runtime_name

    for volume in client.volumes.list(filters={"name": RUNTIME_PREFIX}):
        if not volume.name.startswith(RUNTIME_PREFIX) or volume.name.startswith(runtime_name()):
            continue
        try:
            volume.remove()
        except APIError as error:
            # A container uses it.
            if error.status_code != _CONFLICT:
                raise
        else:
            yield volume.name


def _remove_old_images(client: docker.DockerClient) -> Iterator[str]:
    """Remove images of other versions, and those that were built from Dockerfiles of users."""
    from docker.errors import APIError

    from coding_gym.sandbox.docker.dockerfiles import BUILT_REPOSITORY
    from coding_gym.sandbox.docker.images import IMAGE_REPOSITORY, image_name

    current = image_name()
    used = {container["ImageID"] for container in client.api.containers(all=True)}
    for image in (image for repository in (IMAGE_REPOSITORY, BUILT_REPOSITORY) for image in client.images.list(repository)):
        if image.id in used:
            continue
        for tag in image.tags:
            # Podman prefixes local images with the pseudo-registry ``localhost/``.
            name = tag.removeprefix("localhost/")
            is_current = name == current or name.startswith(f"{current}-")
            if is_current or name.rpartition(":")[0] not in (IMAGE_REPOSITORY, BUILT_REPOSITORY):
                continue
            try:
                client.images.remove(tag)
            except APIError as error:
                # A container may have started to use the image since the check.
                if error.status_code != _CONFLICT:
                    raise
            else:
                yield tag
