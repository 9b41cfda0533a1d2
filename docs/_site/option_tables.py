"""Generate the tables of options in the documentation from the dataclasses that declare them.

``python docs/_site/option_tables.py`` rewrites the tables between ``<!-- options: CLASS -->`` and ``<!-- end -->``;
``tests/docs/test_option_tables.py`` fails if one is out of date.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any

from coding_gym.envs import options
from coding_gym.sandbox import config

DOCS = Path(__file__).parents[1]
CLASSES: dict[str, Any] = {
    "EnvOptions": options.EnvOptions,
    "SandboxConfig": config.SandboxConfig,
}
_TABLE = re.compile(r"(<!-- options: (\w+) -->\n\n).*?(\n<!-- end -->)", re.DOTALL)
_ENTRY = re.compile(r"^    (\w+): (.*(?:\n {6,}.*)*)", re.MULTILINE)


def descriptions(declaration: Any) -> dict[str, str]:
    """Return what the docstring of a dataclass says of each field."""
    _, _, attributes = (inspect.getdoc(declaration) or "").partition("Attributes:\n")
    return {name: " ".join(text.split()) for name, text in _ENTRY.findall(attributes)}


def option_table(declaration: Any) -> str:
    """Return a Markdown table of the fields of a dataclass: names, defaults, descriptions."""
    texts = descriptions(declaration)
    rows = [f"| `{entry.name}` | `{_default(entry)}` | {_markdown(texts[entry.name])} |\n" for entry in fields(declaration)]
    return "| option | default | |\n|---|---|---|\n" + "".join(rows)


def rewrite(text: str) -> str:
    """Return the text of a page with its tables of options as they are now."""
    return _TABLE.sub(lambda match: match[1] + option_table(CLASSES[match[2]]) + match[3], text)


def _default(entry: Field[Any]) -> str:
    value = entry.default if entry.default is not MISSING else entry.default_factory()  # type: ignore[misc]
    return repr(str(value) if isinstance(value, str) else value).replace("'", '"')


def _markdown(text: str) -> str:
    return (
        text.replace("``docs/packages.md``", "[Packages](packages.md)")
        .replace("``docs/images.md``", "[Any image](images.md)")
        .replace("``docs/backends.md``", "[Backends](backends.md)")
        .replace("``docs/doors.md``", "[Doors](doors.md)")
        .replace("``", "`")
    )


if __name__ == "__main__":
    for page in DOCS.glob("*.md"):
        page.write_text(rewrite(page.read_text(encoding="utf-8")), encoding="utf-8")
