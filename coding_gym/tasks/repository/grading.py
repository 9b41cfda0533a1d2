"""Grading of changes to a repository, in a new session of its image."""

from __future__ import annotations

import posixpath
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

from coding_gym.client.processes import ProcessResult
from coding_gym.envs.coding_env import CodingEnv
from coding_gym.errors import ConfigurationError, ImageBuildError, SandboxStartError, TransportError
from coding_gym.sandbox.config import SandboxConfig, parse_size
from coding_gym.tasks.repository.carrying import (
    ChangesError,
    arrange,
    carry_changes,
    changed_paths,
    prepare,
    read_file,
    working_directory,
)
from coding_gym.tasks.repository.results import PARSERS, Results, parse_junit, parse_reward
from coding_gym.tasks.repository.tests import RepositoryCommand, RepositoryTests
from coding_gym_server.ipc.text import truncate_middle
from coding_gym_server.protocol.grading import CaseOutcome, CaseResult, Graded, GradingMode, VerdictOutcome

__all__ = ["RepositoryGrading", "check_provider", "config_for", "prepare_session"]

_DISK = "4g"
"""Room for what solutions and tests install, where a task says nothing."""

_OUTPUT_BYTES = 64 << 20
_FILE_BYTES = 16 << 20
_PATCH_TIMEOUT = 60.0
_SHORT_TIMEOUT = 60.0
_SHOWN_CHARS = 2000
_SHOWN_LINES = 3
_HEALTH_TIMEOUT = 5.0
_MISSING = "it is not in the results"
_INODES = 1_000_000
_PIDS = 4096
_PATCH = """
file=$(mktemp) && cat >"$file" || exit
if command -v git >/dev/null && GIT_DIR=/nonexistent git apply --whitespace=nowarn - <"$file"; then
    code=0
elif command -v patch >/dev/null || ! command -v git >/dev/null; then
    patch --batch --forward --fuzz=5 --strip=1 --input="$file"
    code=$?
else
    code=1
fi
rm -f "$file"
exit $code
"""
"""Without the repository, whose attributes and filters are a submission's, and whose top may be another directory."""

_SCRIPT = """
file=$(mktemp) && cat >"$file" || exit
if command -v bash >/dev/null; then bash "$file" </dev/null; else sh "$file" </dev/null; fi
rm -f "$file"
"""


class RepositoryGrading:
    """Grades one submission after another, in sessions of their images. The last containers are kept for the next submission.

    Args:
        config: Configuration of the containers. Its image does not matter.
        network: Network of the sessions in which tests run, except in the mode ``session``; that of ``config`` if None.
    """

    def __init__(self, config: SandboxConfig, *, network: str | None = None) -> None:
        check_provider(config)
        self._config = replace(config, packages=(), system_packages=(), languages=())
        self._network = network or config.network
        self._environments: dict[str, CodingEnv] = {}

    def grade(self, tests: RepositoryTests, submission: str, mode: GradingMode | None = None) -> Graded:
        """Grade a patch or a script.

        Args:
            tests: The tests, which say what a submission is.
            submission: A unified diff, none if empty, or a script.
            mode: ``COPY``, ``LAYER`` or ``SESSION``, which are the same for a patch; by default ``COPY`` for a patch, and
                ``SESSION`` for a script.

        Raises:
            TransportError: If a container is lost.
            ProviderError: If there is no engine.
            ConfigurationError: If the tests cannot be run, or an option of the containers is invalid.
        """
        mode = GradingMode.COPY if tests.submission == "patch" else mode or GradingMode.SESSION
        if tests.submission == "patch" and not submission.strip():
            return self._grade(tests, mode, None)
        try:
            agent = self._begin("submission", config_for(self._config, tests, self._config.network))
        except (ImageBuildError, SandboxStartError) as error:
            return _unavailable(error, mode)
        began = time.perf_counter()
        prepare_session(agent, tests)
        try:
            if tests.submission == "patch":
                _apply_patch(agent, _Layout.of(tests, agent).directory, submission)
            else:
                _run_script(agent, tests, submission)
        except ChangesError as error:
            return _refused(tests, mode, error, began)
        return self.grade_session(tests, agent, mode)

    def grade_session(self, tests: RepositoryTests, agent: CodingEnv, mode: GradingMode | None = None) -> Graded:
        """Grade what the programs of a session have changed.

        Args:
            tests: The tests.
            agent: The session, in the same image. It continues, except in the mode ``SESSION``, in which the tests run in it.
            mode: ``COPY``, the default, ``LAYER`` or ``SESSION``.

        Raises:
            TransportError: If a container is lost.
            ProviderError: If there is no engine.
            ConfigurationError: If the tests cannot be run, or an option of the containers is invalid.
        """
        mode = mode or GradingMode.COPY
        if mode is GradingMode.SESSION:
            return _run_tests(agent, tests, mode, None, time.perf_counter())
        return self._grade(tests, mode, agent)

    def close(self) -> None:
        """Remove the containers. Idempotent, and thread-safe: it ends a submission that is being graded."""
        environments, self._environments = self._environments, {}
        for env in environments.values():
            env.close()

    def _grade(self, tests: RepositoryTests, mode: GradingMode, agent: CodingEnv | None) -> Graded:
        began = time.perf_counter()
        try:
            env = self._begin("tests", config_for(self._config, tests, self._network))
        except (ImageBuildError, SandboxStartError) as error:
            # No image, or none that runs here: nothing that a submission has done.
            return _unavailable(error, mode)
        return _run_tests(env, tests, mode, agent, began)

    def _begin(self, purpose: str, config: SandboxConfig) -> CodingEnv:
        """Return an environment with a new session of a configuration, the one of the last submission if it has the same."""
        env = self._environments.pop(purpose, None)
        if env is not None and env.config != config:
            env.close()
            env = None
        if env is None:
            env = CodingEnv(config=config, screen=None)
        self._environments[purpose] = env
        try:
            env.reset(seed=0)
        except BaseException:
            self._environments.pop(purpose, None)
            env.close()
            raise
        return env


