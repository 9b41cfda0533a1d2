"""Modules that are edited and imported again within the same second."""

from __future__ import annotations

import pytest

WRITE = "import importlib, os, subprocess, sys\nopen('helper.py', 'w').write('value = {value}')\n"
AGAIN = {
    "reload": "import helper; importlib.reload(helper)",
    "new import": "sys.modules.pop('helper', None); importlib.invalidate_caches(); import helper",
    "after a process": "subprocess.run([sys.executable, '-c', 'import helper']); import helper; importlib.reload(helper)",
    "of the future": "os.utime('helper.py', (4e9, 4e9)); import helper; importlib.reload(helper)",
}


@pytest.mark.parametrize("name", AGAIN)
def test_edit_within_a_second_counts(session, name):
    session.reset()
    for value in (1, 2, 3, 4, 5, 6):
        assert session.run(f"{WRITE.format(value=value)}{AGAIN[name]}\nprint(helper.value)").stdout == f"{value}\n"


def test_bytecode_of_older_files_is_used(session):
    session.reset()
    session.run(f"{WRITE.format(value=1)}os.utime('helper.py', (1e9, 1e9)); import helper")
    assert session.run("print(os.listdir('__pycache__')[0].partition('.')[0])").stdout == "helper\n"
    # Unnoticed, as in any interpreter: the recorded times are the same.
    session.run(f"{WRITE.format(value=2)}os.utime('helper.py', (1e9, 1e9)); importlib.reload(helper)")
    assert session.run("print(helper.value)").stdout == "1\n"
