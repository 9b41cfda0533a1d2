"""Builds of templates by the engine: the instructions of a template become a Dockerfile, and its files the build context."""

from __future__ import annotations

import asyncio
import json
import os
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from coding_gym.errors import CodingGymError
from coding_gym.sandbox.docker.dockerfiles import built_image
from coding_gym.sandbox.docker.engine import connect_to_engine
from coding_gym.sandbox.docker.images import ensure_image
from coding_gym_e2b.builds import BuildError
from coding_gym_e2b.control_messages import BuildStep
from coding_gym_e2b.uploads import Uploads
from coding_gym_e2b.users import DEFAULT_USER

__all__ = ["build_image"]

_PREPARE = """\
FROM {base}
USER root
RUN if ! grep -q '^user:' /etc/passwd; then \\
        id=1000; while grep -q ":$id:" /etc/passwd /etc/group; do id=$((id + 1)); done; \\
        shell=/bin/sh; if [ -e /bin/bash ]; then shell=/bin/bash; fi; \\
        echo "user:x:$id:" >> /etc/group; echo "user:x:$id:$id::/home/user:$shell" >> /etc/passwd; \\
    fi; mkdir -p /home/user && chown user:user /home/user
WORKDIR /home/user
"""
"""Beginning of all Dockerfiles: the user that instructions run as, unless they name another one."""


async def build_image(base: str | None, steps: Sequence[BuildStep], uploads: Uploads, *, on_line: Callable[[str], None]) -> str:
    """Build the image of a template, unless the engine has it, and return its name.

    Args:
        base: Name of an image that the engine has or can pull; None for the default one.
        steps: The instructions.
        uploads: The uploaded files.
        on_line: Called with each line of the log, in another thread.

    Raises:
        BuildError: If an instruction is not supported, or fails.
    """
    with tempfile.TemporaryDirectory() as directory:
        context = Path(directory)
        instructions = []
        for number, step in enumerate(steps):
            if step.type.upper() == "COPY":
                await _unpack(context / f"files-{number}", step, uploads)
            instructions += _instructions(step, context / f"files-{number}")
        return await asyncio.to_thread(_build, base, context, instructions, on_line)


def _build(base: str | None, context: Path, instructions: list[str], on_line: Callable[[str], None]) -> str:
    client = connect_to_engine()
    try:
        name = ensure_image(client, base)
        if not instructions:
            return name
        lines = [_PREPARE.format(base=name), *instructions]
        (context / "Dockerfile").write_text("\n".join(lines) + "\n", encoding="utf-8")
        return built_image(client, context, on_line=on_line)
    except CodingGymError as error:
        raise BuildError(str(error)) from error
    finally:
        client.close()


async def _unpack(target: Path, step: BuildStep, uploads: Uploads) -> None:
    """Unpack the uploaded files of an instruction, with their mode if it has one."""
    digest = step.files_hash or ""
    if digest not in uploads:
        message = "the files have not been uploaded"
        raise BuildError(message)
    with tempfile.TemporaryFile() as archive:
        async with uploads.read(digest) as parts:
            async for part in parts:
                archive.write(part)
        archive.seek(0)
        try:
            with tarfile.open(fileobj=archive) as files:
                files.extractall(target, filter="data")
        except (tarfile.TarError, OSError) as error:
            message = f"the uploaded files cannot be unpacked: {error}"
            raise BuildError(message) from error
    mode = step.args[3] if len(step.args) > 3 else ""
    for parent, _, names in os.walk(target) if mode else ():
        for name in names:
            path = Path(parent, name)
            if not path.is_symlink():
                path.chmod(int(mode, 8))


def _instructions(step: BuildStep, files: Path) -> list[str]:
    """Return the instructions of a Dockerfile for one of a template.

    Raises:
        BuildError: If it is not supported.
    """
    match step.type.upper(), step.args:
        case "ENV", pairs:
            return [f"ENV {name}={_quoted(value)}" for name, value in zip(pairs[::2], pairs[1::2], strict=False)]
        case "WORKDIR", [path, *_]:
            return [f"WORKDIR {_quoted(path)}"]
        case "USER", [name, *_]:
            return [f"USER {_quoted(name)}"]
        case "RUN", [command, *rest]:
            user = (rest[0] if rest else "") or DEFAULT_USER
            return [f"USER {_quoted(user)}", f"RUN {json.dumps(['/bin/bash', '-l', '-c', command])}"]
        case "COPY", [source, target, *rest]:
            found = sorted(files.glob(source.strip("/") or "."))
            if not found:
                message = f"nothing matches {source}"
                raise BuildError(message)
            # Of several entries, or of a pattern, the target is a directory.
            into = "/" if (len(found) > 1 or "*" in source) and not target.endswith("/") else ""
            owner = (rest[0] if rest else "") or DEFAULT_USER
            paths = [f"{files.name}/{path.relative_to(files)}" for path in found]
            return [f"COPY --chown={_quoted(owner)} {json.dumps([*paths, f'{target}{into}'])}"]
    message = f"the instruction {step.type[:50]!r} is not supported"
    raise BuildError(message)


def _quoted(value: str) -> str:
    """Return a value that Docker takes literally.

    Raises:
        BuildError: If it has several lines.
    """
    if "\n" in value:
        message = f"expected a value of one line, got {value[:50]!r}"
        raise BuildError(message)
    return '"' + "".join(f"\\{character}" if character in '\\"$' else character for character in value) + '"'
