from __future__ import annotations

import doctest
import importlib.metadata
import json
import logging
import sys

import gymnasium as gym
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from coding_gym import AsyncCodingEnv, CodeInterpreter, SandboxConfig, SandboxPool
from coding_gym.datasets import collect
from coding_gym.errors import CodingGymError, ConfigurationError, PackageInstallError, ProviderError
from coding_gym.sandbox.packages import resolve_packages
from coding_gym.sandbox.server_config import server_config
from coding_gym.tasks import Grader
from coding_gym_server.packages import requirements as module
from coding_gym_server.packages import typos as package_typos
from coding_gym_server.packages.distributions import installed, missing, modules_of
from coding_gym_server.packages.install import reason_of
from coding_gym_server.packages.names import ALIASES, AMBIGUOUS_ALIASES, FORMER_NAMES, LOOKALIKES, POPULAR
from coding_gym_server.packages.requirements import resolve, split_list
from coding_gym_server.packages.typos import suggest
from coding_gym_server.server.command_line import parse_arguments

# Resolution


@pytest.mark.parametrize(
    "name",
    [
        "math",
        "os.path",
        "concurrent.futures",
        "dataclasses",
        "tkinter",
        "__future__",
        "_thread",
        "typing",
        "sqlite3",
        "xml.dom",
    ],
)
def test_standard_library_is_only_authorized(name):
    resolved = resolve([name])
    assert (resolved.requirements, resolved.modules) == ((), (name,))


@pytest.mark.parametrize(
    ("name", "distribution"),
    [
        ("cv2", "opencv-python-headless"),
        ("PIL", "pillow"),
        ("sklearn", "scikit-learn"),
        ("skimage", "scikit-image"),
        ("yaml", "pyyaml"),
        ("bs4", "beautifulsoup4"),
        ("dateutil", "python-dateutil"),
        ("dotenv", "python-dotenv"),
        ("git", "gitpython"),
        ("OpenSSL", "pyopenssl"),
        ("pptx", "python-pptx"),
        ("google.protobuf", "protobuf"),
        ("google.protobuf.message", "protobuf"),
        ("PIL.Image", "pillow"),
        ("sklearn.svm", "scikit-learn"),
        ("mpl_toolkits.mplot3d", "matplotlib"),
        ("ruamel", "ruamel-yaml"),
        ("discord", "discord-py"),
    ],
)
def test_import_name_resolves_to_distribution(name, distribution):
    resolved = resolve([name])
    assert (resolved.requirements, resolved.distributions) == ((distribution,), (distribution,))
    assert resolved.modules == (name,)
    assert len(resolved.aliases) == (canonicalize_name(name) != distribution)


@pytest.mark.parametrize("name", [*AMBIGUOUS_ALIASES, "docx.shared", "Crypto.Cipher"])
def test_ambiguous_import_name_error_names_both_choices(name):
    top = name.partition(".")[0]
    with pytest.raises(ValueError, match=f"'{name}' is ambiguous.*Pass '{AMBIGUOUS_ALIASES[top]}' or '{top}>=0'"):
        resolve([name])
    assert resolve([f"{top}>=0"]).distributions == (canonicalize_name(top),)


@pytest.mark.parametrize(
    ("name", "distribution"),
    [
        ("scikit-learn", "scikit-learn"),
        ("opencv-python", "opencv-python"),
        ("more_itertools", "more-itertools"),
        ("Flask", "flask"),
        ("zope.interface", "zope-interface"),
        ("google.cloud.storage", "google-cloud-storage"),
        ("ruamel.yaml", "ruamel-yaml"),
        ("ruamel.yaml.clib", "ruamel-yaml-clib"),
        ("matplotlib.pyplot", "matplotlib"),
        ("numpy.linalg", "numpy"),
        ("zc.lockfile", "zc-lockfile"),
        ("psycopg2", "psycopg2"),
    ],
)
def test_other_names_are_taken_as_distributions(name, distribution):
    resolved = resolve([name])
    assert resolved.requirements == (distribution,)


