"""The data of a saved tree's page."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import subprocess
import sys

import httpx
import numpy as np
import pytest
from typer.testing import CliRunner

from coding_gym.cli.main import app
from coding_gym.errors import DatasetError
from coding_gym_studio.guard import Guard
from coding_gym_studio.viewer.trees import tree_app
from plugins.studio.tests.viewer.saved_trees import TOKEN, save_tree


@pytest.fixture
def get(tmp_path):
    """Return a function that saves steps as a tree, and one that requests a path of its page."""

    def of(steps, **options):
        path = tmp_path / "search.tree.jsonl"
        save_tree(path, steps, **options)
        guarded = Guard(tree_app(path), token=TOKEN)

        def send(address, *, token=TOKEN):
            async def request():
                async with httpx.AsyncClient(transport=httpx.ASGITransport(guarded), base_url="http://127.0.0.1") as client:
                    return await client.get(address, headers={"authorization": f"Bearer {token}"})

            return asyncio.run(request())

        return send

    return of


def test_structure_has_a_column_per_field(get):
    answer = get([(0, "x = 1\nprint(x)", {"stdout": "1\n"}, 0.5), (0, "raise", {"stderr": "no", "outcome": "error"}, 0.0)])(
        "/api/tree"
    )
    data = answer.json()
    assert (data["parent"], data["label"]) == ([-1, 0, 0], ["root", "x = 1 print(x)", "raise"])
    assert (data["outcome"], data["visits"], data["mean"]) == ([None, "ok", "error"], [2, 1, 1], [0.25, 0.5, 0.0])
    assert (data["best"], data["name"], data["language"]) == (1, "search.tree.jsonl", "python")
    assert answer.headers["cache-control"] == "no-store"


def test_episode_has_the_steps_up_to_a_node(get):
    send = get([(0, "a = 1", {}, 0.0), (1, "print(a)", {"stdout": "1\n"}, 1.0), (1, "other", {}, 0.0)])
    episode = send("/api/tree/nodes/2").json()
    assert [step["action"] for step in episode["steps"]] == [None, "a = 1", "print(a)"]
    assert (episode["depth"], episode["first"], episode["steps"][2]["stdout"]) == (2, 0, "1\n")


def test_long_episode_is_sent_in_parts(get):
    send = get([(number, f"step({number})", {}, 0.0) for number in range(100)])
    episode = send("/api/tree/nodes/100").json()
    assert (episode["first"], [step["id"] for step in episode["steps"]]) == (81, list(range(81, 101)))
    assert [step["id"] for step in send("/api/tree/nodes/100?first=5&count=2").json()["steps"]] == [5, 6]
    assert len(send("/api/tree/nodes/100?first=0&count=1000").json()["steps"]) == 20
    assert send("/api/tree/nodes/100?first=500").json()["steps"] == []


def test_screen_is_a_png_file(get):
    screen = np.full((4, 4, 3), 200, np.uint8)
    send = get([(0, "draw()", {"screenshot": screen}, 0.0)])
    answer = send("/api/tree/nodes/1/picture")
    assert answer.headers["content-type"] == "image/png"
    assert answer.content.startswith(b"\x89PNG")
    assert send("/api/tree/nodes/1").json()["steps"][1]["has_picture"]
    assert send("/api/tree/nodes/0/picture").status_code == 404


@pytest.mark.parametrize(
    ("path", "status", "detail"),
    [
        ("/api/tree/nodes/2", 404, "There is no node 2: the tree has 2."),
        ("/api/tree/nodes/2/picture", 404, "There is no node 2: the tree has 2."),
        (f"/api/tree/nodes/{10**30}", 404, f"There is no node {10**30}: the tree has 2."),
        ("/api/tree/nodes/1?first=-1", 400, "Expected first= to be a number of at least 0, got '-1'."),
        ("/api/tree/nodes/1?count=x", 400, "Expected count= to be a number of at least 0, got 'x'."),
        ("/api/tree/nodes/one", 404, "Not Found"),
    ],
)
def test_other_requests_are_refused(get, path, status, detail):
    answer = get([(0, "a", {}, 0.0)])(path)
    assert (answer.status_code, answer.json()) == (status, {"detail": detail})


def test_data_require_the_token(get):
    send = get([(0, "a", {}, 0.0)])
    assert send("/", token="wrong").status_code == 200
    assert {send(path, token="wrong").status_code for path in ("/api/tree", "/api/tree/nodes/0")} == {401}


@pytest.mark.parametrize(
    ("environment", "backend", "language"),
    [
        ("CodingEnv-v0", None, "python"),
        ("CodingEnv-v0", "notebook", "python"),
        ("CodingShellEnv-v0", None, "bash"),
        ("CodingEnv-v0", "bash", "bash"),
        ("CodingEnv-v0", "jupyter:deno", "typescript"),
        ("CodingEnv-v0", "js", "typescript"),
        ("CodingEnv-v0", "cpp", ""),
        ("CodingEnv-v0", "jupyter:ir", ""),
    ],
)
def test_language_is_that_of_the_backend(get, environment, backend, language):
    assert get([], environment=environment, backend=backend)("/api/tree").json()["language"] == language


def test_structure_of_ten_thousand_nodes_is_small(get):
    steps = [
        (number // 3, f"value_{number} = compute({number})", {"stdout": f"{number}\n"}, number % 7 / 7)
        for number in range(10_000)
    ]
    answer = get(steps)("/api/tree")
    assert answer.headers["content-encoding"] == "gzip"
    assert int(answer.headers["content-length"]) < 150_000
    assert len(json.loads(answer.text)["parent"]) == 10_001


def test_command_refuses_other_files(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("not a tree")
    result = CliRunner().invoke(app, ["view", str(path), "--no-browser"])
    assert result.exit_code == 1
    assert f"{path} is not a saved tree" in result.stderr


def test_command_shows_a_saved_tree(tmp_path):
    path = tmp_path / "search.tree.jsonl"
    save_tree(path, [(0, "a", {}, 0.0)])
    command = [sys.executable, "-m", "coding_gym", "view", str(path), "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            address, _, token = re.search(r"(http\S+?)(#token=)(\S+)", process.stdout.readline()).groups()
            answer = httpx.get(f"{address}api/tree", headers={"authorization": f"Bearer {token}"})
        finally:
            process.terminate()
    assert answer.json()["label"] == ["root", "a"]


def test_action_nested_deeply_does_not_hide_the_tree(tmp_path):
    path = tmp_path / "search.tree.jsonl"
    save_tree(path, [(0, "a", {}, 0.0)])
    text = path.read_text()
    # The deepest that is decoded here cannot be encoded, which takes more of the stack.
    for depth in range(990, 500, -1):
        path.write_text(text.replace('"action":"a"', '"action":' + "[" * depth + "]" * depth))
        with contextlib.suppress(DatasetError):
            assert tree_app(path).routes
            break
    else:
        pytest.fail("No depth was decoded")


@pytest.mark.parametrize("number", ["1" + "0" * 400, str(2**63)])
@pytest.mark.parametrize("field", ["visits", "exit_code"])
def test_huge_count_is_an_error_of_its_line(tmp_path, field, number):
    path = tmp_path / "search.tree.jsonl"
    save_tree(path, [(0, "a", {}, 0.0)])
    header, root, node = path.read_text().splitlines()
    fields = {name: value for name, value in json.loads(node).items() if name != field}
    path.write_text(f'{header}\n{root}\n{json.dumps(fields)[:-1]}, "{field}": {number}}}\n')
    with pytest.raises(DatasetError, match="Line 3 of"):
        tree_app(path)


def test_damaged_tree_has_no_page(tmp_path):
    path = tmp_path / "search.tree.jsonl"
    save_tree(path, [(0, "a", {}, 0.0)])
    path.write_text(path.read_text() + "{")
    with pytest.raises(DatasetError, match="Line 4 of"):
        tree_app(path)
