"""The suite ``repairs``: tasks made from releases in a package index."""

from __future__ import annotations

import hashlib
import io
import tarfile
from contextlib import closing
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from coding_gym.errors import ConfigurationError
from coding_gym.tasks import Grader, load_suite
from coding_gym.tasks.loaders.repairs import load_repairs, repair_names
from tests.support.running_server import free_port

EARLIER = {"calc.py": "def add(a, b):\n    return a - b\x0c", "tests/test_calc.py": "old", "README": "old"}
LATER = {"calc.py": "def add(a, b):\n    return a + b\x0c", "tests/test_calc.py": "new", "README": "new"}
REFERENCE = """--- a/calc.py
+++ b/calc.py
@@ -1,2 +1,2 @@
 def add(a, b):
-    return a - b\x0c
\\ No newline at end of file
+    return a + b\x0c
\\ No newline at end of file
"""


class Index:
    """A package index on this machine, with two releases of a library, and the directory of a suite that has a task of them."""

    def __init__(self, root: Path) -> None:
        self.files = root / "index" / "simple" / "my-calc"
        self.files.mkdir(parents=True)
        self.suite = root / "sums"
        self.suite.mkdir()
        (self.suite / "Dockerfile").write_text("FROM scratch\nCOPY earlier.tar.gz /\n")
        hashes = [self.release(version, texts) for version, texts in (("1.0", EARLIER), ("1.1", LATER))]
        self.describe(hashes)
        handler = partial(QuietHandler, directory=str(root / "index"))
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/simple"
        Thread(target=self.server.serve_forever, daemon=True).start()

    def release(self, version: str, texts: dict[str, str]) -> str:
        """Publish a release; return its hash."""
        path = self.files / f"my_calc-{version}.tar.gz"
        with tarfile.open(path, "w:gz") as archive:
            for name, text in texts.items():
                member = tarfile.TarInfo(f"my_calc-{version}/{name}")
                member.size = len(text)
                archive.addfile(member, io.BytesIO(text.encode()))
        return hashlib.sha256(path.read_bytes()).hexdigest()

    def describe(self, hashes: list[str], **changes: str) -> None:
        """Write the file of the task."""
        keys = {"changes": '["calc.py"]', "tests": '["tests/test_calc.py"]', "command": '"pytest -rA tests"', **changes}
        lines = ['prompt = "Sums are wrong."', 'difficulty = "easy"', 'library = "My.Calc"', 'must_pass = ["tests::test_add"]']
        lines += [f"{key} = {value}" for key, value in keys.items()]
        for key, version, digest in zip(("earlier", "later"), ("1.0", "1.1"), hashes, strict=True):
            lines += [f"[{key}]", f'file = "my_calc-{version}.tar.gz"', f'sha256 = "{digest}"']
        (self.suite / "add.toml").write_text("\n".join(lines))

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        """Log nothing."""


@pytest.fixture
def index(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with closing(Index(tmp_path)) as index:
        monkeypatch.setenv("PIP_INDEX_URL", index.url)
        yield index


def test_task_is_made_of_two_releases(index):
    [task] = load_repairs(index.suite)
    [command] = task.tests.commands
    assert (task.id, task.prompt, task.reference) == ("sums/add", "Sums are wrong.", REFERENCE)
    assert (command.command, command.must_pass) == ("pytest -rA tests", ("tests::test_add",))
    assert (task.tests.files, task.tests.directory) == ({"tests/test_calc.py": "new"}, "/testbed")
    # Neither what configures pytest, nor other modules beside the library.
    assert (task.tests.carried, task.tests.protected) == (("calc.py",), ("tests",))
    # Nothing of the later release is in the image.
    context = Path(task.tests.image)
    assert context.is_absolute()
    assert sorted(path.name for path in context.iterdir()) == ["Dockerfile", "earlier.tar.gz"]
    assert (context / "earlier.tar.gz").read_bytes() == (index.files / "my_calc-1.0.tar.gz").read_bytes()


def test_second_load_needs_no_network(index):
    tasks = load_repairs(index.suite)
    index.close()
    assert load_repairs(index.suite) == tasks


def test_new_dockerfile_replaces_the_cached_one(index):
    [task] = load_repairs(index.suite)
    (index.suite / "Dockerfile").write_text("FROM other\n")
    assert load_repairs(index.suite) == [task]
    assert (Path(task.tests.image) / "Dockerfile").read_text() == "FROM other\n"


def test_damaged_file_is_downloaded_again(index):
    [task] = load_repairs(index.suite)
    (Path(task.tests.image) / "earlier.tar.gz").write_bytes(b"half")
    assert load_repairs(index.suite) == [task]
    assert (Path(task.tests.image) / "earlier.tar.gz").stat().st_size > len(b"half")


def test_other_content_is_refused(index):
    index.describe(["0" * 64, "0" * 64])
    with pytest.raises(ConfigurationError, match=r"Expected my_calc-1.0.tar.gz to have the SHA-256 000.*PIP_INDEX_URL"):
        load_repairs(index.suite)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"changes": '["other.py"]'}, r"earlier.tar.gz to have the file other.py; it has 3 others"),
        ({"tests": '["other.py"]'}, r"later.tar.gz to have the file other.py"),
        ({"tests": "3"}, r"add.toml is not in the format of a repair: .*tests"),
    ],
)
def test_wrong_description_is_refused(index, changes, message):
    hashes = [hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(index.files.iterdir())]
    index.describe(hashes, **changes)
    with pytest.raises(ConfigurationError, match=message):
        load_repairs(index.suite)


@pytest.mark.parametrize("path", ["/simple", "/nothing"])
@pytest.mark.parametrize("is_closed", [True, False])
def test_unavailable_index_is_named_without_credentials(index, monkeypatch, path, is_closed):
    port = free_port() if is_closed else index.server.server_port
    monkeypatch.setenv("PIP_INDEX_URL", f"http://user:secret@127.0.0.1:{port}{path}")
    if (path, is_closed) == ("/simple", False):
        (index.files / "my_calc-1.0.tar.gz").unlink()
    with pytest.raises(ConfigurationError, match=r"my_calc-1.0.tar.gz.* PyPI") as raised:
        load_repairs(index.suite)
    assert f"http://127.0.0.1:{port}{path}" in str(raised.value)
    assert "secret" not in str(raised.value)


@pytest.fixture(scope="module")
def grader(docker_engine):
    with Grader(provider="docker", workers=1) as grader:
        yield grader


def test_suite_has_twelve_tasks():
    assert len(repair_names()) == 12


@pytest.mark.docker
@pytest.mark.parametrize("name", repair_names())
def test_reference_passes_and_nothing_fails(name, grader):
    task = load_suite("repairs")[name]
    repaired, unchanged = (grader.grade(task, patch) for patch in (task.reference, ""))
    assert (repaired.solved, repaired.score) == (True, 1.0), repaired
    assert (unchanged.solved, unchanged.score) == (False, 0.0), unchanged
    # No more than the tests of the repair, in an image in which the others run.
    assert {case.name for case in unchanged.cases if case.outcome != "passed"} == set(task.tests.commands[0].must_pass)
