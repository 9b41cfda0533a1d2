from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.console_blocks import run_console
from tests.docs.markdown_blocks import find_blocks
from tests.docs.python_blocks import PythonRunner


@pytest.fixture
def runner():
    return PythonRunner("page.md")


@pytest.mark.parametrize(
    "text",
    [
        "6 * 7  # 42",
        "print('a', 1)  # a 1",
        "'<div>1</div>'  # '<div>...'",
        "for number in (1, 1):\n    number  # 1",
        "x = 6  # the first factor\nx  # 6",
    ],
)
def test_true_values_are_accepted(runner, text):
    runner.run(text, 1)
    runner.finish()


@pytest.mark.parametrize("text", ["6 * 7  # 43", "print('a')  # b", "for number in (1, 2):\n    number  # 1", "'42'  # 42"])
def test_false_values_are_refused(runner, text):
    with pytest.raises(AssertionError, match=r"page.md:\d: shown"):
        runner.run(text, 1)


def test_uncomputed_values_are_refused(runner):
    runner.run("def answer():\n    6 * 7  # 42", 10)
    with pytest.raises(AssertionError, match=r"\[11\]"):
        runner.finish()


def test_errors_name_lines_of_the_page(runner):
    with pytest.raises(ZeroDivisionError) as caught:
        runner.run("x = 1\nx / 0", 20)
    assert caught.traceback[-1].lineno + 1 == 21


@pytest.mark.parametrize(("shown", "is_true"), [("42", True), ("43", False)])
def test_python_sessions_are_compared(runner, shown, is_true):
    runner.run("x = 6", 1)
    session = f">>> x * 7\n{shown}\n"
    if is_true:
        runner.run_session(session, 2)
    else:
        with pytest.raises(AssertionError, match="Expected"):
            runner.run_session(session, 2)


@pytest.mark.parametrize(
    "text",
    [
        "$ echo a\na\n",
        "$ echo a \\\n    b\na b\n",
        "$ echo a b\na ...\n",
        "$ true\n$ echo b\nb\n",
        "$ echo a\n",
        "$ coding-gym --version\ncoding-gym ...\n",
        "$ echo --version | xargs coding-gym\n",
        "$ echo a | coding-gym --version\ncoding-gym ...\n",
        "$ coding-gym --version | wc -l\n1\n",
    ],
)
def test_console_output_is_accepted(tmp_path, text):
    run_console(text, tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "$ echo a\nb\n",
        "$ false\n",
        "$ echo a\na\n$ echo b\na\n",
        "echo a\n",
        "$ false | coding-gym --version\n",
        "$ coding-gym no\n",
    ],
)
def test_false_console_output_is_refused(tmp_path, text):
    with pytest.raises(AssertionError):
        run_console(text, tmp_path)


def test_blocks_have_lines_and_directives(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        """Text.

<!-- not run: needs
     a cluster -->
```console
$ x
```

<!-- needs: docker -->

A paragraph between.

* In a list:

  ```python
  1  # 1
  ```

<!-- hidden
x = 1
-->
<!-- needs: docker, display -->
<!-- server -->
~~~console
$ y
```
~~~
"""
    )
    found = [(block.line, block.language, block.text, block.directives) for block in find_blocks(page)]
    assert found == [
        (6, "console", "$ x\n", {"not run": "needs a cluster"}),
        (16, "python", "1  # 1\n", {}),
        (20, "python", "x = 1\n", {}),
        (25, "console", "$ y\n```\n", {"needs": "docker, display", "server": ""}),
    ]


def test_every_fence_of_the_documentation_is_found():
    root = Path(__file__).parents[2]
    for page in (root / "README.md", *(root / "docs").rglob("*.md"), *root.glob("plugins/*/docs/**/*.md")):
        fences = sum(line.lstrip().startswith("```") for line in page.read_text().splitlines())
        visible = [block for block in find_blocks(page) if f"<!-- hidden\n{block.text}" not in page.read_text()]
        assert fences == 2 * len(visible), page
