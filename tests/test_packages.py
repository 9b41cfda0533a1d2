from __future__ import annotations

import doctest
import importlib.metadata
import sys

import pytest

from coding_gym import SandboxConfig
from coding_gym.errors import CodingGymError, ConfigurationError, PackageInstallError, ProviderError
from coding_gym.providers.arguments import server_arguments
from coding_gym_server import packages as module
from coding_gym_server.config import parse_arguments
from coding_gym_server.distributions import installed, missing, modules_of
from coding_gym_server.installation import reason_of
from coding_gym_server.package_names import DISTRIBUTIONS, FORMER_NAMES, OFTEN_USED, REAL_NAMES
from coding_gym_server.packages import canonical_name, resolve, split_list

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
def test_the_standard_library_is_only_authorised(name):
    resolved = resolve([name])
    assert (resolved.requirements, resolved.modules, resolved.corrections) == ((), (name,), ())


@pytest.mark.parametrize(
    ("name", "distribution"),
    [
        ("cv2", "opencv-python-headless"),
        ("PIL", "pillow"),
        ("sklearn", "scikit-learn"),
        ("skimage", "scikit-image"),
        ("yaml", "pyyaml"),
        ("bs4", "beautifulsoup4"),
        ("Crypto", "pycryptodome"),
        ("dateutil", "python-dateutil"),
        ("dotenv", "python-dotenv"),
        ("git", "gitpython"),
        ("serial", "pyserial"),
        ("OpenSSL", "pyopenssl"),
        ("jwt", "pyjwt"),
        ("fitz", "pymupdf"),
        ("docx", "python-docx"),
        ("pptx", "python-pptx"),
        ("attr", "attrs"),
        ("google.protobuf", "protobuf"),
        ("google.protobuf.message", "protobuf"),
        ("PIL.Image", "pillow"),
        ("sklearn.svm", "scikit-learn"),
        ("mpl_toolkits.mplot3d", "matplotlib"),
        ("ruamel", "ruamel-yaml"),
        ("discord", "discord-py"),
    ],
)
def test_an_import_name_stands_for_its_distribution(name, distribution):
    resolved = resolve([name])
    assert (resolved.requirements, resolved.distributions) == ((distribution,), (distribution,))
    assert resolved.modules == (name,)
    assert resolved.corrections == ()


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
    ],
)
def test_other_names_are_those_of_distributions(name, distribution):
    resolved = resolve([name])
    assert (resolved.requirements, resolved.corrections) == ((distribution,), ())


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
    ],
)
def test_versions_extras_and_addresses(written, requirement):
    assert resolve([written]).requirements == (requirement,)


def test_one_meaning_has_one_form_whatever_the_order_and_the_spelling():
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
def test_near_misses_of_the_standard_library(mistyped, meant):
    resolved = resolve([mistyped])
    assert (resolved.requirements, resolved.modules) == ((), (meant,))
    assert resolved.corrections == (f"{mistyped!r} was taken for {meant!r}",)


@pytest.mark.parametrize(
    ("mistyped", "distribution"),
    [
        ("reqeusts", "requests"),
        ("nummpy", "numpy"),
        ("pandsa", "pandas"),
        ("matplotib", "matplotlib"),
        ("skleran", "scikit-learn"),
        ("pil", "pillow"),
        ("CV2", "opencv-python-headless"),
    ],
)
def test_near_misses_of_what_is_well_known(mistyped, distribution):
    resolved = resolve([mistyped])
    assert resolved.requirements == (distribution,)
    assert len(resolved.corrections) == 1


@pytest.mark.parametrize("name", sorted(REAL_NAMES | OFTEN_USED))
def test_no_correction_replaces_a_much_used_distribution(name):
    # As it is written on PyPI; the module of the same name in lower case is the standard library's.
    resolved = resolve(["DateTime" if name == "datetime" else name])
    assert (resolved.requirements, resolved.corrections) == ((name,), ())


@pytest.mark.parametrize("name", ["contextlib2", "pathlib2", "urllib3", "boto", "xarray", "bcrypt", "rarfile", "simpy", "nump"])
def test_another_word_is_no_slip(name):
    assert resolve([name]).requirements == (name,)
    assert resolve([name]).corrections == ()


def test_a_version_has_a_name_taken_literally():
    assert resolve(["dataclass>=0", "typing>=3", "Queue[x]"]) == module.ResolvedPackages(
        requirements=("dataclass>=0", "queue[x]", "typing>=3"), distributions=("dataclass", "queue", "typing")
    )


