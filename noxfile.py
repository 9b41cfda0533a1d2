"""Development tasks: ``nox -s lint``, ``nox -s test`` and so on; ``nox -l`` lists them."""

from __future__ import annotations

import nox

nox.options.sessions = ["lint", "test"]
nox.options.default_venv_backend = "uv|virtualenv"

# Of the lowest releases of Typer, Starlette and Matplotlib, with newer ones of what they require.
OLD_WARNINGS = [
    "ignore:'click.utils:DeprecationWarning",
    "ignore:The anyio.abc.BlockingPortal alias:DeprecationWarning",
    "ignore:Please use `import python_multipart`:PendingDeprecationWarning",
    "ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning",
    "ignore::pyparsing.PyparsingDeprecationWarning",
]
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, types, spelling and the import layers."""
    session.install("-e", ".[test]", *nox.project.dependency_groups(nox.project.load_toml("pyproject.toml"), "dev"))
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("codespell")
    session.run("mypy")
    session.run("lint-imports")


@nox.session(python=PYTHONS)
def test(session: nox.Session) -> None:
    """Run the quick tests on one version of Python."""
    session.install("-e", ".[test]")
    session.run("pytest", *session.posargs)


@nox.session
def test_full(session: nox.Session) -> None:
    """Run all tests; none is skipped if Docker and Xvfb are available."""
    session.install("-e", ".[test-full]")
    # A trainer: its dependencies are gigabytes, and tests import a few of its modules only.
    session.install("--no-deps", "verl==0.9.1")
    session.run("pytest", "--full", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation site into ``site/``; ``nox -s docs -- serve`` serves it instead."""
    session.install("-e", ".[docs]")
    session.run("mkdocs", *(session.posargs or ["build", "--strict"]))


@nox.session
def bench(session: nox.Session) -> None:
    """Measure sandboxes on this machine; ``nox -s bench -- --quick`` takes a tenth of the measurements."""
    session.install("-e", ".[backends]")
    session.run("python", "-m", "benchmarks", *session.posargs)


@nox.session
def image(session: nox.Session) -> None:
    """Build the image of the docker provider."""
    session.install("-e", ".")
    session.run("coding-gym", "build-image", *session.posargs)


@nox.session
def lowest(session: nox.Session) -> None:
    """Run the quick tests with the lowest version of every direct dependency."""
    session.install("uv")
    session.run("uv", "pip", "install", "--resolution", "lowest-direct", "-e", ".[test]")
    session.run("pytest", *(f"-W{warning}" for warning in OLD_WARNINGS), *session.posargs)


@nox.session
def newest(session: nox.Session) -> None:
    """Run the quick tests with the newest versions, including pre-releases."""
    session.install("--pre", "--upgrade", "-e", ".[test]")
    session.run("pytest", *session.posargs)
