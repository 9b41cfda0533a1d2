"""Progress of what takes long."""

from __future__ import annotations

import logging
import os
import pty
import subprocess
import sys
import textwrap

import pytest

from coding_gym.waiting import BAR, waiting_for
from tests.support.timing import eventually

LOG = logging.getLogger("coding_gym")


def test_line_is_logged_without_a_terminal(caplog):
    with waiting_for("installing toolz", LOG) as advance:
        assert caplog.messages == ["installing toolz"]
        advance()
    assert caplog.messages == ["installing toolz"]


def test_line_is_logged_only_if_it_takes_long(caplog):
    with waiting_for("starting", LOG, patience=3600):
        pass
    with waiting_for("starting again", LOG, patience=0.01):
        assert eventually(lambda: caplog.messages)
    assert caplog.messages == ["starting again"]


def test_failure_ends_the_wait(caplog):
    with pytest.raises(KeyError), waiting_for("starting", LOG, patience=3600):
        raise KeyError
    assert not BAR.locked()


def test_bar_is_shown_on_a_terminal():
    program = """
        import logging, threading
        from coding_gym.waiting import waiting_for
        log = logging.getLogger("coding_gym")
        with waiting_for("starting [sandboxes]", log, total=3) as advance:
            advance(); advance()
            # A second bar would overwrite the first.
            with waiting_for("installing toolz", log):
                pass
            advance()
        print("end")
    """
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    command = [sys.executable, "-c", textwrap.dedent(program)]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    shown = b""
    try:
        while data := os.read(ours, 65536):
            shown += data
    except OSError:
        # The terminal has been closed.
        pass
    os.close(ours)
    assert process.wait() == 0, shown
    text = shown.decode()
    assert "starting [sandboxes]" in text
    assert "3/3" in text
    assert text.count("installing toolz") == 1
    assert text.rstrip().endswith("end")
