"""Packages in the problem format of Kattis and the ICPC: ``problem.yaml``, ``data/``, ``submissions/``."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from coding_gym.errors import ConfigurationError
from coding_gym.tasks.loaders.compose import decode_yaml
from coding_gym.tasks.loaders.default_validator import DEFAULT_VALIDATOR
from coding_gym.tasks.loaders.folder_files import FolderFile, files_below
from coding_gym.tasks.loaders.package_files import case_of_files, file_text, first_program, language_of_file
from coding_gym.tasks.loaders.programs import program_tests
from coding_gym.tasks.loaders.rows import LoadOptions, plain
from coding_gym.tasks.loaders.site_limits import memory_bytes, site_limits
from coding_gym.tasks.loaders.statements import in_language, statement
from coding_gym.tasks.task import Task
from coding_gym_server.languages import PYTHON
from coding_gym_server.protocol.grading import CaseGroup, Checker, CheckerProtocol, GradingLimits, OutputRule

__all__ = ["kattis_task"]

_STATEMENTS = ("problem_statement", "statement")
_VALIDATORS = ("output_validators", "output_validator")
_FLAGS = ("output_validator_flags", "output_validator_args")
_HEADERS = (".h", ".hh", ".hpp")
_METADATA = ("author", "credits", "source_url", "license", "rights_owner", "keywords", "difficulty")
_UNSUPPORTED = {
    "multi-pass": "a program runs once for each test",
    "submit-answer": "submissions are programs",
}
_VALIDATION_SECONDS = 60.0
_TIME_LIMIT = re.compile(r"timelimit\s*=\s*[\"']?([\d.]+)")


def kattis_task(folder: Path, options: LoadOptions) -> Task:
    """Return the task of a package, of the version ``legacy`` or ``2023-07``.

    The tests are those of ``data/sample`` and ``data/secret``. If the problem has points, groups of the latter are worth them.

    Args:
        folder: The package.
        options: Loader options.

    Raises:
        ConfigurationError: If the package lacks a part, or uses what is not supported; the message names it.
    """
    content = decode_yaml(folder / "problem.yaml") or {}
    if not isinstance(content, Mapping):
        message = f"Expected {folder / 'problem.yaml'} to be a mapping"
        raise ConfigurationError(message)
    kinds = _words(content.get("type"))
    for kind, why in _UNSUPPORTED.items():
        if kind in kinds:
            message = f"{folder / 'problem.yaml'}: type {kind} is not supported: {why}"
            raise ConfigurationError(message)
    validation = _words(content.get("validation"))
    files = files_below(folder, ("data", *_STATEMENTS, *_VALIDATORS))
    names = sorted(name.removesuffix(".in") for name in files if re.match(r"data/(sample|secret)/.*\.in$", name))
    cases = [case_of_files(files, f"{name}.in", f"{name}.ans", folder) for name in names]
    samples = [case for name, case in zip(names, cases, strict=True) if name.startswith("data/sample/")]
    is_interactive = "interactive" in (*kinds, *validation)
    flags = _flags(content, files, folder)
    rule, checker = _judge(files, folder, flags)
    if is_interactive and checker is None:
        message = f"Expected {folder} to have a program in {' or '.join(_VALIDATORS)}, as its problem is interactive"
        raise ConfigurationError(message)
    tests = program_tests(
        [(case.stdin, case.stdout) for case in cases],
        options,
        rule,
        checker=None if is_interactive else checker,
        interactor=checker if is_interactive else None,
        default_tolerance=None,
        groups=_groups(names, folder) if "scoring" in (*kinds, *validation) else (),
    )
    title, text = _statement(content, files, folder)
    examples = [] if is_interactive else [(case.stdin, case.stdout) for case in samples]
    dialogs = [file_text(files, name, folder) for name in files if re.match(r"data/sample/.*\.interaction$", name)]
    limits = content["limits"] if isinstance(content.get("limits"), Mapping) else {}
    return Task(
        id=folder.name,
        prompt=in_language(statement(title, {"": text, "Example": "\n\n".join(dialogs)}, examples), tests.language),
        tests=tests,
        reference=first_program(sorted(folder.glob("submissions/accepted/*.*")), tests.language),
        limits=site_limits(options, seconds=_seconds(limits, folder), memory=memory_bytes(limits.get("memory"))),
        metadata={
            "source": "Kattis",
            "name": title,
            "contest": plain(content.get("source", "")),
            **{name: plain(content[name]) for name in _METADATA if name in content},
        },
        sample_input=examples[0][0] if examples else None,
    )


def _words(value: Any) -> list[str]:
    return value.split() if isinstance(value, str) else [str(word) for word in value or ()]


def _flags(content: Mapping[str, Any], files: Mapping[str, FolderFile], folder: Path) -> tuple[str, ...]:
    """Return the flags of the output validator.

    Raises:
        ConfigurationError: If groups of tests have different ones.
    """
    own = _words(content.get("validator_flags"))
    groups = {folder / name for name in files if re.match(r"data/.*(?:testdata|test_group)\.yaml$", name)}
    found = {tuple(_words(group[name])) for group in map(decode_yaml, groups) for name in _FLAGS if name in (group or {})}
    if len(found) > 1 or (found and own and found != {tuple(own)}):
        message = f"{folder}: groups of tests whose output validators have different flags are not supported"
        raise ConfigurationError(message)
    return next(iter(found), tuple(own))


def _groups(names: list[str], folder: Path) -> Iterator[CaseGroup]:
    """Yield the groups of tests that have points: a directory whose worst test counts, with what it requires, or single tests.

    Raises:
        ConfigurationError: If the points of a group are not a number.
    """
    numbers: dict[str, list[int]] = {}
    for number, name in enumerate(names):
        numbers.setdefault(name.removeprefix("data/").rpartition("/")[0], []).append(number)
    for directory, own in numbers.items():
        if directory == "sample":
            continue
        legacy, newer = (_settings(folder / "data" / directory / name) for name in ("testdata.yaml", "test_group.yaml"))
        required = _words(newer.get("require_pass"))
        others = [number for other, found in numbers.items() if other in required for number in found]
        try:
            if newer:
                together, points = newer.get("score_aggregation", "pass-fail") != "sum", float(newer.get("max_score", 1))
                each = points / len(own)
            else:
                together, points = "min" in _words(legacy.get("grader_flags")), float(legacy.get("accept_score", 1))
                each = points
        except (TypeError, ValueError) as error:
            message = f"Expected the points of {folder / 'data' / directory} to be a number: {error}"
            raise ConfigurationError(message) from error
        if together and points > 0:
            yield CaseGroup(points=points, cases=(*others, *own))
        elif each > 0:
            yield from (CaseGroup(points=each, cases=(*others, number)) for number in own)


def _settings(path: Path) -> Mapping[str, Any]:
    """Return the settings of a group of tests, none if it has no file with them."""
    content = decode_yaml(path) if path.is_file() else None
    return content if isinstance(content, Mapping) else {}


def _judge(files: Mapping[str, FolderFile], folder: Path, flags: tuple[str, ...]) -> tuple[OutputRule, Checker | None]:
    """Return the rule, or the output validator, that decides."""
    names = [name for name in files if name.partition("/")[0] in _VALIDATORS]
    if names:
        return OutputRule.TOKENS, _validator(files, names, folder, flags)
    if set(flags) <= {"case_sensitive"}:
        return OutputRule.TOKENS if flags else OutputRule.CASE_INSENSITIVE, None
    return OutputRule.TOKENS, _checker(DEFAULT_VALIDATOR, PYTHON, {}, flags)


def _validator(files: Mapping[str, FolderFile], names: list[str], folder: Path, flags: tuple[str, ...]) -> Checker:
    """Return the output validator of a package: a program of one file, or of a directory with what belongs to it."""
    languages = {name: language for name in names if (language := language_of_file(name)) is not None}
    if len({Path(name).parent for name in languages}) != 1 or len({*languages.values()}) != 1:
        message = f"Expected {folder / names[0].partition('/')[0]} to have one program, in a language of the table"
        raise ConfigurationError(message)
    language = next(iter(languages.values()))
    sources = sorted(languages)
    directory = Path(sources[0]).parent
    main = next((name for name in sources if Path(name).stem == "main"), sources[0])
    beside = {str(Path(name).relative_to(directory)): files[name].for_tests for name in names if name != main}
    code = file_text(files, main, folder)
    if len(sources) > 1 and language in ("c", "cpp"):
        # One source is compiled, which contains the others.
        code = "".join(f'#include "{Path(name).relative_to(directory)}"\n' for name in sources)
        beside[str(Path(main).relative_to(directory))] = files[main].for_tests
    return _checker(code, language, beside, flags)


def _checker(code: str, language: str, files: dict[str, Any], flags: tuple[str, ...]) -> Checker:
    limits = GradingLimits(cpu_timeout=_VALIDATION_SECONDS, wall_timeout=3 * _VALIDATION_SECONDS)
    return Checker(code=code, language=language, files=files, limits=limits, protocol=CheckerProtocol.KATTIS, arguments=flags)


def _statement(content: Mapping[str, Any], files: Mapping[str, FolderFile], folder: Path) -> tuple[str, str]:
    """Return the title and the text, in English or the first language that there is."""
    found = [
        name
        for name in files
        if Path(name).parent.name in _STATEMENTS and re.fullmatch(r"problem(?:\.\w+)?\.(?:tex|md)", Path(name).name)
    ]
    if not found:
        message = f"Expected {folder} to have problem.en.tex, or problem.en.md, in {' or '.join(_STATEMENTS)}"
        raise ConfigurationError(message)
    text = file_text(files, next((name for name in found if ".en." in name), found[0]), folder)
    names = content.get("name")
    title = names.get("en") or next(iter(names.values()), "") if isinstance(names, Mapping) else names
    heading = re.search(r"\\problemname\{(.*)\}", text)
    return str(title or (heading[1] if heading else folder.name)), text


def _seconds(limits: Mapping[str, Any], folder: Path) -> float | None:
    """Return the time limit; None if the package leaves it to the system, which measures its submissions."""
    texts = [str(limits.get("time_limit", "")), _content(folder / ".timelimit")]
    settings = (_content(folder / name) for name in ("domjudge-problem.ini", ".kattis/domjudge-problem.ini"))
    texts += [found[1] for text in settings if (found := _TIME_LIMIT.search(text))]
    for text in texts:
        try:
            seconds = float(text)
        except ValueError:
            continue
        if 0 < seconds < math.inf:
            return seconds
    return None


def _content(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
