"""Tests of coding_gym. Registers helper modules for pytest's assertion rewriting."""

from pathlib import Path

import pytest

pytest.register_assert_rewrite(*(f"{__name__}.{folder.name}" for folder in Path(__file__).parent.iterdir() if folder.is_dir()))
