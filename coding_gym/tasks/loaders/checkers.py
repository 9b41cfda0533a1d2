"""Checkers in C++ that use testlib, the library of Codeforces and Polygon."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from coding_gym.errors import ConfigurationError
from coding_gym.tasks.loaders.folder_files import text_of
from coding_gym.tasks.loaders.rows import LoadOptions
from coding_gym_server.protocol.grading import Checker, FileContent

__all__ = ["checker_in_cpp"]

_HEADER = "testlib.h"
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]testlib\.h[>"]', re.MULTILINE)


def checker_in_cpp(
    code: str, options: LoadOptions, *, language: str = "cpp", files: Mapping[str, str | FileContent] | None = None
) -> Checker:
    """Return a checker, or an interactor, with the files beside it.

    Args:
        code: Its source code.
        options: Loader options: ``testlib`` is the path of testlib.h, if it is not among the files.
        language: Its language.
        files: The files beside it.

    Raises:
        ConfigurationError: If it includes testlib.h, and there is none.
    """
    beside = dict(files or {})
    if _INCLUDE.search(code) and _HEADER not in beside:
        if options.testlib is None:
            message = (
                "its checker includes testlib.h: pass testlib=PATH of this file, "
                "which https://github.com/MikeMirzayanov/testlib has, or compare='tokens' to do without its checker"
            )
            raise ConfigurationError(message)
        beside[_HEADER] = text_of(Path(options.testlib))
    # A header in brackets is not found beside the source.
    code = _INCLUDE.sub('#include "testlib.h"', code)
    return Checker(code=code, language=language, files=beside)
