"""Task folders of Terminal-Bench: ``task.yaml``, a Dockerfile, ``run-tests.sh``, ``tests/`` and ``solution.sh``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal

import msgspec

from coding_gym.errors import ConfigurationError
from coding_gym.tasks.loaders.compose import ComposeService, decode_yaml, find_compose_file, read_service
from coding_gym.tasks.loaders.dockerfiles import has_entry_point
from coding_gym.tasks.loaders.folder_files import FolderFile, files_below, reference_script, text_of
from coding_gym.tasks.repository.tests import RepositoryCommand, RepositoryTests
from coding_gym.tasks.task import Task
from coding_gym_server.protocol.errors import reason_of

__all__ = ["terminal_bench_task"]

_SOLUTIONS = "/oracle"
_LOGS = ("/logs", "/agent-logs")
_OUTPUT = "/logs/tests.log"
_TEST = f"""# /tests/run-tests.sh
bash -ic 'bash /tests/run-tests.sh' >{_OUTPUT} 2>&1 </dev/null
code=$?
cat {_OUTPUT}
exit $code"""
"""An interactive shell reads ``~/.bashrc``, as that of Terminal-Bench's terminal does."""

_SOLUTION = """bash -ic 'bash "$0"' "$solution"/solution.sh"""
_DISK = "10g"
_VARIABLES = {
    "T_BENCH_TEST_DIR": "/tests",
    "T_BENCH_CONTAINER_LOGS_PATH": _LOGS[0],
    "T_BENCH_CONTAINER_AGENT_LOGS_PATH": _LOGS[1],
}
_KEYS = re.compile(r"(?:[CMS]-.|Enter|Escape|Tab|Space|Up|Down|Left|Right|BSpace)")
_BASE = "base"


class _Description(msgspec.Struct, forbid_unknown_fields=True):
    key: str
    description: str


class _TerminalBench(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Schema of task.yaml."""

    instruction: str = _BASE
    # Of older folders: several instructions, one of which is the task's.
    descriptions: list[_Description] = []
    parser_name: Literal["pytest", "swebench", "swelancer", "mlebench", "sweperf"] = "pytest"
    max_agent_timeout_sec: float = 360.0
    max_test_timeout_sec: float = 60.0
    run_tests_in_same_shell: bool = False
    disable_asciinema: bool = False
    # Metadata.
    author: Any = None
    author_name: Any = None
    author_email: Any = None
    difficulty: Any = None
    category: Any = None
    tags: Any = None
    estimated_duration_sec: Any = None
    expert_time_estimate_min: Any = None
    junior_time_estimate_min: Any = None
    # Of DevEval.
    language: Any = None
    env_name: Any = None


_METADATA = (
    *("author", "author_name", "author_email", "difficulty", "category", "tags", "estimated_duration_sec"),
    *("expert_time_estimate_min", "junior_time_estimate_min", "language", "env_name"),
)


class _Command(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A command of solution.yaml."""

    command: str
    min_timeout_sec: float = 0.0
    max_timeout_sec: float = 180.0
    block: bool = False
    append_enter: bool = True


def terminal_bench_task(folder: Path) -> Task:
    """Return the task of a folder.

    Raises:
        ConfigurationError: If the folder lacks a part, or uses what is not supported; the message names it.
    """
    config = _decode(folder / "task.yaml")
    compose = find_compose_file(folder)
    service = ComposeService() if compose is None else read_service(compose, _VARIABLES)
    environment = {"TEST_DIR": _VARIABLES["T_BENCH_TEST_DIR"], **service.environment}
    dockerfile = folder / "Dockerfile"
    if not service.image and not dockerfile.exists():
        message = f"Expected {folder} to have a Dockerfile, or a docker-compose.yaml with the name of an image"
        raise ConfigurationError(message)
    if not service.image and has_entry_point(text_of(dockerfile)):
        message = f"{dockerfile} is not supported: it has an ENTRYPOINT, which sessions do not run"
        raise ConfigurationError(message)
    files = {f"/tests/{path}": file.for_tests for path, file in files_below(folder / "tests").items()}
    return Task(
        id=folder.name,
        prompt=_instruction(folder, config),
        tests=RepositoryTests(
            image=service.image or str(folder),
            directory=service.directory,
            submission="script",
            submission_timeout=config.max_agent_timeout_sec,
            writable=(_SOLUTIONS, *_LOGS),
            files={f"{_LOGS[0]}/": "", "/tests/run-tests.sh": text_of(folder / "run-tests.sh"), **files},
            commands=(
                RepositoryCommand(command=_TEST, results="pytest summary", timeout=config.max_test_timeout_sec, user="root"),
            ),
            environment=environment,
            cpu=service.cpu,
            mem=service.mem,
            disk=_DISK,
            network=service.network,
        ),
        reference=_reference(folder, environment),
        metadata={
            "source": "Terminal-Bench",
            **{name: value for name in _METADATA if (value := getattr(config, name)) is not None},
        },
    )


def _decode(path: Path) -> _TerminalBench:
    try:
        config = msgspec.convert(decode_yaml(path), _TerminalBench)
    except msgspec.ValidationError as error:
        message = f"{path}: {reason_of(error)}"
        raise ConfigurationError(message) from error
    # solution.sh runs in a child shell, so it does not change the shell that the tests share with it.
    if (
        config.run_tests_in_same_shell
        and not (path.parent / "solution.sh").exists()
        and (path.parent / "solution.yaml").exists()
    ):
        message = f"{path}: run_tests_in_same_shell is not supported: the shell of solution.yaml ends with its last command"
        raise ConfigurationError(message)
    if config.parser_name != "pytest":
        message = f"{path}: parser_name {config.parser_name!r} is not supported: expected 'pytest'"
        raise ConfigurationError(message)
    return config


def _instruction(folder: Path, config: _TerminalBench) -> str:
    described = {each.key: each.description for each in config.descriptions}
    if described:
        text = described.get(config.instruction, described.get(_BASE))
        if text is None:
            message = f"Expected the descriptions of {folder / 'task.yaml'} to have the key {config.instruction!r}"
            raise ConfigurationError(message)
        return text
    return config.instruction


def _reference(folder: Path, environment: dict[str, str]) -> str | None:
    if (folder / "solution.sh").exists():
        text = text_of(folder / "solution.sh")
    elif (folder / "solution.yaml").exists():
        text = _script_of(folder / "solution.yaml")
    else:
        return None
    return reference_script(
        {"solution.sh": FolderFile(text.encode())},
        into=_SOLUTIONS,
        command=_SOLUTION,
        log="/agent-logs/solution.log",
        directories=_LOGS,
        environment=environment,
    )


def _script_of(path: Path) -> str:
    """Return the script of a list of commands.

    Raises:
        ConfigurationError: If it is not one, or some of them are keys for an interactive program.
    """
    try:
        commands = msgspec.convert(decode_yaml(path), list[_Command])
    except msgspec.ValidationError as error:
        message = f"{path}: {reason_of(error)}"
        raise ConfigurationError(message) from error
    lines = []
    for number, command in enumerate(commands):
        if not command.append_enter or _KEYS.fullmatch(command.command.strip()):
            message = (
                f"{path}: [{number}].command {command.command[:50]!r} is not supported: these are keys for an interactive "
                "program, and a solution is a script"
            )
            raise ConfigurationError(message)
        lines.append(command.command)
        if command.min_timeout_sec and not command.block:
            lines.append(f"sleep {command.min_timeout_sec:g}")
    return "\n".join([*lines, ""])
