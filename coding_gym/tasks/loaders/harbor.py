"""Task folders of Harbor: ``task.toml``, ``instruction.md``, ``environment/``, ``tests/test.sh`` and ``solution/``."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from coding_gym.errors import ConfigurationError
from coding_gym.tasks.loaders.compose import ComposeService, find_compose_file, read_service, size_of
from coding_gym.tasks.loaders.dockerfiles import has_entry_point
from coding_gym.tasks.loaders.folder_files import files_below, reference_script, text_of
from coding_gym.tasks.loaders.rows import plain
from coding_gym.tasks.repository.tests import RepositoryCommand, RepositoryTests
from coding_gym.tasks.task import Task
from coding_gym_server.protocol.errors import reason_of
from coding_gym_server.protocol.grading import FileContent, GradingMode

__all__ = ["harbor_task"]

_LOGS = ("/logs/agent", "/logs/artifacts", "/logs/verifier")
_REWARD = "/logs/verifier/reward.txt"
_REWARDS = "/logs/verifier/reward.json"
_OUTPUT = "/logs/verifier/test-stdout.txt"
_TEST = f"""# /tests/test.sh
rm -rf {_REWARD} {_REWARDS}
(/tests/test.sh) >{_OUTPUT} 2>&1 </dev/null
code=$?
cat {_OUTPUT}
[ ! -e {_REWARDS} ] || mv -f {_REWARDS} {_REWARD}
exit $code"""
"""As Harbor's verifier does it, for which reward.json precedes reward.txt."""

_METADATA = ("author", "author_name", "author_email", "category", "description", "difficulty", "keywords", "tags")
_DEFAULT_TIMEOUT = 1800.0
_STORAGE = "10g"
"""As Harbor had it before it left that to its environments."""

_CANARY = re.compile(r"(?:<!--.*canary.*-->|#.*canary.*)", re.IGNORECASE)
_VARIABLE = re.compile(r"\$\{[^}:]+(?::-(.*))?\}", re.DOTALL)
_PUBLIC = "public"
_NetworkMode = Literal["no-network", "public", "allowlist"]


