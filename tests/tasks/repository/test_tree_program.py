"""Changes of directories are carried to a copy of their initial state."""

from __future__ import annotations

import io
import json
import os
import shutil
import stat
import subprocess

import pytest

from coding_gym.tasks.repository import tree_program

CHANGES = {
    "nothing": "true",
    "edit": "echo more >> a.py; echo same > lib/b.py",
    "delete": "rm a.py; rm -r lib",
    "rename": "mv lib library; mv a.py library/a.py",
    "new": "mkdir -p x/y/z; echo 1 > x/y/z/new; touch x/empty",
    "kinds": "rm -r lib; echo file > lib; rm a.py; mkdir a.py; echo in > a.py/in; ln -sf /etc/passwd run.sh",
    "modes": "chmod 700 lib; chmod 600 a.py; chmod +x lib/b.py; touch -d 2001-01-01 lib/c.py",
    "links": "ln -s ../../.. up; ln -s nowhere dangling; ln lib/b.py hard; echo z > one; ln one two",
    "names": r"""touch -- "$(printf 'line\nbreak')" "$(printf 'bytes\377')" 'ü ☃' ' ' '-rf'""",
    "pipe": "mkfifo pipe",
    "sparse": "truncate --size 1G sparse; printf x | dd of=sparse bs=1 seek=500000000 conv=notrunc status=none",
    "unreadable": "mkdir -p deep/a/b; echo 1 > deep/a/b/c; chmod 000 deep/a/b/c deep/a",
    "restored times": "cp --preserve=all a.py saved; echo 'hidden = 1' > a.py; touch -r saved a.py; rm saved",
}


@pytest.fixture
def trees(tmp_path):
    """Two directories with the same files."""
    one, two = tmp_path / "one", tmp_path / "two"
    (one / "lib").mkdir(parents=True)
    for name in ("a.py", "lib/b.py", "lib/c.py", "run.sh"):
        (one / name).write_text(f"# {name}\n")
    (one / "run.sh").chmod(0o755)
    shutil.copytree(one, two)
    return one, two


def carry(one, two, before, *, excluded=(), max_bytes=1 << 20):
    """Carry the changes of one directory to another one, as if it were at the same path."""
    changes = io.BytesIO()
    tree_program.collect(before, [str(one)], list(excluded), max_bytes, changes)
    text = changes.getvalue().replace(json.dumps(str(one))[1:-1].encode(), json.dumps(str(two))[1:-1].encode())
    there = [name.replace(str(one), str(two)) for name in excluded]
    tree_program.apply(io.BytesIO(text), [str(two)], [name for name in there if "/" in name], there)
    return changes.getvalue()


def state(root):
    found = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        kind = stat.S_IFMT(status.st_mode)
        content = os.readlink(path) if path.is_symlink() else ""
        if stat.S_ISREG(status.st_mode):
            content = path.read_bytes() if status.st_size < 1 << 20 else (status.st_size, status.st_blocks)
        times = None if stat.S_ISDIR(status.st_mode) else status.st_mtime_ns
        found[str(path.relative_to(root))] = (
            kind,
            stat.S_IMODE(status.st_mode),
            status.st_uid,
            content,
            times,
            status.st_nlink,
        )
    return found


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_changes_are_carried(trees, change):
    one, two = trees
    before = tree_program.describe([str(one)], [])
    subprocess.run(["bash", "-ec", change], cwd=one, check=True)
    carried = carry(one, two, before)
    after, copy = state(one), state(two)
    # The times of what has not changed are those of the copy's making.
    unchanged = {
        name
        for name in after
        if name in copy and after[name][:4] == copy[name][:4] and json.dumps(name)[1:-1].encode() not in carried
    }
    assert {name: entry for name, entry in after.items() if name not in unchanged} == {
        name: entry for name, entry in copy.items() if name not in unchanged
    }
    if change == "true":
        assert carried == b""


def test_excluded_paths_are_not_carried(trees):
    one, two = trees
    (one / ".git").mkdir()
    before = tree_program.describe([str(one)], [".git", str(one / "lib")])
    for name in (".git/config", "lib/b.py", "lib/new", "a.py"):
        (one / name).write_text("changed")
    (one / "sub").mkdir()
    (one / "sub/.git").write_text("gitdir: elsewhere")
    carry(one, two, before, excluded=[".git", str(one / "lib")])
    assert (two / "a.py").read_text() == "changed"
    assert (two / "lib/b.py").read_text() == "# lib/b.py\n"
    assert sorted(path.name for path in two.rglob("*")) == ["a.py", "b.py", "c.py", "lib", "run.sh", "sub"]


