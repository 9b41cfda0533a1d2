"""Adapters work with their libraries, in environments with pinned versions: the files in ``isolated``."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.isolated import Requirements, find_python, read_requirements, run_isolated

FILES = sorted(path for path in Path(__file__).with_name("isolated").glob("*.py") if path.name != "__init__.py")


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_isolated_tests_pass(file, request, record_property):
    counts = run_isolated(file, request.config.cache.mkdir("isolated"))
    record_property("isolated", str(counts))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_libraries_are_pinned(file):
    requirements = read_requirements(file)
    assert all("==" in name for name in (*requirements.dependencies, *requirements.alone))


def test_requirements_are_inline_metadata(tmp_path):
    file = tmp_path / "example.py"
    file.write_text(
        "# /// script\n"
        '# requires-python = ">=3.12"\n'
        '# dependencies = ["a==1", "b==2"]\n'
        "#\n"
        "# [tool.isolated]\n"
        '# alone = ["c==3"]\n'
        "# ///\n"
        "import a\n"
    )
    assert read_requirements(file) == Requirements(">=3.12", ("a==1", "b==2"), ("c==3",))


def test_python_is_found_by_version():
    assert find_python("") == sys.executable
    assert find_python(">=3.11") == sys.executable
    assert find_python("<3") is None


@pytest.mark.parametrize("text", ["", "assert 1\n", "# /// script\n# dependencies = []\n"])
def test_file_without_metadata_is_an_error(tmp_path, text):
    file = tmp_path / "example.py"
    file.write_text(text)
    with pytest.raises(AssertionError, match="inline metadata"):
        read_requirements(file)