def config_for(config: SandboxConfig, tests: RepositoryTests, network: str | None) -> SandboxConfig:
    """Return the configuration of a container for some tests.

    Args:
        config: A configuration, whose image does not matter; the tests may need more than its limits.
        tests: The tests.
        network: Network of the container.

    Raises:
        ConfigurationError: If the tests need a network, and there is none.
    """
    if tests.network and network is None:
        message = (
            f"The tests in {tests.image} need a network: pass network=, such as 'bridge', or 'none' to run them without one"
        )
        raise ConfigurationError(message)
    disk = max(parse_size(config.disk), parse_size(tests.disk or _DISK))
    mem = max(parse_size(config.mem), parse_size(tests.mem or config.mem))
    return replace(
        config,
        provider="docker",
        image=tests.image,
        sessions=1,
        # Of an image that is based on the default one, programs are those of the image, too.
        root=True,
        preload=(),
        cpu=max(config.cpu, tests.cpu or 0),
        # Changed files lie in memory.
        mem=str(mem + disk),
        disk=str(disk),
        # What installs packages, or builds with many processes, needs more than an interpreter does.
        inodes=max(config.inodes, _INODES),
        pids_limit=max(config.pids_limit, _PIDS),
        network=network,
    )


def check_provider(config: SandboxConfig) -> None:
    """Raise if no sandbox of a configuration runs the images of tests.

    Raises:
        ConfigurationError: If that is so.
    """
    if config.provider not in ("docker", "auto") or config.base_url or config.base_urls:
        message = f"RepositoryTests require provider='docker', which runs their images, got provider={config.provider!r}"
        raise ConfigurationError(message)


class _Layout(NamedTuple):
    """Absolute paths of some tests.

    Attributes:
        directory: Where they run.
        carried: Whose changes are carried.
        kept: What has the state of the image, for the tests.
        hidden: What the submission's session does not have.
        results: What the tests write.
    """

    directory: str
    carried: list[str]
    kept: list[str]
    hidden: list[str]
    results: list[str]

    @classmethod
    def of(cls, tests: RepositoryTests, env: CodingEnv) -> _Layout:
        """Return the paths of tests in a session of their image."""
        directory = tests.directory or working_directory(env)

        def absolute(paths: Iterable[str]) -> list[str]:
            return sorted({posixpath.normpath(posixpath.join(directory, path)) for path in paths})

        return cls(
            directory,
            carried=absolute(tests.carried or [directory]),
            kept=absolute([*tests.protected, *tests.hidden]),
            hidden=absolute(tests.hidden),
            results=absolute(command.file for command in tests.commands if command.file is not None),
        )


def prepare_session(env: CodingEnv, tests: RepositoryTests) -> None:
    """Remove what a submission's session does not have, and make the directories that it has in addition."""
    if tests.hidden or tests.writable:
        arrange(env, {f"{path}/": b"" for path in tests.writable}, removed=_Layout.of(tests, env).hidden)


def _unavailable(error: Exception, mode: GradingMode) -> Graded:
    return Graded(outcome=VerdictOutcome.INFRASTRUCTURE, message=str(error), mode=mode)


