"""``RepositoryTests``: tests of changes to a repository in an image."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from coding_gym_server.protocol.grading import FileContent

__all__ = ["RepositoryCommand", "RepositoryTests"]

_Text = Annotated[str, msgspec.Meta(pattern=r"\A[^\0]+\Z")]


class RepositoryCommand(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A command that runs tests.

    Attributes:
        command: Command of the shell. Its environment is that of the image. Its first line names it.
        results: What tells the results: lines of the output of ``"pytest"`` (with ``-rA``, or ``-v``), of its summary alone
            (``"pytest summary"``, for tests that are named without their files), of ``"unittest"`` (with ``-v``, or Django's
            runner with ``-v 2``), or of ``"sympy"`` (its runner with ``--verbose``); a ``file`` in JUnit's format
            (``"junit"``); a ``file`` with a number of which 1 passes (``"reward"``); or the ``"exit code"``.
        file: Path of that file, relative to the directory of the tests. What is there before the command runs is removed.
        must_pass: Names of the tests that the submission must make pass, as the results have them; see ``RepositoryTests``.
        keep_passing: Names of the tests that pass without it, and must still do so.
        timeout: Seconds after which it is ended.
        user: Name or id of the user who runs it; that of the image if empty.
    """

    command: _Text
    results: Literal["pytest", "pytest summary", "unittest", "sympy", "junit", "reward", "exit code"] = "pytest"
    file: _Text | None = None
    must_pass: tuple[str, ...] = ()
    keep_passing: tuple[str, ...] = ()
    timeout: Annotated[float, msgspec.Meta(gt=0)] = 1800.0
    user: str = ""

    def __post_init__(self) -> None:
        if self.results in ("junit", "reward") and self.file is None:
            message = f"results={self.results!r} require file=, the path of what the command writes"
            raise ValueError(message)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all tests that must have passed."""
        return (*self.must_pass, *self.keep_passing)


class RepositoryTests(
    msgspec.Struct,
    tag="repository",
    tag_field="type",
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
):
    """Tests of changes to a repository in an image.

    What a submission has changed is carried to a new session of the image, in which nothing else is left of it: no processes,
    and no other files. What the changed code does in the process of the tests is not prevented: it can forge their results
    there. Other modes carry more; see ``GradingMode``.

    Attributes:
        image: Name of the image, any that the engine has or can pull, or the absolute path of a directory with a Dockerfile.
        commands: What runs the tests. A name that several of their results have must pass in each.
        directory: Absolute path of the repository, in which the commands run; the working directory of the image if empty.
        submission: What is submitted: a ``"patch"``, which is a unified diff relative to the directory, or a ``"script"``,
            which bash, or sh if the image has no bash, runs in a session of the image, as its user and in the directory.
        submission_timeout: Seconds after which a script is ended, and what it has done is graded.
        carried: Paths, absolute or relative to the directory, whose changes are carried; the directory if there are none.
        protected: Paths that have the state of the image when the tests run: files and directories that a solution has no
            reason to change, and tests depend on. ``.git`` and ``__pycache__`` are never carried.
        hidden: Paths of the image that the submission's session does not have, and the tests have.
        writable: Absolute paths of directories that the submission's session has in addition, and all users can write.
        files: Files that appear for the tests only, after the changes, and replace what is in their place. A path with a slash
            at its end is a directory that all users can write.
        patch: A unified diff, relative to the directory, that is applied for the tests only. The files that it changes are
            protected.
        environment: Environment variables of the commands, in addition to those of the image.
        cpu: CPU time that the sessions need, in cores; None if they have no demands.
        mem: Memory that they need, such as ``"4g"``; None if they have no demands.
        disk: Room that changed files need, such as ``"8g"``, in addition to the memory; ``"4g"`` if None.
        network: Whether they need a network, which the grader must have.
        max_bytes: Maximum size of the changes.
    """

    image: _Text
    commands: Annotated[tuple[RepositoryCommand, ...], msgspec.Meta(min_length=1)]
    directory: Annotated[str, msgspec.Meta(pattern=r"\A(?:/[^\0]*)?\Z")] = ""
    submission: Literal["patch", "script"] = "patch"
    submission_timeout: Annotated[float, msgspec.Meta(gt=0)] = 1800.0
    carried: tuple[_Text, ...] = ()
    protected: tuple[_Text, ...] = ()
    hidden: tuple[_Text, ...] = ()
    writable: tuple[_Text, ...] = ()
    files: dict[_Text, str | FileContent] = {}
    patch: str = ""
    environment: dict[str, str] = {}
    cpu: float | None = None
    mem: str | None = None
    disk: str | None = None
    network: bool = False
    max_bytes: Annotated[int, msgspec.Meta(ge=0)] = 200 << 20
