"""Files of packages of contest problems, of Polygon and of Kattis: tests, and programs in languages that their names tell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from coding_gym.errors import ConfigurationError
from coding_gym.tasks.loaders.folder_files import FolderFile, text_of
from coding_gym.tasks.loaders.rows import is_language
from coding_gym_server.languages import PYTHON, languages
from coding_gym_server.protocol.grading import ProgramCase

__all__ = ["case_of_files", "file_text", "first_program", "language_of_file"]

_LANGUAGES = {
    **{Path(language.file).suffix: language.name for language in reversed(languages().values())},
    **dict.fromkeys((".cc", ".cxx", ".c++", ".C"), "cpp"),
    **dict.fromkeys((".py", ".py3"), PYTHON),
}
_PYTHON_2 = "python2"


def language_of_file(name: str) -> str | None:
    """Return the language of a source file; None if it is none of the table of languages."""
    return _LANGUAGES.get(Path(name).suffix)


def file_text(files: Mapping[str, FolderFile], name: str, folder: Path) -> str:
    """Return the text of a file of a package.

    Raises:
        ConfigurationError: If there is none, or it is not UTF-8.
    """
    if name not in files:
        message = f"Expected {folder / name} to be a file: the package is not complete, as one without generated tests is"
        raise ConfigurationError(message)
    text = files[name].for_tests
    if not isinstance(text, str):
        message = f"Expected {folder / name} to be a file with text"
        raise ConfigurationError(message)
    return text


def case_of_files(files: Mapping[str, FolderFile], given: str, wanted: str, folder: Path) -> ProgramCase:
    """Return the test of two files, an input and the expected output.

    Raises:
        ConfigurationError: If one is not there, or is not UTF-8.
    """
    return ProgramCase(stdin=file_text(files, given, folder), stdout=file_text(files, wanted, folder))


def first_program(paths: Iterable[Path], language: str) -> str | None:
    """Return the text of the first source file in a language; None if there is none."""
    for path in paths:
        if is_language(language_of_file(path.name) or "", language):
            text = text_of(path)
            if _PYTHON_2 not in text.partition("\n")[0]:
                return text
    return None