@pytest.mark.parametrize(
    ("written", "requirement"),
    [
        ("numpy>=2", "numpy>=2"),
        ("NumPy >= 2 , != 2.1.*, <3", "numpy!=2.1.*,<3,>=2"),
        ("torch[extra]==2.1", "torch[extra]==2.1"),
        ("uvicorn[standard, B_c]", "uvicorn[b-c,standard]"),
        ("x ~= 1.4.2", "x~=1.4.2"),
        ("x===1.0+local", "x===1.0+local"),
        ("x==1!2.0rc1", "x==1!2.0rc1"),
        ("sklearn>=1.3", "scikit-learn>=1.3"),
        ("yaml[a]", "pyyaml[a]"),
        ("toolz @ https://example.org/toolz-1.0-py3-none-any.whl", "toolz @ https://example.org/toolz-1.0-py3-none-any.whl"),
        ("toolz@git+https://example.org/toolz#egg=x", "toolz @ git+https://example.org/toolz#egg=x"),
        ("yaml @ https://example.org/y.zip", "yaml @ https://example.org/y.zip"),
        ("toolz;python_version>'3'", 'toolz; python_version > "3"'),
        ("yaml>=6,; python_version<'3.13' and extra=='x'", 'pyyaml>=6; python_version < "3.13" and extra == "x"'),
        ("sklearn; python_version<'4'", 'scikit-learn; python_version < "4"'),
        ("toolz(>=1)", "toolz>=1"),
    ],
)
def test_versions_extras_and_urls_are_normalised(written, requirement):
    # Releases of packaging differ in the spaces around "@".
    assert resolve([written]).requirements == (str(Requirement(requirement)),)


def test_equivalent_requirements_have_one_canonical_form():
    assert resolve(["Yaml_X>=1,<2", "toolz"]) == resolve(["toolz", "yaml-x <2, >=1", "toolz"])
    assert resolve(["PyYAML", "pyyaml"]).requirements == ("pyyaml",)
    assert resolve([]) == module.ResolvedPackages()


@pytest.mark.parametrize(
    ("mistyped", "meant"),
    [
        ("dataclass", "dataclasses"),
        ("collection", "collections"),
        ("dateime", "datetime"),
        ("itertool", "itertools"),
        ("maths", "math"),
        ("Tkinter", "tkinter"),
        ("Queue", "queue"),
        ("ConfigParser", "configparser"),
        ("cPickle", "pickle"),
        ("urllib2", "urllib.request"),
        ("JSON", "json"),
        ("asnycio.queues", "asyncio.queues"),
    ],
)
def test_misspelt_standard_modules_are_detected(mistyped, meant):
    with pytest.raises(
        ValueError, match=f"'{mistyped}' looks like a misspelling; did you mean '{meant}' of the standard library"
    ):
        resolve([mistyped])


@pytest.mark.parametrize(
    ("mistyped", "meant"),
    [
        ("reqeusts", "requests"),
        ("nummpy", "numpy"),
        ("pandsa", "pandas"),
        ("matplotib", "matplotlib"),
        ("skleran", "sklearn"),
        ("pil", "PIL"),
        ("CV2", "cv2"),
    ],
)
def test_misspelt_popular_distributions_are_detected(mistyped, meant):
    with pytest.raises(ValueError, match=f"did you mean '{meant}'.* Pass '{mistyped}>=0' to use this name"):
        resolve([mistyped])


@pytest.mark.parametrize("name", sorted(LOOKALIKES | POPULAR))
def test_popular_distributions_are_not_suspicious(name):
    # The spelling on PyPI; the lower-case name is a module of the standard library.
    resolved = resolve(["DateTime" if name == "datetime" else name])
    assert resolved.requirements == (name,)


@pytest.mark.parametrize("name", ["contextlib2", "pathlib2", "urllib3", "boto", "xarray", "bcrypt", "rarfile", "simpy", "nump"])
def test_distinct_names_are_not_misspellings(name):
    assert resolve([name]).requirements == (name,)


def test_name_with_version_is_taken_literally():
    assert resolve(["dataclass>=0", "typing>=3", "Queue[x]"]) == module.ResolvedPackages(
        requirements=("dataclass>=0", "queue[x]", "typing>=3"), distributions=("dataclass", "queue", "typing")
    )


def test_typo_error_names_all_meanings():
    assert suggest("colecions") == ()
    several = next(name for name in sorted(single_slips()) if len(suggest(name)) > 1)
    with pytest.raises(ValueError, match=r"did you mean '.* or '"):
        resolve([several])


def single_slips():
    """Yield all well-known names with one letter missing, doubled, or swapped with the next."""
    names = {canonicalize_name(name) for name in (*sys.stdlib_module_names, *ALIASES, *AMBIGUOUS_ALIASES, *POPULAR)}
    for name in names:
        for index in range(1, len(name)):
            yield name[:index] + name[index + 1 :]
            yield name[:index] + name[index] + name[index:]
            yield name[:index] + name[index : index + 2][::-1] + name[index + 2 :]