def _refused(tests: RepositoryTests, mode: GradingMode, error: ChangesError, began: float) -> Graded:
    """Return the result of a submission whose tests were not run."""
    return Graded(
        outcome=VerdictOutcome.ERROR,
        cases=tuple(case for command in tests.commands for case in _cases_of(command, {}, CaseOutcome.NOT_RUN)),
        message=str(error),
        mode=mode,
        seconds=time.perf_counter() - began,
    )


def _run_script(env: CodingEnv, tests: RepositoryTests, script: str) -> None:
    """Run a submission. What it has changed is graded however it ends.

    Raises:
        ChangesError: If it has ended its session, with what it has changed.
        TransportError: If the session is lost for another reason.
    """
    directory = _Layout.of(tests, env).directory
    command = ["sh", "-c", _SCRIPT]
    result = env.exec(command, stdin=script.encode(), cwd=directory, timeout=tests.submission_timeout)
    if result.lost is not None and not result.limit_exceeded:
        if env.sandbox is not None and env.sandbox.is_healthy(timeout=_HEALTH_TIMEOUT):
            message = f"the submission has ended its session: {result.lost}"
            raise ChangesError(message)
        raise TransportError(result.lost)


def _run_tests(env: CodingEnv, tests: RepositoryTests, mode: GradingMode, agent: CodingEnv | None, began: float) -> Graded:
    """Run the tests in a session.

    Args:
        env: The session.
        tests: The tests.
        mode: The mode.
        agent: The session whose changes are carried; None if there are none, or they are in the session already.
        began: When grading began.

    Raises:
        TransportError: If the session is lost.
        ConfigurationError: If the tests cannot be run.
    """
    layout = _Layout.of(tests, env)
    files = {
        posixpath.join(layout.directory, path): content.encode() if isinstance(content, str) else content.base64
        for path, content in tests.files.items()
    }
    prepared = None
    try:
        if mode is not GradingMode.SESSION:
            prepared = prepare(env, None if mode is GradingMode.LAYER else layout.carried, layout.kept)
        try:
            # In a new session before the changes, which then do not touch what the patch has.
            _apply_patch(env, layout.directory, tests.patch)
        except ChangesError as error:
            if prepared is None:
                # The submission may have changed what the patch is for.
                raise
            message = f"The tests cannot be run in {tests.image}: {error}"
            raise ConfigurationError(message) from error
        if prepared is not None and agent is not None:
            kept = changed_paths(env, prepared) if tests.patch.strip() else []
            carry_changes(agent, env, prepared, files, removed=layout.results, kept=kept, max_bytes=tests.max_bytes)
        else:
            arrange(env, files, removed=layout.results)
    except ChangesError as error:
        return _refused(tests, mode, error, began)
    prepared_at = time.perf_counter()
    cases: list[CaseResult] = []
    reward: float | None = None
    shown = ProcessResult(0, b"", b"")
    for command in tests.commands:
        options: dict[str, Any] = {"timeout": command.timeout, "max_output_bytes": _OUTPUT_BYTES, "env": tests.environment}
        result = _run(env, command.command, cwd=layout.directory, user=command.user or None, **options)
        if command.results == "reward":
            reward, case = _reward_of(env, command, result, layout.directory)
            cases.append(case)
        else:
            cases += _results_of(env, command, result, layout.directory)
        shown = result if result.exit_code or not shown.exit_code else shown
    return Graded(
        outcome=_outcome_of(cases),
        cases=tuple(cases),
        stdout=truncate_middle(shown.stdout_text, _SHOWN_CHARS),
        stderr=truncate_middle(shown.stderr_text, _SHOWN_CHARS),
        load_seconds=prepared_at - began,
        seconds=time.perf_counter() - began,
        mode=mode,
        reward=reward,
    )


def _apply_patch(env: CodingEnv, directory: str, patch: str) -> None:
    """Apply a patch with git, or with patch.

    Raises:
        ChangesError: If it does not apply.
    """
    if not patch.strip():
        return
    # No line of it is stripped: an empty one belongs to the last hunk.
    text = patch if patch.endswith("\n") else f"{patch}\n"
    result = _run(env, ["sh", "-c", _PATCH], stdin=text.encode(), cwd=directory, timeout=_PATCH_TIMEOUT)
    if result.exit_code != 0:
        lines = [line for text in (result.stderr_text, result.stdout_text) for line in text.strip().splitlines()]
        message = f"the patch does not apply: {'; '.join(lines[:_SHOWN_LINES]) or f'exit code {result.exit_code}'}"
        raise ChangesError(message)


