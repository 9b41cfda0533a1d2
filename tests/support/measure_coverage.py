"""Measure the lines and branches of the product that a test run executes, in sandboxes too.

    python tests/support/measure_coverage.py --output DIRECTORY -n 4 --dist loadscope

runs pytest with all other arguments and writes ``coverage.json`` and ``coverage.txt``. ``--append`` adds to the data of
earlier runs. Measured are pytest and its workers, the Python processes that tests start, the local provider's servers, and the
processes that their zygotes fork: session roots, workers, displays, grading workers and test runners.

Not measured are containers, programs that a session starts, and, in a process that is killed, the code executed since it last
waited, sent a message or collected garbage. The tracer slows a run down, so tests that measure time may fail.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

from coverage import Coverage, CoverageData

_STARTUP = Path(__file__).parent / "coverage_startup"
sys.path.insert(0, str(_STARTUP))

from arc_table import PATH, ROOT, ArcTable, product_files  # noqa: E402 - only on the path of this script and its child processes


def main() -> int:
    parser = argparse.ArgumentParser(description="Run pytest and measure its coverage of the product, sandboxes included.")
    parser.add_argument("--output", type=Path, default=ROOT / ".coverage_report", help="directory of the reports")
    parser.add_argument("--append", action="store_true", help="keep what has been measured before")
    options, pytest_arguments = parser.parse_known_args()
    options.output.mkdir(parents=True, exist_ok=True)
    if not options.append:
        for path in ROOT.glob(".coverage.*"):
            path.unlink()
    ArcTable.create()
    exit_code = _run_pytest(pytest_arguments)
    _save_table()
    PATH.unlink()
    _report(options.output)
    return exit_code


def _run_pytest(arguments: list[str]) -> int:
    search_path = [str(_STARTUP), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(search_path)}
    process = subprocess.Popen([sys.executable, "-m", "pytest", *arguments], cwd=ROOT, env=environment)
    while True:
        # An interrupt ends pytest; the data measured until then is reported.
        with contextlib.suppress(KeyboardInterrupt):
            return process.wait()


def _save_table() -> None:
    """Save the executed arcs as a data file of coverage.py."""
    files = {checksum: os.path.relpath(path, ROOT) for path, checksum in product_files().items()}
    executed: dict[str, list[tuple[int, int]]] = {path: [] for path in files.values()}
    table, descriptor = ArcTable.open()
    os.close(descriptor)
    for checksum, arc in table.arcs():
        # Hostile code in a sandbox may have written to the table.
        if checksum in files:
            executed[files[checksum]].append(arc)
    data = CoverageData(str(ROOT / ".coverage"), suffix=f"run.{os.getpid()}")
    data.add_arcs(executed)
    data.touch_files(executed)
    data.write()


def _report(output: Path) -> None:
    os.chdir(ROOT)
    coverage = Coverage(config_file=str(ROOT / "pyproject.toml"))
    coverage.combine(keep=True)
    coverage.save()
    with (output / "coverage.txt").open("w") as file:
        coverage.report(file=file, show_missing=True)
    coverage.json_report(outfile=str(output / "coverage.json"))
    totals = json.loads((output / "coverage.json").read_text())["totals"]
    print(_share(totals, "lines", "covered_lines", "num_statements"))
    print(_share(totals, "branches", "covered_branches", "num_branches"))


def _share(totals: dict[str, int], what: str, covered: str, total: str) -> str:
    return f"{what} {totals[covered] / totals[total]:.2%} ({totals[covered]} of {totals[total]})"


if __name__ == "__main__":
    sys.exit(main())
