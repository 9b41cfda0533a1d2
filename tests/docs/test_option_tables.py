"""The tables of options in the documentation are generated from the declarations."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
_spec = importlib.util.spec_from_file_location("option_tables", DOCS / "_site" / "option_tables.py")
assert _spec is not None
assert _spec.loader is not None
option_tables = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(option_tables)


@pytest.mark.parametrize("page", ["environments.md", "sandboxes.md"])
def test_option_table_is_up_to_date(page):
    text = (DOCS / page).read_text(encoding="utf-8")
    assert "<!-- options: " in text
    assert option_tables.rewrite(text) == text, "run: python docs/_site/option_tables.py"


@pytest.mark.parametrize("name", option_tables.CLASSES)
def test_every_option_is_described(name):
    declaration = option_tables.CLASSES[name]
    assert {entry.name for entry in option_tables.fields(declaration)} <= set(option_tables.descriptions(declaration))