def test_single_slips_never_install_another_distribution():
    slips = {name for name in single_slips() if name not in ALIASES}
    refused = 0
    for name in slips:
        try:
            resolved = resolve([name])
        except ValueError:
            refused += 1
        else:
            literal = (canonicalize_name(name),)
            exact = name.partition(".")[0] in sys.stdlib_module_names
            assert resolved.requirements == (() if exact else literal), name
    assert refused > len(slips) / 2


@pytest.mark.parametrize("name", ["opcodes", "dotenvy", "magica", "plast", "crypto", "emaily", "pil"])
def test_version_specifier_overrides_misspelling_check(name):
    with pytest.raises(ValueError, match=f"'{name}>=0' to use this name"):
        resolve([name])
    assert resolve([f"{name}>=0"]).requirements == (f"{name}>=0",)


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "-r requirements.txt", "--index-url=http://127.0.0.1", "--pre", "-e .", ".", "./toolz", "/tmp/x", "../x"),
        *("toolz humanize", "toolz --pre", "toolz==1 --hash=sha256:0", "toolz;--pre", "toolz,humanize"),
        *("toolz\nRUN id", "toolz==1\n--pre", "toolz\rx", "toolz\0", "toolz==$(id)", "toolz=='1'", "toolz==1`id`", "toolz|x"),
        *("toolz @ x", "toolz @ /tmp/x", "toolz @ -r://x y", "toolz @ https://x\nRUN id", "https://x/y", "git+https://x/y"),
        *("toolz==", "toolz=1", "toolz>=1,,", "toolz[", "toolz[a]b", "[a]", "==1", "é", "t\N{CYRILLIC SMALL LETTER O}olz"),
        *("_toolz", "toolz_", "__x__", "-toolz", "toolz-", ".toolz", "toolz.", "toolz==-1", "@ https://x"),
    ],
)
def test_invalid_package_is_refused(text):
    with pytest.raises(ValueError, match="Expected the name of a package"):
        resolve([text])


def test_alias_tables_are_consistent():
    assert len(ALIASES) + len(AMBIGUOUS_ALIASES) >= 60
    assert not set(ALIASES) & set(AMBIGUOUS_ALIASES)
    for name, distribution in (*ALIASES.items(), *AMBIGUOUS_ALIASES.items()):
        assert name.partition(".")[0] not in sys.stdlib_module_names
        assert canonicalize_name(name) != canonicalize_name(distribution), name
    assert all(meant.partition(".")[0] in sys.stdlib_module_names for meant in FORMER_NAMES.values())


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("", []),
        (" , ,", []),
        ("math", ["math"]),
        ("yaml, numpy>=2,<3, torch[a,b]==1,!=2", ["yaml", "numpy>=2,<3", "torch[a,b]==1,!=2"]),
        ("a,b,c\nd", ["a", "b", "c", "d"]),
        ("x[a, b], y >= 1 , < 2", ["x[a, b]", "y >= 1 , < 2"]),
    ],
)
def test_comma_separated_lists_are_split(text, entries):
    assert split_list(text) == entries


def test_docstring_examples_are_correct():
    assert doctest.testmod(module).failed == doctest.testmod(package_typos).failed == 0


# Installed distributions


def test_installed_lists_all_distributions():
    there = installed()
    for distribution in importlib.metadata.distributions():
        ours = there[canonicalize_name(distribution.metadata["Name"])]
        assert ours.version in (distribution.version, "")
    assert there["numpy"].pin == f"numpy=={importlib.metadata.version('numpy')}"
    assert missing(["numpy", "numpy>=1", "not-there"]) == ["numpy>=1", "not-there"]


def test_modules_of_distributions_are_found():
    assert modules_of(["attrs"]) == {"attr", "attrs"}
    assert {"matplotlib", "mpl_toolkits"} <= modules_of(["matplotlib"])
    assert modules_of(["numpy", "pytest"]) == {"numpy", "_pytest", "pytest", "py"}
    assert modules_of(["not-there"]) == set()


