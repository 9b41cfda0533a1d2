"""``/files``: round trips, and attempts to escape from the workspace."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import httpx
import pytest

from coding_gym_server.workspace.file_errors import FilesError, NotFoundError
from coding_gym_server.workspace.files import Workspace


@pytest.fixture
def files(interpreter):
    yield interpreter.http
    answer = interpreter.http.delete("/files/t")
    assert answer.status_code in (204, 404), answer.text


@pytest.mark.parametrize("content", [b"", b"text\n", bytes(range(256)) * 10, "é漢🎉".encode(), b"x" * 20_000_000])
def test_round_trips(files, content):
    assert files.put("/files/t/file", content=content).status_code == 201
    answer = files.get("/files/t/file")
    assert (answer.status_code, answer.content == content) == (200, True)
    assert answer.headers["content-length"] == str(len(content))


def test_overwriting_replaces_whole_file(files):
    assert files.put("/files/t/file", content=b"long content").status_code == 201
    answer = files.put("/files/t/file", content=b"short")
    assert (answer.status_code, answer.content) == (200, b"")
    assert files.get("/files/t/file").content == b"short"
    assert files.delete("/files/t/file").status_code == 204
    assert files.put("/files/t/file", content=b"new").status_code == 201


@pytest.mark.parametrize("name", ["a b", "é漢🎉", "%", "?#&", "'\"", ".hidden", "x" * 200, "new\nline", "-rf", "a;b"])
def test_unusual_file_names_round_trip(files, name):
    url = httpx.URL("http://x").join("/files/t/").path
    path = url + "".join(f"%{byte:02x}" for byte in name.encode())
    assert files.put(path, content=b"1").status_code == 201
    assert files.get(path).content == b"1"
    (entry,) = files.get("/files", params={"path": "t"}).json()["entries"]
    assert entry["name"] == name


@pytest.mark.parametrize(
    ("name", "kind"),
    [("x.txt", "text/plain"), ("x.json", "application/json"), ("x.png", "image/png"), ("x", "application/octet-stream")],
)
def test_content_type_follows_file_name(files, name, kind):
    files.put(f"/files/t/{name}", content=b"1")
    assert files.get(f"/files/t/{name}").headers["content-type"].partition(";")[0] == kind


@pytest.mark.parametrize(
    ("requested", "status", "content"),
    [
        ("bytes=0-3", 206, b"0123"),
        ("bytes=4-", 206, b"456789"),
        ("bytes=-3", 206, b"789"),
        ("bytes=0-99", 206, b"0123456789"),
        ("bytes=20-30", 416, None),
        ("nonsense", 400, None),
    ],
)
def test_ranges(files, requested, status, content):
    files.put("/files/t/file", content=b"0123456789")
    answer = files.get("/files/t/file", headers={"range": requested})
    assert answer.status_code == status
    if content is not None:
        assert answer.content == content


def test_uploads_set_and_keep_modes(interpreter, files):
    assert files.put("/files/t/run", params={"executable": "true"}, content=b"1").status_code == 201
    assert files.put("/files/t/plain", content=b"1").status_code == 201
    assert files.put("/files/t/plain", params={"executable": "maybe"}, content=b"2").status_code == 422
    modes = "import os; [oct(os.stat(f't/{name}').st_mode & 0o777) for name in ('run', 'plain')]"
    assert interpreter.execute(modes).text == "['0o755', '0o644']"
    assert files.put("/files/t/run", content=b"2").status_code == 200
    assert interpreter.execute(modes).text == "['0o755', '0o644']"
    assert files.get("/files/t/plain").content == b"1"


def test_listing(files):
    for path in ("t/b.txt", "t/a.txt", "t/z/x", "t/c/x"):
        files.put(f"/files/{path}", content=b"12")
    answer = files.get("/files", params={"path": "t"}).json()
    assert answer["path"] == "t"
    assert [(entry["name"], entry["type"], entry["size"]) for entry in answer["entries"]] == [
        ("c", "dir", None),
        ("z", "dir", None),
        ("a.txt", "file", 2),
        ("b.txt", "file", 2),
    ]
    assert all(isinstance(entry["modified"], float) for entry in answer["entries"])
    files.delete("/files/t/c/x")
    assert files.get("/files", params={"path": "t/c"}).json()["entries"] == []
    assert any(entry["name"] == "t" for entry in files.get("/files").json()["entries"])
    assert files.get("/files", params={"path": "/home/user/t"}).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "status", "text"),
    [
        ("GET", "/files/t/nope", 404, "Not found: t/nope"),
        ("DELETE", "/files/t/nope", 404, "Not found: t/nope"),
        ("GET", "/files?path=nope", 404, "Not found: nope"),
        ("GET", "/files?path=t/file", 400, "Not a directory: t/file"),
        ("GET", "/files/t/dir", 400, "Is a directory: t/dir"),
        ("PUT", "/files/t/dir", 400, "Is a directory: t/dir"),
        ("GET", "/files/t/file/x", 404, "Not found: t/file/x"),
        ("PUT", "/files/t/file/x", 400, None),
        ("DELETE", "/files/.", 400, None),
        ("DELETE", "/files/t/..", 400, None),
        ("DELETE", "/files/", 400, None),
        ("GET", "/files/t/fifo", 400, "Not a file: t/fifo"),
    ],
)
def test_invalid_requests_are_refused(interpreter, files, method, path, status, text):
    files.put("/files/t/file", content=b"1")
    files.put("/files/t/dir/x", content=b"1")
    interpreter.execute("import os; os.path.exists('t/fifo') or os.mkfifo('t/fifo')")
    # Send the path unmodified: httpx would resolve the dots.
    answer = _raw(files, method, path)
    assert answer.status_code == status
    if text is not None:
        assert answer.text == text
    assert files.get("/files/t/file").content == b"1"


OUTSIDE = [
    "../x",
    "..",
    "a/../../x",
    "/etc/passwd",
    "/home/user2/x",
    "/home/user/../x",
    "t/link/passwd",
    "t/file_link",
    "t/up/x",
    "t/proc_link/self/environ",
    "t/loop",
    "t/loop/x",
]


@pytest.mark.parametrize("path", OUTSIDE)
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "LIST"])
def test_paths_cannot_escape_workspace(interpreter, files, method, path):
    files.put("/files/t/file", content=b"1")
    interpreter.execute(
        "import os\n"
        "for target, link in (('/etc', 'link'), ('/etc/passwd', 'file_link'), ('../..', 'up'), ('/proc', 'proc_link'),\n"
        "                     ('loop', 'loop')):\n"
        "    os.path.lexists(f't/{link}') or os.symlink(target, f't/{link}')\n"
    )
    encoded = path.replace("/", "%2f").replace(".", "%2e")
    if method == "LIST":
        answer = _raw(files, "GET", f"/files?path={encoded}")
    else:
        answer = _raw(files, method, f"/files/{encoded}")
    if method in ("DELETE", "PUT") and path in ("t/file_link", "t/loop"):
        # These methods apply to the link itself, not to its target.
        assert answer.status_code in (200, 204)
    else:
        assert answer.status_code in (400, 404), answer.text
    assert "root:" not in answer.text
    assert Path("/etc/passwd").read_text().startswith("root:")


def _raw(client: httpx.Client, method: str, path: str) -> httpx.Response:
    request = client.build_request(method, "/", content=b"x" if method == "PUT" else None)
    request.extensions["target"] = path.encode()
    return client.send(request)


def test_broken_upload_leaves_no_file(files):
    def broken():
        yield b"begun"
        raise RuntimeError("the client dies")

    files.put("/files/t/file", content=b"old")
    with pytest.raises(RuntimeError):
        files.put("/files/t/file", content=broken())
    assert files.get("/files/t/file").content == b"old"
    names = [entry["name"] for entry in files.get("/files", params={"path": "t"}).json()["entries"]]
    for _ in range(50):
        if names == ["file"]:
            break
        names = [entry["name"] for entry in files.get("/files", params={"path": "t"}).json()["entries"]]
    assert names == ["file"]


def test_code_and_api_share_files(interpreter, files):
    files.put("/files/t/data.csv", content=b"a,b\n1,2\n")
    assert interpreter.execute("import csv\nlist(csv.reader(open('t/data.csv')))").text == "[['a', 'b'], ['1', '2']]"
    interpreter.execute(
        "import pathlib\npathlib.Path('t/out.txt').write_text('é')\npathlib.Path('t/private').mkdir(mode=0o700)"
    )
    assert files.get("/files/t/out.txt").content == "é".encode()
    assert files.get("/files", params={"path": "t/private"}).json()["entries"] == []


# Without a server: races that a client cannot provoke reliably, and kernels without openat2.


@pytest.fixture
def workspace(tmp_path):
    (tmp_path / "inside").mkdir()
    (tmp_path / "secret").write_text("secret")
    return Workspace(tmp_path / "inside", home="/home/user")


def test_directory_swapped_for_link_cannot_escape(workspace, tmp_path):
    inside = tmp_path / "inside"
    (inside / "a").mkdir()
    (inside / "b").symlink_to(tmp_path)
    (inside / "a" / "secret").write_text("mine")
    over = threading.Event()

    def exchange():
        while not over.is_set():
            for one, two in (("a", "x"), ("b", "a"), ("x", "b")):
                os.rename(inside / one, inside / two)

    thread = threading.Thread(target=exchange)
    thread.start()
    seen = set()
    try:
        for _ in range(3000):
            try:
                descriptor = workspace.open("a/secret")
            except FilesError:
                continue
            seen.add(os.read(descriptor, 10))
            os.close(descriptor)
    finally:
        over.set()
        thread.join()
    assert seen <= {b"mine"}


def test_links_are_not_followed_without_openat2(workspace, tmp_path, monkeypatch):
    class Old:
        def syscall(self, *_):
            import ctypes
            import errno

            ctypes.set_errno(errno.ENOSYS)
            return -1

    monkeypatch.setattr("coding_gym_server.workspace.files._libc", Old())
    inside = tmp_path / "inside"
    (inside / "dir").mkdir()
    (inside / "dir" / "file").write_text("text")
    (inside / "link").symlink_to("dir")
    os.close(workspace.open("dir/file"))
    assert [entry.name for entry in workspace.list("dir")] == ["file"]
    assert [entry.name for entry in workspace.list(".")] == ["dir", "link"]
    with pytest.raises(FilesError):
        workspace.open("link/file")
    upload = workspace.upload("new/deep/file")
    upload.write(b"1")
    upload.finish()
    upload.close()
    assert (inside / "new" / "deep" / "file").read_bytes() == b"1"
    workspace.remove("new")
    with pytest.raises(NotFoundError):
        workspace.open("new/deep/file")
