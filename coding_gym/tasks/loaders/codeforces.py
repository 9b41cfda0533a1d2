"""Problems of Codeforces, in the data set of open-r1: official and generated tests, and checkers in Python."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from coding_gym._optional import import_extra
from coding_gym.errors import ConfigurationError
from coding_gym.tasks.loaders.competitions import contest_task
from coding_gym.tasks.loaders.programs import pairs_of, program_tests
from coding_gym.tasks.loaders.row_tests import RowTests
from coding_gym.tasks.loaders.rows import RowError, TaskRow
from coding_gym.tasks.loaders.statements import statement
from coding_gym.tasks.task import Task
from coding_gym_server.protocol.grading import Checker, CheckerProtocol, OutputRule

__all__ = ["codeforces_task"]

_INPUT_MODES = {"stdio": ("", ""), "file": ("input.txt", "output.txt")}
_SKIP = "Skip such rows with unsupported='skip'"


def codeforces_task(row: TaskRow) -> Task:
    """Return the task of a row of open-r1's Codeforces: ``official_tests`` and, if there are several right outputs, a checker.

    Raises:
        RowError: If the row is not in this format, or its problem is interactive, as the data set has no interactors.
    """
    if row.text("interaction_format", default="").strip():
        message = f"its problem is interactive, and the data set has no interactors. {_SKIP}"
        raise RowError(message)
    if row.fields.get("executable") is False:
        message = f"it is not executable: the data set lacks its tests, or a checker for its several right outputs. {_SKIP}"
        raise RowError(message)
    examples = pairs_of(row.decoded("examples") or [], "examples")
    mode = row.text("input_mode", default="stdio")
    if mode not in _INPUT_MODES:
        message = f"expected input_mode to be {' or '.join(_INPUT_MODES)}, got {mode!r:.100}"
        raise RowError(message)
    input_file, output_file = _INPUT_MODES[mode]
    code = row.text("generated_checker", default="")
    official = pairs_of(row.decoded("official_tests") or [], "official_tests")
    # The configurations with prompts have a row for each language.
    language = row.text("language", default="")
    tests = program_tests(
        [*official, *_generated(row)] or examples,
        replace(row.options, language=row.options.language or language or None),
        OutputRule.TOKENS,
        checker=Checker(code=code, protocol=CheckerProtocol.PRINTED) if code.strip() else None,
        input_file=input_file,
        output_file=output_file,
    )
    parts = {
        "": row.text("description"),
        "Input": row.text("input_format", default=""),
        "Output": row.text("output_format", default=""),
        "Note": row.text("note", default=""),
    }
    prompt = statement(row.text("title", default=""), parts, examples, input_file=input_file, output_file=output_file)
    sample = examples[0][0] if examples else None
    found = RowTests("official_tests", tests)
    task = contest_task(row, prompt, found, source="Codeforces", has_imports=False, sample_input=sample)
    return replace(task, id=f"{task.id}/{language}") if language else task


def _generated(row: TaskRow) -> list[tuple[str, str]]:
    """Return the generated tests of a row, if there is a directory of them, and it has some."""
    if row.options.generated_tests is None or not row.fields.get("generated_tests"):
        return []
    directory, contest = Path(row.options.generated_tests), row.id.partition("/")[0]
    if not contest.isdigit():
        message = f"expected its id to begin with the number of a contest, as 2061/A, got {row.id!r}"
        raise RowError(message)
    return _tests_of_contest(directory / f"test_cases_{int(contest):04d}.parquet").get(row.id, [])


@functools.lru_cache(maxsize=1)
def _tests_of_contest(path: Path) -> Mapping[str, list[tuple[str, str]]]:
    """Return the tests in a file by the ids of their problems; rows of one contest follow each other."""
    parquet = import_extra("pyarrow.parquet", extra="datasets")
    found: dict[str, list[tuple[str, str]]] = {}
    try:
        for row in parquet.read_table(path, columns=["problem_id", "input", "output"]).to_pylist():
            found.setdefault(row["problem_id"], []).append((row["input"], row["output"]))
    except (OSError, ValueError, KeyError) as error:
        message = f"Expected {path} to be a file of generated tests: {error}"
        raise ConfigurationError(message) from error
    return found
