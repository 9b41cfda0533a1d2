"""Tests of coding_gym. Failed assertions show their values in modules of helpers, too."""

from pathlib import Path

import pytest

pytest.register_assert_rewrite(*(f"{__name__}.{folder.name}" for folder in Path(__file__).parent.iterdir() if folder.is_dir()))