def test_an_ambiguous_slip_is_left_alone():
    # One letter from attr and from attrs.
    assert resolve(["attrr"]).requirements in {("attrr",), ("attrs",)}
    assert resolve(["typees"]).corrections in {(), ("'typees' was taken for 'types'",)}


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "-r requirements.txt", "--index-url=http://127.0.0.1", "--pre", "-e .", ".", "./toolz", "/tmp/x", "../x"),
        *("toolz humanize", "toolz --pre", "toolz==1 --hash=sha256:0", "toolz;python_version>'3'", "toolz,humanize"),
        *("toolz\nRUN id", "toolz==1\n--pre", "toolz\rx", "toolz\0", "toolz==$(id)", "toolz=='1'", "toolz==1`id`", "toolz|x"),
        *("toolz @ x", "toolz @ /tmp/x", "toolz @ -r://x y", "toolz @ https://x\nRUN id", "https://x/y", "git+https://x/y"),
        *("toolz==", "toolz=1", "toolz>=1,", "toolz[", "toolz[a]b", "[a]", "==1", "é", "t\N{CYRILLIC SMALL LETTER O}olz"),
        *("_toolz", "toolz_", "__x__", "-toolz", "toolz-", ".toolz", "toolz.", "toolz==-1", "@ https://x"),
    ],
)
def test_what_is_no_package_is_refused(text):
    with pytest.raises(ValueError, match="Expected the name of a package"):
        resolve([text])


def test_the_tables_are_in_order():
    assert len(DISTRIBUTIONS) >= 60
    for name, distribution in DISTRIBUTIONS.items():
        assert name.partition(".")[0] not in sys.stdlib_module_names
        assert canonical_name(name) != canonical_name(distribution), name
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
def test_lists_with_commas(text, entries):
    assert split_list(text) == entries


def test_the_examples_of_the_docstrings():
    assert doctest.testmod(module).failed == 0


# What is installed


def test_what_the_interpreter_has():
    there = installed()
    for distribution in importlib.metadata.distributions():
        ours = there[canonical_name(distribution.metadata["Name"])]
        assert ours.version in (distribution.version, "")
    assert there["numpy"].pin == f"numpy=={importlib.metadata.version('numpy')}"
    assert missing(["numpy", "numpy>=1", "not-there"]) == ["numpy>=1", "not-there"]


def test_the_modules_of_distributions():
    assert modules_of(["pyyaml"]) == {"_yaml", "yaml"}
    assert {"matplotlib", "mpl_toolkits"} <= modules_of(["matplotlib"])
    assert modules_of(["numpy", "pytest"]) == {"numpy", "_pytest", "pytest", "py"}
    assert modules_of(["not-there"]) == set()


def test_what_only_looks_like_a_distribution(tmp_path, monkeypatch):
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


def test_the_reason_in_what_pip_prints():
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


def test_packages_are_not_for_servers_that_run_already():
    with pytest.raises(ConfigurationError, match="packages= goes with a sandbox that is started here"):
        SandboxConfig(provider="remote", base_url="http://127.0.0.1:1", packages=["toolz"])


def test_the_server_is_told_what_to_authorise(monkeypatch):
    monkeypatch.delenv("ADDITIONAL_IMPORTS", raising=False)
    arguments = server_arguments(SandboxConfig(packages=["math", "yaml", "toolz>=1", "dataclass"]))
    config = parse_arguments(arguments)
    assert config.authorized_imports == ("dataclasses", "math", "yaml")
    assert config.distributions == ("pyyaml", "toolz")
    assert not {"--authorized-imports", "--distributions"} & set(server_arguments(SandboxConfig()))


def test_packages_of_the_command_line_and_the_environment(monkeypatch):
    monkeypatch.setenv("ADDITIONAL_IMPORTS", "math, numpy>=2,<3")
    assert parse_arguments(["--packages", "yaml,toolz[a,b]"]).packages == ("yaml", "toolz[a,b]", "math", "numpy>=2,<3")
    assert parse_arguments(["--overlay", "/x"]).packages == ()
    with pytest.raises(SystemExit):
        parse_arguments(["--overlay", "/x", "--packages", "yaml"])


def test_the_error():
    error = PackageInstallError(["toolz"], ["ERROR: no"], ["Collecting", "ERROR: no"])
    assert isinstance(error, (ProviderError, CodingGymError))
    assert (str(error), error.requirements, error.log[0]) == (
        "Cannot install toolz. pip says:\n  | ERROR: no",
        ("toolz",),
        "Collecting",
    )
