"""Builds of templates: the instructions of a template are run in a session, whose state sandboxes then continue from."""

from __future__ import annotations

import base64
import posixpath
from collections.abc import Mapping

from coding_gym_e2b.control_messages import BuildStep
from coding_gym_e2b.failures import Code, RpcError
from coding_gym_e2b.process_messages import Config, StartRequest
from coding_gym_e2b.processes import INTERPRETER
from coding_gym_e2b.sandbox import E2BSandbox
from coding_gym_e2b.uploads import Uploads
from coding_gym_e2b.users import check_user

__all__ = ["BuildError", "run_step"]

_STEP_SECONDS = 3600.0
_SHOWN_CHARS = 2000
_ARCHIVE = "/tmp/.template-files.tar"
_COPY = """
import glob, os, shutil, sys, tarfile, tempfile
archive, source, target, mode = sys.argv[1:]
with tempfile.TemporaryDirectory() as folder:
    with tarfile.open(archive) as files:
        # Into the client's own sandbox, with its permissions; links may lead anywhere.
        files.extractall(folder, **({"filter": "fully_trusted"} if hasattr(tarfile, "data_filter") else {}))
    found = sorted(glob.glob(os.path.join(folder, source), include_hidden=True)) or sys.exit(f"nothing matches {source}")
    into = target.endswith("/") or os.path.isdir(target) or len(found) > 1 or source != glob.escape(source)
    for path in found:
        if os.path.isdir(path):
            name = os.path.join(target, os.path.basename(path)) if len(found) > 1 else target
            shutil.copytree(path, name, symlinks=True, dirs_exist_ok=True)
        else:
            name = os.path.join(target, os.path.basename(path)) if into else target
            os.makedirs(os.path.dirname(os.path.abspath(name)), exist_ok=True)
            shutil.copy2(path, name, follow_symlinks=False)
    for parent, _, names in os.walk(target) if mode else ():
        for name in names:
            os.chmod(os.path.join(parent, name), int(mode, 8))
    if mode and os.path.isfile(target):
        os.chmod(target, int(mode, 8))
os.unlink(archive)
"""


class BuildError(Exception):
    """A step of a build failed.

    Args:
        message: What is wrong.
    """


async def run_step(
    sandbox: E2BSandbox, step: BuildStep, uploads: Uploads, *, environment: dict[str, str], directory: str
) -> tuple[str, str]:
    """Run an instruction of a template.

    Args:
        sandbox: Where to run it.
        step: The instruction.
        uploads: The uploaded files.
        environment: The variables so far, to which it may add.
        directory: The working directory.

    Returns:
        What it printed, and the working directory of the next instruction.

    Raises:
        BuildError: If it fails.
    """
    try:
        match step.type.upper(), step.args:
            case "ENV", pairs:
                environment.update(zip(pairs[::2], pairs[1::2], strict=False))
            case "WORKDIR", [path, *_]:
                directory = posixpath.join(directory, path)
                try:
                    await sandbox.files.call("make_directory", path=directory)
                except RpcError as error:
                    if error.code is not Code.ALREADY_EXISTS:
                        raise
            case "USER", [name, *_]:
                check_user(name)
            case "RUN", [command, *rest]:
                try:
                    check_user(rest[0] if rest else "")
                    return await _run(sandbox, ["/bin/bash", "-l", "-c", command], environment, directory), directory
                except (BuildError, RpcError) as error:
                    reason = f"{error.code}: {error}" if isinstance(error, RpcError) else str(error)
                    message = f"failed to run command {command[:_SHOWN_CHARS]!r}: command failed: {reason}"
                    raise BuildError(message) from error
            case "COPY", [source, target, *rest]:
                check_user(rest[0].partition(":")[0] if rest else "")
                if (digest := step.files_hash or "") not in uploads:
                    message = "the files have not been uploaded"
                    raise BuildError(message)
                async with uploads.read(digest) as parts:
                    await sandbox.files.write(_ARCHIVE, parts, {})
                mode = rest[1] if len(rest) > 1 else ""
                arguments = [_ARCHIVE, source, posixpath.join(directory, target), mode]
                return await _run(sandbox, [INTERPRETER, "-I", "-c", _COPY, *arguments], environment, directory), directory
            case kind, _:
                message = f"the instruction {kind[:50]!r} is not supported"
                raise BuildError(message)
    except RpcError as error:
        raise BuildError(str(error)) from error
    return "", directory


async def _run(sandbox: E2BSandbox, command: list[str], environment: Mapping[str, str], directory: str) -> str:
    output = bytearray()
    process = Config(cmd=command[0], args=command[1:], envs=dict(environment), cwd=directory)
    async for event in sandbox.processes.start(StartRequest(process=process, stdin=False), timeout=_STEP_SECONDS):
        match event["event"]:
            case {"data": data}:
                output += b"".join(base64.b64decode(part) for part in data.values())
                del output[: -4 * _SHOWN_CHARS]
            case {"end": {"exitCode": code}}:
                text = output.decode(errors="replace")
                if code:
                    message = f"exit status {code}: {text[-_SHOWN_CHARS:]}"
                    raise BuildError(message)
                return text
    return ""
