"""Start coverage measurement in the Python processes of a test run, servers and sandboxes included.

Python imports this module at startup because ``measure_coverage.py`` puts its directory on ``PYTHONPATH``, the one variable
that reaches the local provider's servers, whose environment is scrubbed. coverage.py's tracer collects what a process
executes, and this module stores it in a table that all processes share: coverage.py itself saves a file when a process ends,
which Landlock forbids in a sandbox, and which SIGKILL prevents. There are three kinds of processes:

* Every process stores when it collects garbage and when it ends.
* Servers also hand the table to the zygote, which has a separate environment.
* The zygote, and all processes that it forks, also store when they send or wait for a message: most of them are killed.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib.util
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from arc_table import PATH, ROOT, ArcTable, product_files

_TABLE_VARIABLE = "CODING_GYM_COVERAGE_TABLE"
_HERE = os.path.dirname(__file__)
_OLDER_GENERATIONS = 1

# How coverage.py packs an arc into one number: two line numbers, then their signs.
_PACKED_BITS = 28
_PACKED_MASK = (1 << _PACKED_BITS) - 1


class _Measurement:
    """Measures this process and its future forks.

    Args:
        table: Where executed arcs are stored.
    """

    def __init__(self, table: ArcTable) -> None:
        import coverage

        self._table = table
        self._checksums = product_files()
        self._stored: dict[str, set[int]] = {}
        self._coverage = coverage.Coverage(data_file=None, config_file=str(ROOT / "pyproject.toml"))
        self._coverage.start()
        # No public API reads the collected data without a database in every fork.
        collector = self._coverage._collector
        assert collector is not None
        # A finalizer that runs while the tracer holds its lock, or a fork by another thread, would wait for it forever.
        collector.data_lock = None
        self._executed: dict[str, set[int]] = collector.data  # type: ignore[assignment]
        self._tracer = sys.gettrace()
        atexit.register(self.store)
        gc.callbacks.append(self._store_after_collection)
        self.store_before(os, "_exit")

    def store(self) -> None:
        """Store what has been executed since the last call."""
        # User code may be out of memory or at its recursion limit here, and must not be affected.
        with contextlib.suppress(Exception):
            for file, arcs in self._executed.copy().items():
                stored = self._stored.setdefault(file, set())
                if len(arcs) != len(stored):
                    new = arcs - stored
                    self._store_arcs(self._checksums.get(file), new)
                    stored |= new

    def store_before(self, holder: Any, name: str) -> None:
        """Make a function, such as one that waits or ends the process, store first."""
        function: Callable[..., Any] = getattr(holder, name)

        def store_first(*arguments: Any, **options: Any) -> Any:
            self.store()
            return function(*arguments, **options)

        setattr(holder, name, store_first)

    def hide_tracing(self) -> None:
        """Hide the trace function from user code, and keep it: the python backend removes one after an exception."""
        settrace, gettrace = sys.settrace, sys.gettrace

        def settrace_unless_ours(function: Any) -> None:
            if function is not None or gettrace() is not self._tracer:
                settrace(function)

        def gettrace_unless_ours() -> Any:
            return None if gettrace() is self._tracer else gettrace()

        sys.settrace, sys.gettrace = settrace_unless_ours, gettrace_unless_ours

    def _store_arcs(self, checksum: int | None, arcs: set[int]) -> None:
        if checksum is None:
            return
        for packed in arcs:
            first, second = packed & _PACKED_MASK, packed >> _PACKED_BITS & _PACKED_MASK
            signs = packed >> 2 * _PACKED_BITS
            self._table.add(checksum, (-first if signs & 1 else first, -second if signs & 2 else second))

    def _store_after_collection(self, phase: str, info: dict[str, int]) -> None:
        if phase == "stop" and info["generation"] >= _OLDER_GENERATIONS:
            self.store()


def _measure_server() -> None:
    table, descriptor = ArcTable.open()
    measurement = _Measurement(table)

    def end(*_: object) -> None:
        measurement.store()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)

    # uvicorn raises the signal again once it has shut down.
    signal.signal(signal.SIGTERM, end)
    start = subprocess.Popen.__init__

    def start_with_table(process: subprocess.Popen[Any], command: Any, *arguments: Any, **options: Any) -> None:
        if command[0] == sys.executable and options.get("env") is not None:
            options["pass_fds"] = (*options.get("pass_fds", ()), descriptor)
            options["env"] = {**options["env"], "PYTHONPATH": _HERE, _TABLE_VARIABLE: str(descriptor)}
        start(process, command, *arguments, **options)

    execute = os.execve

    def execute_with_table(path: str, arguments: list[str], environment: dict[str, str]) -> None:
        # The launcher, a fork of the server, starts zygotes.
        os.set_inheritable(descriptor, True)
        execute(path, arguments, {**environment, "PYTHONPATH": _HERE, _TABLE_VARIABLE: str(descriptor)})

    subprocess.Popen.__init__ = start_with_table  # type: ignore[assignment,method-assign]
    os.execve = execute_with_table  # type: ignore[assignment]


def _measure_zygote(descriptor: int) -> None:
    measurement = _Measurement(ArcTable(descriptor))
    os.close(descriptor)
    measurement.hide_tracing()
    for name in ("recv", "recvmsg", "sendall"):
        measurement.store_before(socket.socket, name)
    measurement.store_before(os, "waitpid")
    measurement.store_before(signal, "pause")


def _measure_ordinary_process() -> None:
    table, descriptor = ArcTable.open()
    os.close(descriptor)
    _Measurement(table)


def _is_server() -> bool:
    return "coding_gym_server" in sys.orig_argv[1:4]


def _start() -> None:
    if importlib.util.find_spec("coverage") is None:
        # An interpreter of another environment.
        return
    descriptor = os.environ.pop(_TABLE_VARIABLE, None)
    if descriptor is not None:
        del os.environ["PYTHONPATH"]
        sys.path.remove(_HERE)
        _measure_zygote(int(descriptor))
    elif PATH.exists():
        (_measure_server if _is_server() else _measure_ordinary_process)()


_start()
