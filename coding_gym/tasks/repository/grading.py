"""Grading of changes to a repository, in a new session of its image."""

from __future__ import annotations

import posixpath
import re
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from coding_gym.client.processes import ProcessResult
from coding_gym.envs.coding_env import CodingEnv
from coding_gym.errors import ConfigurationError, ImageBuildError, SandboxStartError, TransportError
from coding_gym.sandbox.config import SandboxConfig
from coding_gym.tasks.repository.carrying import (
    ChangesError,
    apply_changes,
    collect_changes,
    describe,
    restore,
    save,
    write_files,
)
from coding_gym.tasks.repository.results import PARSERS, Results, parse_junit, parse_reward
from coding_gym.tasks.repository.tests import RepositoryCommand, RepositoryTests
from coding_gym_server.ipc.text import truncate_middle
from coding_gym_server.protocol.grading import CaseOutcome, CaseResult, Graded, GradingMode, VerdictOutcome

__all__ = ["RepositoryGrading"]

_INTERPRETER = "/proc/self/exe"
_OUTPUT_BYTES = 64 << 20
_FILE_BYTES = 16 << 20
_PATCH_TIMEOUT = 60.0
_SHORT_TIMEOUT = 60.0
_SHOWN_CHARS = 2000
_PATCH = """
if command -v git >/dev/null; then
    git -c safe.directory='*' apply --whitespace=nowarn - <"$1" && exit
fi
patch --batch --forward --fuzz=5 --strip=1 --input="$1"
"""
_PATCHED = re.compile(r"^(?:---|\+\+\+|rename from|rename to) (.+)$", re.MULTILINE)
_PATCH_FILE = "/tmp/.coding-gym.patch"
_READ = "import sys; sys.stdout.buffer.write(open(sys.argv[1], 'rb').read(int(sys.argv[2])))"
_DIRECTORY = "import os; print(end=os.getcwd())"


class RepositoryGrading:
    """Grades one submission after another, in sessions of their images. The last container is kept for the next submission.

    Args:
        config: Configuration of the containers. Its image does not matter.
    """

    def __init__(self, config: SandboxConfig) -> None:
        if config.provider not in ("docker", "auto") or config.base_url or config.base_urls:
            message = f"RepositoryTests require provider='docker', which runs their images, got provider={config.provider!r}"
            raise ConfigurationError(message)
        self._config = replace(config, provider="docker", sessions=1, root=True, preload=(), image=None)
        self._env: CodingEnv | None = None

    def grade_patch(self, tests: RepositoryTests, patch: str) -> Graded:
        """Grade a patch.

        Args:
            tests: The tests.
            patch: A unified diff, relative to the directory of the tests; none if empty.

        Raises:
            TransportError: If the container is lost.
            ProviderError: If there is no engine.
            ConfigurationError: If an option of the container is invalid.
        """

        def carry(env: CodingEnv, directory: str) -> None:
            _apply_patch(env, directory, patch)

        return self._grade(tests, carry)

    def grade_session(self, tests: RepositoryTests, agent: CodingEnv) -> Graded:
        """Grade the changes that the programs of a session have made in the directory of the tests. The session continues.

        Args:
            tests: The tests.
            agent: The session, in the same image.

        Raises:
            TransportError: If a container is lost.
            ProviderError: If there is no engine.
            ConfigurationError: If an option of the container is invalid.
        """

        def carry(env: CodingEnv, directory: str) -> None:
            protected = _protected(tests, directory)
            before = describe(env, [directory], protected)
            apply_changes(env, collect_changes(agent, before, [directory], protected, max_bytes=tests.max_bytes), [directory])

        return self._grade(tests, carry)

    def close(self) -> None:
        """Remove the container. Idempotent, and thread-safe: it ends a submission that is being graded."""
        env, self._env = self._env, None
        if env is not None:
            env.close()

    def _grade(self, tests: RepositoryTests, carry: Callable[[CodingEnv, str], None]) -> Graded:
        began = time.perf_counter()
        try:
            env = self._begin(tests.image)
        except (ImageBuildError, SandboxStartError) as error:
            # No image, or none that runs here: nothing that a submission has done.
            return Graded(outcome=VerdictOutcome.INFRASTRUCTURE, message=str(error), mode=GradingMode.COPY)
        directory = tests.directory or _run(env, [_INTERPRETER, "-I", "-S", "-c", _DIRECTORY]).stdout_text
        files = {
            posixpath.join(directory, path): content.encode() if isinstance(content, str) else content.base64
            for path, content in tests.files.items()
        }
        protected = _protected(tests, directory)
        try:
            saved = save(env, protected)
            carry(env, directory)
            restore(env, protected, saved)
            write_files(env, files)
        except ChangesError as error:
            return Graded(
                outcome=VerdictOutcome.ERROR,
                cases=tuple(case for command in tests.commands for case in _cases_of(command, {}, CaseOutcome.NOT_RUN)),
                message=str(error),
                mode=GradingMode.COPY,
                seconds=time.perf_counter() - began,
            )
        try:
            _apply_patch(env, directory, tests.patch)
        except ChangesError as error:
            # Of nothing that a submission has changed.
            message = f"The tests cannot be run in {tests.image}: {error}"
            raise ConfigurationError(message) from error
        prepared = time.perf_counter()
        cases: list[CaseResult] = []
        shown = ProcessResult(0, b"", b"")
        for command in tests.commands:
            result = _run(env, command.command, cwd=directory, timeout=command.timeout, max_output_bytes=_OUTPUT_BYTES)
            cases += _results_of(env, command, result, directory)
            shown = result if result.exit_code or not shown.exit_code else shown
        return Graded(
            outcome=_outcome_of(cases),
            cases=tuple(cases),
            stdout=truncate_middle(shown.stdout_text, _SHOWN_CHARS),
            stderr=truncate_middle(shown.stderr_text, _SHOWN_CHARS),
            load_seconds=prepared - began,
            seconds=time.perf_counter() - began,
            mode=GradingMode.COPY,
        )

    def _begin(self, image: str) -> CodingEnv:
        """Return an environment with a new session of an image."""
        if self._env is not None and self._env.config.image != image:
            self.close()
        if self._env is None:
            self._env = CodingEnv(config=replace(self._config, image=image), screen=None)
        try:
            self._env.reset(seed=0)
        except BaseException:
            self.close()
            raise
        return self._env