def _run(env: CodingEnv, command: str | list[str], /, **options: Any) -> ProcessResult:
    """Run a program.

    Raises:
        TransportError: If its session was lost before it has ended.
    """
    result = env.exec(command, **{"timeout": _SHORT_TIMEOUT, **options})
    if result.lost is not None and not result.limit_exceeded:
        raise TransportError(result.lost)
    return result


def _results_of(env: CodingEnv, command: RepositoryCommand, result: ProcessResult, directory: str) -> list[CaseResult]:
    """Return the results of the tests of a command that has ended."""
    if result.timed_out:
        return _cases_of(command, {}, CaseOutcome.TIMEOUT, _timeout_of(command))
    if command.results == "exit code":
        passed = CaseOutcome.FAILED if result.exit_code else CaseOutcome.PASSED
        return _cases_of(command, {}, passed, f"exit code {result.exit_code}" if result.exit_code else "")
    if command.results in PARSERS:
        found = PARSERS[command.results](f"{result.stdout_text}\n{result.stderr_text}")
        missing = _MISSING if found else f"the output has no results of {command.results}"
        return _cases_of(command, found, CaseOutcome.NOT_RUN, missing)
    try:
        found = parse_junit(_written_by(env, command, directory))
    except ChangesError as error:
        return _cases_of(command, {}, CaseOutcome.NOT_RUN, str(error))
    except ValueError as error:
        return _cases_of(command, {}, CaseOutcome.FAILED, str(error))
    return _cases_of(command, found, CaseOutcome.NOT_RUN, _MISSING)


def _reward_of(env: CodingEnv, command: RepositoryCommand, result: ProcessResult, directory: str) -> tuple[float, CaseResult]:
    """Return the reward that a command has written, and its result."""
    reward, outcome, message = 0.0, CaseOutcome.FAILED, ""
    if result.timed_out:
        outcome, message = CaseOutcome.TIMEOUT, _timeout_of(command)
    else:
        try:
            reward = parse_reward(_written_by(env, command, directory))
            outcome, message = CaseOutcome.PASSED if reward == 1 else CaseOutcome.FAILED, f"reward {reward:g}"
        except ChangesError as error:
            outcome, message = CaseOutcome.NOT_RUN, str(error)
        except ValueError as error:
            message = str(error)
    return reward, CaseResult(name=_name_of(command), outcome=outcome, message=message)


def _written_by(env: CodingEnv, command: RepositoryCommand, directory: str) -> bytes:
    """Return the content of the file with a command's results.

    Raises:
        ChangesError: If there is none.
    """
    assert command.file is not None
    path = posixpath.join(directory, command.file)
    try:
        return read_file(env, path, max_bytes=_FILE_BYTES)
    except ChangesError as error:
        message = f"the command has not written {path}"
        raise ChangesError(message) from error


def _name_of(command: RepositoryCommand) -> str:
    """Return the name of the result of a command: its first line, which may be a comment."""
    return command.command.partition("\n")[0].removeprefix("# ")


def _timeout_of(command: RepositoryCommand) -> str:
    return f"the command exceeded {command.timeout:g} s"


def _cases_of(command: RepositoryCommand, results: Results, otherwise: CaseOutcome, message: str = "") -> list[CaseResult]:
    """Return the results of the tests of a command, or one of the command if it names none.

    Args:
        command: The command.
        results: What is known of them.
        otherwise: Outcome of the others.
        message: Why they have it.
    """
    if not command.names:
        # All that there are must pass.
        if not results:
            return [CaseResult(name=_name_of(command), outcome=otherwise, message=message)]
        return [CaseResult(name=name, outcome=outcome) for name, outcome in results.items() if outcome != CaseOutcome.NOT_RUN]
    found = [(name, _outcome_in(results, name)) for name in command.names]
    return [
        CaseResult(name=name, outcome=otherwise, message=message) if outcome is None else CaseResult(name=name, outcome=outcome)
        for name, outcome in found
    ]


def _outcome_in(results: Results, name: str) -> CaseOutcome | None:
    """Return the outcome of a test; None if it is unknown.

    Data sets that were made with SWE-bench's harness have the names of parameters up to their first space, and the outcome
    of the last test with that beginning.
    """
    if name not in results and "[" in name and not name.endswith("]"):
        return next((outcome for known, outcome in reversed(results.items()) if known.startswith(f"{name} ")), None)
    return results.get(name)


def _outcome_of(cases: list[CaseResult]) -> VerdictOutcome:
    outcomes = {case.outcome for case in cases}
    if outcomes == {CaseOutcome.PASSED}:
        return VerdictOutcome.PASSED
    return VerdictOutcome.TIMEOUT if CaseOutcome.TIMEOUT in outcomes else VerdictOutcome.FAILED