class _Section(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A section of task.toml."""

    def refused(self) -> Iterator[tuple[str, str]]:
        """Yield the names of fields with content that is not supported, and why it is not."""
        yield from ()


class _Agent(_Section):
    timeout_sec: float = _DEFAULT_TIMEOUT
    user: str | int | None = None
    network_mode: _NetworkMode | None = None
    allowed_hosts: list[str] | None = None

    def refused(self) -> Iterator[tuple[str, str]]:
        if self.user is not None:
            yield "user", "submissions run as the user of the image"


class _Environment(_Section):
    docker_image: str | None = None
    build_timeout_sec: float = 600.0
    os: str = "linux"
    cpus: Annotated[float, msgspec.Meta(gt=0)] | None = None
    memory_mb: Annotated[int, msgspec.Meta(gt=0)] | None = None
    memory: str | None = None
    storage_mb: Annotated[int, msgspec.Meta(gt=0)] | None = None
    storage: str | None = None
    gpus: int | None = None
    gpu_types: list[str] | None = None
    tpu: Any = None
    mcp_servers: list[Any] = []
    env: dict[str, str] = {}
    skills_dir: str | None = None
    healthcheck: Any = None
    workdir: str | None = None
    network_mode: _NetworkMode | None = None
    allowed_hosts: list[str] | None = None
    allow_internet: bool | None = None

    def refused(self) -> Iterator[tuple[str, str]]:
        if self.os.lower() != "linux":
            yield "os", "sessions have Linux"
        if self.gpus:
            yield "gpus", "sessions have no GPU"
        if self.tpu is not None:
            yield "tpu", "sessions have no TPU"
        if self.mcp_servers:
            yield "mcp_servers", "sessions have no MCP servers"
        if self.skills_dir is not None:
            yield "skills_dir", "there is no agent whose skills these could be"
        if self.healthcheck is not None:
            yield "healthcheck", "a session is used as soon as it has begun"
        if self.network_mode == "allowlist" or self.allowed_hosts:
            yield "network_mode", "sessions have a network to all hosts, or none"

    @property
    def has_network(self) -> bool:
        """Whether its sessions have a network, as they have by default."""
        if self.network_mode is not None:
            return self.network_mode == _PUBLIC
        return self.allow_internet is not False

    @property
    def mem(self) -> str | None:
        """The memory that its sessions need."""
        if self.memory_mb is not None:
            return f"{self.memory_mb}m"
        return None if self.memory is None else size_of(self.memory)

    @property
    def disk(self) -> str:
        """The size of the files that its sessions may write."""
        if self.storage_mb is not None:
            return f"{self.storage_mb}m"
        return _STORAGE if self.storage is None else size_of(self.storage)


class _Verifier(_Section):
    timeout_sec: float = 600.0
    env: dict[str, str] = {}
    user: str | int | None = None
    environment_mode: Literal["shared", "separate"] | None = None
    environment: Any = None
    collect: list[Any] = []
    network_mode: _NetworkMode | None = None
    allowed_hosts: list[str] | None = None

    def refused(self) -> Iterator[tuple[str, str]]:
        if self.environment is not None:
            yield "environment", "tests run in the image of the task"
        if self.collect:
            yield "collect", "nothing runs between a submission and its tests"


class _Solution(_Section):
    env: dict[str, str] = {}


class _Harbor(_Section):
    """Schema of task.toml."""

    schema_version: str = "1.4"
    version: str | None = None
    task: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    verifier: _Verifier = msgspec.field(default_factory=_Verifier)
    agent: _Agent = msgspec.field(default_factory=_Agent)
    environment: _Environment = msgspec.field(default_factory=_Environment)
    solution: _Solution = msgspec.field(default_factory=_Solution)
    source: str | None = None
    multi_step_reward_strategy: str | None = None
    steps: list[Any] = []
    artifacts: list[Any] = []
    # Metadata that folders have outside of its section, where Harbor ignores it.
    author: Any = None
    author_name: Any = None
    author_email: Any = None
    category: Any = None
    description: Any = None
    difficulty: Any = None
    keywords: Any = None
    tags: Any = None

    def refused(self) -> Iterator[tuple[str, str]]:
        if self.steps:
            yield "steps", "a task has one submission"
        for name in ("agent", "environment", "verifier"):
            for field, reason in getattr(self, name).refused():
                yield f"{name}.{field}", reason
        for name in ("agent", "verifier"):
            section = getattr(self, name)
            if section.network_mode not in (None, _PUBLIC if self.environment.has_network else "no-network"):
                yield f"{name}.network_mode", "all sessions of a task have the same network: that of the environment"


def harbor_task(folder: Path) -> Task:
    """Return the task of a folder.

    Raises:
        ConfigurationError: If the folder lacks a part, or uses what is not supported; the message names it.
    """
    config = _decode(folder / "task.toml")
    compose = find_compose_file(folder / "environment")
    service = ComposeService() if compose is None else read_service(compose, {})
    tests = files_below(folder / "tests")
    for name, why in _parts_refused(folder, config, is_separate=config.verifier.environment_mode == "separate"):
        message = f"{folder / name} is not supported: {why}"
        raise ConfigurationError(message)
    image = config.environment.docker_image or service.image
    if not image and not (folder / "environment" / "Dockerfile").exists():
        message = f"Expected {folder} to have environment/Dockerfile, or the name of an image in task.toml"
        raise ConfigurationError(message)
    if "test.sh" not in tests:
        message = f"Expected {folder} to have tests/test.sh"
        raise ConfigurationError(message)
    declared = {**service.environment, **_variables(folder, "environment", config.environment.env)}
    directory = config.environment.workdir or service.directory
    is_separate = config.verifier.environment_mode == "separate"
    files: dict[str, str | FileContent] = {f"{_LOGS[-1]}/": ""}
    files.update({f"/tests/{path}": file.for_tests for path, file in tests.items()})
    return Task(
        id=folder.name,
        prompt=_without_canary(text_of(folder / "instruction.md")),
        tests=RepositoryTests(
            image=image or str(folder / "environment"),
            directory=directory,
            submission="script",
            submission_timeout=config.agent.timeout_sec,
            carried=_carried(folder, config.artifacts) if is_separate else (),
            # Harbor makes these writable for every user.
            writable=("/solution", *_LOGS),
            files=files,
            commands=(
                RepositoryCommand(
                    command=_TEST,
                    results="reward",
                    file=_REWARD,
                    timeout=config.verifier.timeout_sec,
                    user="" if config.verifier.user is None else str(config.verifier.user),
                ),
            ),
            environment={**declared, **_variables(folder, "verifier", config.verifier.env)},
            cpu=service.cpu if config.environment.cpus is None else config.environment.cpus,
            mem=config.environment.mem or service.mem,
            disk=config.environment.disk,
            network=config.environment.has_network and service.network,
        ),
        reference=_reference(folder, {**declared, **_variables(folder, "solution", config.solution.env)}),
        metadata=_metadata(config),
        grading=GradingMode.COPY if is_separate else None,
    )


def _decode(path: Path) -> _Harbor:
    try:
        config = msgspec.convert(tomllib.loads(text_of(path)), _Harbor)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        message = f"{path}: {reason_of(error)}"
        raise ConfigurationError(message) from error
    for name, why in config.refused():
        message = f"{path}: {name} is not supported: {why}"
        raise ConfigurationError(message)
    return config


def _parts_refused(folder: Path, config: _Harbor, *, is_separate: bool) -> Iterator[tuple[str, str]]:
    """Yield paths of a folder that are not supported, and why they are not."""
    if (folder / "trajectory.json").exists():
        yield "trajectory.json", "a session begins with no history"
    for name in ("tests", "solution"):
        if (folder / name / ".harborignore").exists():
            yield f"{name}/.harborignore", "all files of a folder are used; remove those that it names"
    if is_separate and ((folder / "tests" / "Dockerfile").exists() or find_compose_file(folder / "tests")):
        yield "tests/Dockerfile", "tests run in the image of the task"
    dockerfile = folder / "environment" / "Dockerfile"
    if not config.environment.docker_image and dockerfile.exists() and has_entry_point(text_of(dockerfile)):
        yield "environment/Dockerfile", "it has an ENTRYPOINT, which sessions do not run"


def _carried(folder: Path, artifacts: list[Any]) -> tuple[str, ...]:
    """Return the paths that Harbor carries to separate tests."""
    found = [_LOGS[1]]
    for artifact in artifacts:
        options = {"source": artifact} if isinstance(artifact, str) else artifact
        source = options.get("source") if isinstance(options, dict) else None
        if not isinstance(source, str) or {*options} - {"source", "destination"}:
            message = f"{folder / 'task.toml'}: artifacts: {artifact!r} is not supported: expected a path of the session"
            raise ConfigurationError(message)
        found.append(source)
    return tuple(found)


def _variables(folder: Path, section: str, variables: Mapping[str, str]) -> dict[str, str]:
    """Return environment variables, those that refer to a variable of the machine with their default.

    Raises:
        ConfigurationError: If one has no default.
    """
    found = {}
    for name, value in variables.items():
        template = _VARIABLE.fullmatch(value)
        if template is not None and template[1] is None:
            message = (
                f"{folder / 'task.toml'}: {section}.env.{name} is not supported: {value} is a variable of this machine, "
                "which is no part of a task"
            )
            raise ConfigurationError(message)
        found[name] = value if template is None else template[1]
    return found


def _reference(folder: Path, environment: Mapping[str, str]) -> str | None:
    files = files_below(folder / "solution")
    if "solve.sh" not in files:
        return None
    # Harbor makes it executable.
    files["solve.sh"] = files["solve.sh"]._replace(is_executable=True)
    return reference_script(
        files,
        into="/solution",
        command='"$solution"/solve.sh',
        log="/logs/agent/oracle.txt",
        directories=_LOGS,
        environment={"DEBIAN_FRONTEND": "noninteractive", **environment},
    )


def _metadata(config: _Harbor) -> dict[str, Any]:
    outside = {name: value for name in _METADATA if (value := getattr(config, name)) is not None}
    found = {**outside, **config.task, **config.metadata, "source": "Harbor"}
    return {name: plain(value) for name, value in found.items()}


def _without_canary(text: str) -> str:
    """Return a text without the lines in front that mark it as one not to train on, which Harbor's agents are not shown."""
    lines = text.split("\n")
    while lines and _CANARY.fullmatch(lines[0].strip()):
        lines.pop(0)
    while lines and not lines[0].strip():
        lines.pop(0)
    return "\n".join(lines)