def _protected(tests: RepositoryTests, directory: str) -> list[str]:
    """Return the absolute paths that have the state of the image when the tests run."""
    paths = {*tests.protected, *_paths_of(tests.patch)}
    return sorted(posixpath.normpath(posixpath.join(directory, path)) for path in paths)


def _paths_of(patch: str) -> set[str]:
    """Return the paths of the files that a patch changes."""
    found = {match[1].split("\t")[0].strip() for match in _PATCHED.finditer(patch)}
    return {path.removeprefix("a/").removeprefix("b/") for path in found if path != "/dev/null"}


def _apply_patch(env: CodingEnv, directory: str, patch: str) -> None:
    """Apply a patch with git, or with patch.

    Raises:
        ChangesError: If it does not apply.
    """
    if not patch.strip():
        return
    write_files(env, {_PATCH_FILE: f"{patch.rstrip()}\n".encode()})
    result = _run(env, ["sh", "-c", _PATCH, "sh", _PATCH_FILE], cwd=directory, timeout=_PATCH_TIMEOUT)
    _run(env, [_INTERPRETER, "-I", "-S", "-c", "import os, sys; os.unlink(sys.argv[1])", _PATCH_FILE], user="root")
    if result.exit_code != 0:
        lines = (result.stderr_text or result.stdout_text).strip().splitlines()
        message = f"the patch does not apply: {lines[-1] if lines else f'exit code {result.exit_code}'}"
        raise ChangesError(message)


def _run(env: CodingEnv, command: str | list[str], **options: Any) -> ProcessResult:
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
        return _cases_of(command, {}, CaseOutcome.TIMEOUT, f"the command exceeded {command.timeout:g} s")
    if command.results == "exit code":
        passed = CaseOutcome.FAILED if result.exit_code else CaseOutcome.PASSED
        return _cases_of(command, {}, passed, f"exit code {result.exit_code}" if result.exit_code else "")
    if command.results in PARSERS:
        found = PARSERS[command.results](f"{result.stdout_text}\n{result.stderr_text}")
        return _cases_of(command, found, CaseOutcome.NOT_RUN, "it is not in the results")
    assert command.file is not None
    path = posixpath.join(directory, command.file)
    read = _run(env, [_INTERPRETER, "-I", "-S", "-c", _READ, path, str(_FILE_BYTES)], user="root", max_output_bytes=_FILE_BYTES)
    if read.exit_code != 0:
        return _cases_of(command, {}, CaseOutcome.NOT_RUN, f"the command has not written {path}")
    try:
        if command.results == "junit":
            return _cases_of(command, parse_junit(read.stdout), CaseOutcome.NOT_RUN, "it is not in the results")
        reward = parse_reward(read.stdout)
    except ValueError as error:
        return _cases_of(command, {}, CaseOutcome.FAILED, str(error))
    return _cases_of(command, {}, CaseOutcome.PASSED if reward == 1 else CaseOutcome.FAILED, f"reward {reward:g}")


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
            return [CaseResult(name=command.command, outcome=otherwise, message=message)]
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