def test_malformed_distribution_metadata_is_tolerated(tmp_path, monkeypatch):
    for name in ("broken-1.0.dist-info", "linked.egg-info", "-.dist-info", "odd-x y.dist-info"):
        (tmp_path / name).mkdir()
    (tmp_path / "broken-1.0.dist-info" / "RECORD").write_text(
        '"a,b.py",,\n../../bin/x,,\nmod.cpython-311-x86.so,,\npkg/a.py,,\n'
    )
    (tmp_path / "linked.egg-info" / "top_level.txt").write_text("linked\nnot-one\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(tmp_path / "gone"), str(tmp_path / "x.zip"), ""])
    there = installed()
    assert (there["broken"].pin, there["linked"].pin, there["odd"].pin) == ("broken==1.0", None, None)
    assert modules_of(["broken", "linked"]) == {"mod", "pkg", "linked"}


def test_reason_is_extracted_from_pip_output():
    log = [
        "Collecting x",
        "WARNING: odd",
        "WARNING: Retrying 1",
        "WARNING: Retrying 2",
        "ERROR: no",
        "because",
        "[notice] new pip",
    ]
    assert reason_of(log) == ["WARNING: Retrying 2", "ERROR: no", "because"]
    assert reason_of(["/usr/bin/python: No module named pip"]) == ["/usr/bin/python: No module named pip"]
    assert reason_of([]) == ["pip printed nothing"]


# Settings


@pytest.mark.parametrize("packages", ["toolz", None, [1], {"toolz": 1}, [None], ["--pre"], ["toolz", "./x"]])
def test_bad_settings_are_refused(packages):
    with pytest.raises(ConfigurationError, match="packages"):
        SandboxConfig(packages=packages)


def test_suspicious_name_raises_configuration_error():
    with pytest.raises(ConfigurationError, match=r"packages=: 'reqeusts' looks like a misspelling; did you mean 'requests'\?"):
        SandboxConfig(packages=["reqeusts"])


@pytest.mark.parametrize(
    "make",
    [
        lambda **options: gym.make("CodingEnv-v0", **options),
        lambda **options: gym.make_vec("CodingEnv-v0", num_envs=2, **options),
        AsyncCodingEnv,
        SandboxPool,
        Grader,
        CodeInterpreter,
        lambda **options: collect("CodingEnv-v0", "random", 1, seed=1, path="data", env_options=options),
    ],
    ids=["env", "vector", "async", "pool", "grader", "interpreter", "collect"],
)
def test_suspicious_name_is_refused_everywhere(make, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match="did you mean 'requests'"):
        make(provider="local", packages=["reqeusts"])


def test_log_names_aliases_and_standard_modules(caplog):
    caplog.set_level(logging.INFO, logger="coding_gym")
    resolve_packages(SandboxConfig(packages=("wx", "graphlib")))
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("INFO", "packages: 'wx' stands for the distribution 'wxPython'"),
        ("WARNING", "packages: 'graphlib' is a module of the standard library: it is authorized, and nothing is installed"),
    ]


def test_packages_with_base_url_are_refused():
    with pytest.raises(ConfigurationError, match="packages= cannot be combined with base_url="):
        SandboxConfig(provider="remote", base_url="http://127.0.0.1:1", packages=["toolz"])


def test_server_configuration_has_authorized_imports(monkeypatch):
    monkeypatch.delenv("ADDITIONAL_IMPORTS", raising=False)
    document = server_config(SandboxConfig(packages=["math", "yaml", "toolz>=1", "dataclasses"])).document()
    config = parse_arguments(["--config", document])
    assert config.authorized_imports == ("dataclasses", "math", "yaml")
    assert config.distributions == ("pyyaml", "toolz")
    assert not {"authorized_imports", "distributions"} & json.loads(server_config(SandboxConfig()).document()).keys()


def test_packages_are_read_from_arguments_and_environment(monkeypatch):
    monkeypatch.setenv("ADDITIONAL_IMPORTS", "math, numpy>=2,<3")
    assert parse_arguments(["--packages", "yaml,toolz[a,b]"]).packages == ("yaml", "toolz[a,b]", "math", "numpy>=2,<3")
    assert parse_arguments(["--overlay", "/x"]).packages == ()
    with pytest.raises(SystemExit):
        parse_arguments(["--overlay", "/x", "--packages", "yaml"])


def test_install_error_has_requirements_and_log():
    error = PackageInstallError(["toolz"], ["ERROR: no"], ["Collecting", "ERROR: no"])
    assert isinstance(error, (ProviderError, CodingGymError))
    assert (str(error), error.requirements, error.log[0]) == (
        "Cannot install toolz. pip says:\n  | ERROR: no",
        ("toolz",),
        "Collecting",
    )
