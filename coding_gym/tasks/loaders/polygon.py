"""Packages of Polygon, the system in which problems of Codeforces are made: ``problem.xml``, ``tests/``, ``files/``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from coding_gym.errors import ConfigurationError
from coding_gym.tasks.loaders.checkers import checker_in_cpp
from coding_gym.tasks.loaders.folder_files import FolderFile, files_below, text_of
from coding_gym.tasks.loaders.package_files import case_of_files, file_text, first_program, language_of_file
from coding_gym.tasks.loaders.programs import program_tests
from coding_gym.tasks.loaders.rows import LoadOptions, known_language
from coding_gym.tasks.loaders.site_limits import memory_bytes, seconds_of, site_limits
from coding_gym.tasks.loaders.statements import in_language, statement
from coding_gym.tasks.task import Task
from coding_gym_server.languages import PYTHON
from coding_gym_server.protocol.grading import CaseGroup, Checker, OutputRule

__all__ = ["polygon_task"]

_RULES = {
    **dict.fromkeys(("std::wcmp.cpp", "std::ncmp.cpp", "std::icmp.cpp", "std::hcmp.cpp"), OutputRule.TOKENS),
    **dict.fromkeys(("std::yesno.cpp", "std::nyesno.cpp"), OutputRule.CASE_INSENSITIVE),
}
"""Checkers of testlib that compare as a rule does, which needs no compiler."""

_SECTIONS = {
    "": "legend",
    "Input": "input",
    "Output": "output",
    "Interaction": "interaction",
    "Scoring": "scoring",
    "Note": "notes",
}
_TEX = "application/x-tex"
_HEADERS = (".h", ".hpp")
_PATTERN = re.compile(r"%0?\d*d")


def polygon_task(folder: Path, options: LoadOptions) -> Task:
    """Return the task of a package.

    Args:
        folder: The unpacked package: a full one, as a standard one lacks the tests that are generated.
        options: Loader options.

    Raises:
        ConfigurationError: If the package lacks a part, or uses what is not supported; the message names it.
    """
    root = _parse(folder / "problem.xml")
    files = files_below(folder)
    testset = _testset(root, folder)
    tests = testset.findall("tests/test")
    count = int(text) if (text := testset.findtext("test-count") or "").isdigit() else len(tests)
    given, wanted = (_pattern(testset, f"{name}-path-pattern", folder) for name in ("input", "answer"))
    names = [(given % number, wanted % number) for number in range(1, count + 1)]
    cases = [case_of_files(files, *pair, folder) for pair in names]
    samples = [case for case, test in zip(cases, tests, strict=False) if test.get("sample") == "true"]
    judging = next(root.iter("judging"))
    streams = {f"{name}_file": judging.get(f"{name}-file", "") for name in ("input", "output")}
    interactor = _program(root.find("assets/interactor"), files, folder, options)
    rule, checker = _checker(root, files, folder, options)
    pairs = [(case.stdin, case.stdout) for case in cases]
    found = program_tests(
        pairs,
        options,
        rule,
        checker=checker,
        interactor=interactor,
        default_tolerance=None,
        groups=_groups(testset, count),
        **streams,
    )
    title, prompt = _statement(root, files, folder, [(case.stdin, case.stdout) for case in samples], streams)
    limits = seconds_of(testset.findtext("time-limit")), memory_bytes(testset.findtext("memory-limit"))
    return Task(
        id=root.get("short-name") or folder.name,
        prompt=in_language(prompt, found.language),
        tests=found,
        reference=_reference(root, folder, known_language(options.language or PYTHON)),
        limits=site_limits(options, seconds=limits[0], memory=limits[1]),
        metadata={
            "source": "Polygon",
            "name": title,
            "url": root.get("url", ""),
            "tags": [tag.get("value", "") for tag in root.findall("tags/tag")],
        },
        sample_input=samples[0].stdin if samples and interactor is None else None,
    )


def _parse(path: Path) -> ElementTree.Element:
    try:
        return ElementTree.fromstring(text_of(path))  # noqa: S314 - expat refuses to expand entities without end
    except ElementTree.ParseError as error:
        message = f"Expected {path} to be XML: {error}"
        raise ConfigurationError(message) from error


def _testset(root: ElementTree.Element, folder: Path) -> ElementTree.Element:
    """Return the set of tests that decide: others are those that are run first."""
    testsets = root.findall("judging/testset")
    if not testsets:
        message = f"Expected {folder / 'problem.xml'} to have a testset"
        raise ConfigurationError(message)
    return next((testset for testset in testsets if testset.get("name") == "tests"), testsets[-1])


def _pattern(testset: ElementTree.Element, name: str, folder: Path) -> str:
    pattern = testset.findtext(name) or ""
    if len(_PATTERN.findall(pattern)) != 1 or pattern.count("%") != 1:
        message = (
            f"Expected {name} of {folder / 'problem.xml'} to be a path with one number, such as tests/%02d, got {pattern!r}"
        )
        raise ConfigurationError(message)
    return pattern


def _groups(testset: ElementTree.Element, count: int) -> Iterator[CaseGroup]:
    """Yield the groups of tests that have points: of a whole group, with those that it depends on, or of single tests."""
    elements = {group.get("name", ""): group for group in testset.findall("groups/group")}
    tests: dict[str, dict[int, float]] = {}
    for number, test in enumerate(testset.findall("tests/test")[:count]):
        tests.setdefault(test.get("group", ""), {})[number] = _points(test)

    def needed_by(name: str, seen: set[str]) -> set[str]:
        for dependency in elements[name].findall("dependencies/dependency") if name in elements else ():
            if (other := dependency.get("group", "")) not in seen:
                seen |= needed_by(other, {*seen, other})
        return seen

    for name, points in tests.items():
        others = sorted({number for other in needed_by(name, {name}) - {name} for number in tests.get(other, ())})
        element = elements.get(name)
        if element is not None and element.get("points-policy") == "complete-group":
            total = _points(element) or sum(points.values())
            if total > 0:
                yield CaseGroup(points=total, cases=(*others, *points))
        else:
            yield from (CaseGroup(points=each, cases=(*others, number)) for number, each in points.items() if each > 0)


def _points(element: ElementTree.Element) -> float:
    text = element.get("points", "0")
    try:
        return float(text)
    except ValueError as error:
        message = f"Expected the points of a {element.tag} of problem.xml to be a number, got {text!r:.100}"
        raise ConfigurationError(message) from error


def _checker(
    root: ElementTree.Element, files: dict[str, FolderFile], folder: Path, options: LoadOptions
) -> tuple[OutputRule, Checker | None]:
    element = root.find("assets/checker")
    if element is None:
        message = f"Expected {folder / 'problem.xml'} to have a checker"
        raise ConfigurationError(message)
    rule = _RULES.get(element.get("name", ""))
    return (OutputRule.TOKENS, _program(element, files, folder, options)) if rule is None else (rule, None)


def _program(
    element: ElementTree.Element | None, files: dict[str, FolderFile], folder: Path, options: LoadOptions
) -> Checker | None:
    """Return a checker or an interactor, with the resources of the package."""
    if element is None:
        return None
    source = element.find("source")
    path = "" if source is None else source.get("path", "")
    language = language_of_file(path)
    if language is None:
        message = (
            f"Expected the {element.tag} of {folder / 'problem.xml'} to have a source in a language of the table, got {path!r}"
        )
        raise ConfigurationError(message)
    directory = Path(path).parent
    beside = {
        Path(name).name: file.for_tests
        for name, file in files.items()
        if Path(name).parent == directory and Path(name).suffix in _HEADERS
    }
    return checker_in_cpp(file_text(files, path, folder), options, language=language, files=beside)


def _statement(
    root: ElementTree.Element,
    files: dict[str, FolderFile],
    folder: Path,
    samples: list[tuple[str, str]],
    streams: dict[str, str],
) -> tuple[str, str]:
    """Return the title and the prompt, in English or the first language that there is; formulas are in TeX."""
    names = {name.get("language", ""): name.get("value", "") for name in root.findall("names/name")}
    language = "english" if "english" in names or not names else next(iter(names))
    title = names.get(language, "")
    sections = {heading: f"statement-sections/{language}/{name}.tex" for heading, name in _SECTIONS.items()}
    if sections[""] in files:
        parts = {heading: file_text(files, path, folder) for heading, path in sections.items() if path in files}
        return title, statement(title, parts, samples, **streams)
    for element in root.findall("statements/statement"):
        if element.get("type") == _TEX and element.get("language", language) == language:
            return title, statement(title, {"": file_text(files, element.get("path", ""), folder)}, samples, **streams)
    message = f"Expected {folder} to have {sections['']}, or a statement in TeX"
    raise ConfigurationError(message)


def _reference(root: ElementTree.Element, folder: Path, language: str) -> str | None:
    """Return the main solution, or else another right one, in a language."""
    solutions = root.findall("assets/solutions/solution")
    paths = [
        folder / source.get("path", "")
        for tag in ("main", "accepted")
        for solution in solutions
        if solution.get("tag") == tag and (source := solution.find("source")) is not None
    ]
    return first_program(paths, language)
