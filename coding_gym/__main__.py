"""The ``coding-gym`` command line: ``python -m coding_gym``."""

from coding_gym.cli.main import app

app(prog_name="coding-gym")