def test_bits_that_set_the_user_are_not_carried(trees):
    one, two = trees
    before = tree_program.describe([str(one)], [])
    (one / "a.py").chmod(0o6755)
    carry(one, two, before)
    assert stat.S_IMODE((two / "a.py").stat().st_mode) == 0o755


def test_size_is_limited(trees):
    one, two = trees
    before = tree_program.describe([str(one)], [])
    (one / "a.py").write_bytes(bytes(1000))
    carry(one, two, before, max_bytes=1000)
    with pytest.raises(ValueError, match=r"larger than permitted; .*a\.py"):
        carry(one, two, before, max_bytes=999)


@pytest.mark.parametrize(
    "entry",
    [
        {"kind": "deleted", "path": "/etc/passwd"},
        {"kind": "deleted", "path": "{two}/../one/a.py"},
        {"kind": "deleted", "path": "{two}-other"},
        {"kind": "file", "path": "relative", "parts": []},
        {"kind": "device", "path": "{two}/device", "mode": 0, "user": 0, "group": 0, "modified": 0},
    ],
)
def test_changes_elsewhere_are_refused(trees, entry):
    _, two = trees
    entry = {name: value.replace("{two}", str(two)) if isinstance(value, str) else value for name, value in entry.items()}
    with pytest.raises(ValueError, match=r"is not below|unknown kind of entry"):
        tree_program.apply(io.BytesIO(json.dumps(entry).encode()), [str(two)], [], [])


def test_links_are_not_followed(trees, tmp_path):
    _, two = trees
    outside = tmp_path / "outside"
    outside.mkdir()
    status = {"mode": 0o644, "user": os.getuid(), "group": os.getgid(), "modified": 0}
    entries = [
        {"kind": "link", "path": f"{two}/out", "target": str(outside), **status},
        {"kind": "file", "path": f"{two}/out/planted", "size": 1, "parts": [[0, 1]], **status},
        {"kind": "hard link", "path": f"{two}/hard", "target": f"{two}/out/planted"},
        {"kind": "link", "path": f"{two}/after", "target": "x", **status},
    ]
    lines = [json.dumps(entry).encode() + b"\n" for entry in entries]
    tree_program.apply(io.BytesIO(lines[0] + lines[1] + b"x" + lines[2] + lines[3]), [str(two)], [], [])
    assert list(outside.iterdir()) == []
    assert os.readlink(two / "after") == "x"
    assert not (two / "hard").exists()


def test_files_replace_what_is_in_their_place(trees, tmp_path):
    one, _ = trees
    outside = tmp_path / "outside"
    outside.write_text("kept")
    (one / "a.py").unlink()
    (one / "a.py").symlink_to(outside)
    (one / "lib/b.py").unlink()
    (one / "lib/b.py").mkdir()
    (one / "dangling").symlink_to("nowhere")
    (one / "linked").symlink_to("lib")
    content = ["aGk=", 0o755]
    names = ("a.py", "lib/b.py", "new/deep/file", "run.sh/in/file", "dangling/in/file", "linked/file")
    tree_program.write({str(one / name): content for name in names})
    assert [(one / name).read_text() for name in names] == ["hi"] * len(names)
    assert (one / "linked").is_symlink()
    assert outside.read_text() == "kept"


def test_what_is_kept_is_not_touched(trees, tmp_path):
    _, two = trees
    status = {"mode": 0o644, "user": os.getuid(), "group": os.getgid(), "modified": 0}
    empty = {"size": 0, "parts": [], **status}
    entries = [
        {"kind": "deleted", "path": f"{two}/lib/b.py"},
        {"kind": "link", "path": f"{two}/lib", "target": str(tmp_path), **status},
        {"kind": "file", "path": f"{two}/lib", **empty},
        {"kind": "deleted", "path": f"{two}/lib"},
        {"kind": "file", "path": f"{two}/lib/b.py", **empty},
        {"kind": "file", "path": f"{two}/lib/b.py/in", **empty},
        {"kind": "file", "path": f"{two}/.git/hooks", **empty},
        {"kind": "file", "path": f"{two}/lib/c.py", **empty},
    ]
    text = b"".join(json.dumps(entry).encode() + b"\n" for entry in entries)
    tree_program.apply(io.BytesIO(text), [str(two)], [str(two / "lib/b.py")], [".git"])
    assert (two / "lib/b.py").read_text() == "# lib/b.py\n"
    assert (two / "lib/c.py").read_text() == ""
    assert not (two / ".git").exists()
    link = {"kind": "hard link", "path": f"{two}/hard", "target": "/etc/passwd"}
    with pytest.raises(ValueError, match="'/etc/passwd' is not below"):
        tree_program.apply(io.BytesIO(json.dumps(link).encode()), [str(two)], [], [])
