from __future__ import annotations

import base64
import io
import json
import shutil
from urllib.parse import quote

import msgspec
import numpy as np
import pytest
import zstandard
from PIL import Image

from coding_gym import Result
from coding_gym.datasets.details import PackedArray
from coding_gym.datasets.episode import Step
from coding_gym.datasets.episode_log import EpisodeLog
from coding_gym.datasets.manifest import Manifest
from coding_gym_studio.viewer.index import EpisodeIndex
from plugins.studio.tests.viewer.datasets import HOSTILE, MEGABYTE, SCREEN, episode, rich, varied, write
from tests.support.timing import eventually


@pytest.fixture
def client(api, varied_path):
    return api(varied_path)


def rows(client, start=0):
    return client.get(f"/api/episodes?start={start}").json()


def test_summaries_are_columns(client):
    answer = rows(client)
    columns = answer["columns"]
    assert columns["episode"] == list(range(60))
    assert columns["reward"][:5] == [1.0, 0.5, -0.25, 0.0, 0.0]
    assert columns["steps"][:5] == [1, 1, 1, 4, 1]
    assert [answer["outcomes"][code] for code in columns["outcome"][:3]] == ["ok", "ok", "error"]
    assert [answer["results"][code] for code in columns["result"][:4]] == ["solved", "unsolved", "unknown", "unknown"]
    assert [answer["endings"][code] for code in columns["ending"][:2]] == ["terminated", "truncated"]
    assert [answer["tasks"][code] for code in columns["task"][:4]] == [
        "tasks/first",
        "tasks/second",
        f"tasks/{HOSTILE[:60]}",
        "",
    ]
    assert (columns["passed"][:3], columns["tests"][:3]) == ([2, 1, 0], [2, 2, 0])


def test_rows_are_sent_in_parts(client):
    assert rows(client, 58)["columns"]["episode"] == [58, 59]
    assert rows(client, 1000)["columns"]["episode"] == []


@pytest.mark.parametrize("start", ["-1", "x", "1.5", "1" * 5000])
def test_malformed_start_is_rejected(client, start):
    assert client.get(f"/api/episodes?start={start}").status_code == 400


def test_times_include_the_policy(client):
    answer = client.get("/api/seconds").json()
    assert answer["seconds"][0] == pytest.approx(0.1 + 2 * 0.02)
    assert answer["seconds"][3] == pytest.approx(1.0 + 5 * 0.02)


def test_dataset_is_described(client, varied_path):
    state = client.get("/api/dataset").json()
    assert (state["name"], state["env"], state["requested"], state["read"]) == ("varied", "CodingTask-v0", 60, 60)
    assert (state["isComplete"], state["problem"], state["language"]) == (False, "", "python")


def test_episode_has_an_overview_without_texts(client):
    answer = client.get("/api/episodes/4").json()
    reset, step = answer["steps"]
    assert answer["seed"] == str(2**62 + 4)
    assert step["lengths"]["stdout"] == len(MEGABYTE)
    assert (step["seconds"], step["outcome"], step["truncated"]) == (0.1, "ok", True)
    assert (reset["preview"], reset["lengths"]["prompt"]) == ("", 6)
    assert len(client.get("/api/episodes/4").content) < 2000


def test_long_text_is_sent_in_parts(client):
    path = "/api/episodes/4/steps/1/text?name=stdout"
    first = client.get(f"{path}&count=1000").json()
    assert first == {"text": MEGABYTE[:1000], "start": 0, "total": len(MEGABYTE)}
    assert client.get(f"{path}&start={len(MEGABYTE) - 5}").json()["text"] == MEGABYTE[-5:]
    assert len(client.get(path).json()["text"]) < len(MEGABYTE)


def test_hostile_text_stays_data(client):
    answer = client.get("/api/episodes/2/steps/1/text?name=stderr")
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["text"] == HOSTILE


def test_raw_step_is_json_without_pixels(client):
    raw = json.loads(client.get("/api/episodes/3/steps/2/text?name=raw").json()["text"])
    assert raw["observation"]["screenshot"] == "<array of |u1, shape 48x64x3>"
    assert raw["action"] == "draw(1)"


def test_rich_results_are_sent_as_servers_send_them(api, tmp_path):
    client = api(write(tmp_path / "rich", [rich(0)]))
    assert [step["results"] for step in client.get("/api/episodes/0").json()["steps"]] == [0, 3]
    assert client.get("/api/episodes/0/steps/0/results").json() == {"results": [], "omitted": 0}
    answer = client.get("/api/episodes/0/steps/1/results").json()
    plot, table, document = answer["results"]
    assert answer["omitted"] == 0
    assert Image.open(io.BytesIO(base64.b64decode(plot["texts"]["image/png"]))).size == (80, 60)
    assert (plot["is_value"], table["is_value"]) == (False, True)
    assert HOSTILE in table["texts"]["text/html"]
    assert json.loads(document["documents"]["application/json"]) == {"numbers": [1, 2, 3]}


def test_results_beyond_the_limits_are_counted(api, tmp_path):
    def recorded(index, texts):
        results = tuple(Result({"text/plain": text}, is_value=True) for text in texts)
        return episode(index, steps=[Step(observation={}, action="1", info={"results": results})])

    client = api(write(tmp_path / "many", [recorded(0, ["x"] * 150), recorded(1, ["x" * 20_000_000] * 3)]))
    for index, (sent, omitted) in enumerate([(100, 50), (1, 2)]):
        answer = client.get(f"/api/episodes/{index}/steps/1/results").json()
        assert (len(answer["results"]), answer["omitted"]) == (sent, omitted)


@pytest.mark.parametrize("results", ["text", 3, [1, "a", None], [{}, {"data": 1}], [{"data": {"x": 2}, "is_value": "no"}]])
def test_foreign_results_are_not_an_error(api, tmp_path, results):
    recorded = episode(0, steps=[Step(observation={}, action="1", info={"results": results})])
    client = api(write(tmp_path / "foreign", [recorded]))
    assert client.get("/api/episodes/0").status_code == 200
    found = client.get("/api/episodes/0/steps/1/results").json()["results"]
    assert all(result["is_value"] is False for result in found)


def test_pictures_are_exact(client):
    steps = client.get("/api/episodes/3").json()["steps"]
    assert [picture["isBlack"] for step in steps for picture in step["pictures"]] == [True, False, False, False]
    answer = client.get("/api/episodes/3/steps/4/picture?name=observation.screenshot")
    assert answer.headers["content-type"] == "image/png"
    shown = np.asarray(Image.open(io.BytesIO(answer.content)))
    assert shown.shape == SCREEN
    assert shown[0, 29].tolist() == [200, 120, 3]
    assert shown[0, 30].tolist() == [0, 0, 0]
    thumbnail = client.get("/api/episodes/3/steps/4/picture?name=observation.screenshot&thumbnail=1")
    assert thumbnail.status_code == 200


def test_damaged_picture_does_not_hide_its_episode(api, tmp_path):
    path = write(tmp_path / "damaged", [varied(0)], with_details=False)
    damaged = PackedArray("|u1", (48, 64, 3), b"not compressed")
    huge = PackedArray("|u1", (2**32 - 1, 2**32 - 1, 3), PackedArray.pack("|u1", (1,), b"0").data)
    for number, content in enumerate([damaged.encode(), huge.encode(), b"\x03"], 1):
        step = {"observation": {"screenshot": msgspec.msgpack.Ext(1, content), "stdout": "text"}}
        data = msgspec.msgpack.encode({"index": number, "seed": 1, "steps": [step]})
        append_encoded(path, number, zstandard.compress(data))
    client = api(path)
    for number in (1, 2):
        (shown,) = client.get(f"/api/episodes/{number}").json()["steps"]
        assert not shown["pictures"][0]["isBlack"]
        answer = client.get(f"/api/episodes/{number}/steps/0/picture?name=observation.screenshot")
        assert (answer.status_code, "This picture is damaged" in answer.text) == (422, True)
    assert client.get("/api/episodes/3").status_code == 422


@pytest.mark.parametrize("reward", ["much", None])
def test_episode_that_cannot_be_decoded_has_a_reason(api, tmp_path, reward):
    path = write(tmp_path / "odd", [varied(0)], with_details=False)
    data = msgspec.msgpack.encode({"index": 1, "seed": 1, "steps": [{"reward": reward}]})
    append_encoded(path, 1, zstandard.compress(data))
    answer = api(path).get("/api/episodes/1")
    assert (answer.status_code, "cannot be decoded, although its checksum matches" in answer.text) == (422, True)


def test_episode_of_a_deleted_dataset_is_refused(api, tmp_path):
    path = write(tmp_path / "deleted", [varied(0)])
    client = api(path)
    shutil.rmtree(path)
    answer = client.get("/api/episodes/0")
    assert (answer.status_code, "cannot be read: No such file or directory" in answer.text) == (422, True)


def test_verdict_has_each_test(client):
    verdict = client.get("/api/episodes/1/steps/1/verdict").json()
    assert [case["outcome"] for case in verdict["cases"]] == ["passed", "failed"]
    assert verdict["cases"][1]["message"] == f"assert {HOSTILE}"
    assert client.get("/api/episodes/2/steps/1/verdict").json() is None


@pytest.mark.parametrize(
    "path",
    ["99", "1/steps/9/text?name=raw", "1/steps/1/text?name=none", "1/steps/1/picture?name=observation.screenshot", "x"],
)
def test_missing_data_are_404(client, path):
    assert client.get(f"/api/episodes/{path}").status_code == 404


def test_dataset_without_details_has_no_times(api, tmp_path):
    client = api(write(tmp_path / "old", [episode(0, solved=True)], with_details=False))
    assert client.get("/api/seconds").json()["seconds"] == [None]
    assert client.get("/api/episodes/0").json()["steps"][1].get("seconds") is None
    assert client.get("/api/episodes/0/steps/1/verdict").json() is None


def test_file_may_shrink_while_it_is_read(tmp_path):
    path = write(tmp_path / "shrinking", [episode(index) for index in range(600)], with_details=False)
    log = path / "episodes.log"
    index = EpisodeIndex(path)
    index.start()
    assert eventually(lambda: len(index.summaries))
    with log.open("r+b") as file:
        file.truncate(index.summaries.offsets[-1])
    index.read()
    index.read()
    assert (index.generation, len(index.summaries), index.problem) == (1, 255, "")


def test_damaged_details_do_not_hide_their_episode(api, tmp_path):
    path = write(tmp_path / "damaged", [varied(0), varied(1), varied(2)])
    found = path / "details.jsonl"
    first, second, third = found.read_bytes().splitlines(keepends=True)
    nested = b'{"episode":9,"steps":[' + b"[" * 5000 + b"]" * 5000 + b"]}\n"
    negative = third.replace(b'"episode":2', b'"episode":-1')
    found.write_bytes(first.replace(b"2026", b"\xff026") + nested + negative + second)
    client = api(path)
    assert rows(client)["problem"] == ""
    assert client.get("/api/episodes/0").json()["started"] is None
    assert client.get("/api/episodes/1").json()["started"] is not None
    found.unlink()
    assert client.get("/api/episodes/1").json()["started"] is None


def test_empty_dataset_opens(api, tmp_path):
    client = api(write(tmp_path / "empty", [], requested=5))
    assert (rows(client)["columns"]["episode"], client.get("/api/dataset").json()["requested"]) == ([], 5)


def test_growing_dataset_is_read_on(api, tmp_path):
    path = write(tmp_path / "growing", [varied(1), varied(0)], requested=4)
    client = api(path)
    assert rows(client)["columns"]["episode"] == [1, 0]
    write(path, [varied(2)], requested=4)
    for _ in range(200):
        if client.get("/api/dataset").json()["read"] == 3:
            break
    assert rows(client, 2)["columns"]["episode"] == [2]
    # The order of episodes in the file, and with it that of the rows, changes at the end of a collection.
    with EpisodeLog(path / "episodes.log") as log:
        log.sort()
    for _ in range(200):
        if (answer := rows(client))["generation"] == 1 and not answer["isReading"]:
            break
        client.get("/api/dataset")
    assert rows(client)["columns"]["episode"] == [0, 1, 2]


def test_damaged_episode_does_not_hide_others(api, tmp_path):
    path = write(tmp_path / "damaged", [varied(0), varied(1), varied(3)])
    log = path / "episodes.log"
    data = bytearray(log.read_bytes())
    second = data.index(b"\x28\xb5\x2f\xfd", data.index(b"\x28\xb5\x2f\xfd") + 4)
    data[second + 20] ^= 0xFF
    log.write_bytes(data)
    client = api(path)
    answer = rows(client)
    assert answer["columns"]["episode"] == [0, 1, 3]
    assert [answer["endings"][code] for code in answer["columns"]["ending"]] == ["terminated", "damaged", "truncated"]
    refused = client.get("/api/episodes/1")
    assert refused.status_code == 422
    assert "is damaged: its checksum does not match" in refused.text
    assert client.get("/api/episodes/3").status_code == 200


def test_end_that_cannot_be_read_is_reported(api, tmp_path):
    path = write(tmp_path / "damaged", [varied(0), varied(1), varied(3)])
    log = path / "episodes.log"
    data = bytearray(log.read_bytes())
    start = data.index(b"\x28\xb5\x2f\xfd", data.index(b"\x28\xb5\x2f\xfd") + 4)
    # The length of the second episode.
    data[start - 40 : start - 36] = b"\xff\xff\xff\x7f"
    log.write_bytes(data)
    # Perhaps it is being written.
    assert api(path).get("/api/dataset").json()["problem"] == ""
    manifest = Manifest.read(path)
    manifest.sha256 = "0" * 64
    manifest.write(path)
    client = api(path)
    assert rows(client)["columns"]["episode"] == [0]
    assert rows(client)["problem"].startswith("The episodes are damaged at byte ")


@pytest.mark.parametrize("kind", ["nested", "nested less", "huge"])
def test_hostile_episode_does_not_hide_others(api, tmp_path, kind):
    path = write(tmp_path / "hostile", [varied(0), varied(1)], with_details=False)
    append_encoded(path, 2, hostile(kind))
    write(path, [varied(3)], with_details=False)
    client = api(path)
    assert (rows(client)["columns"]["episode"], rows(client)["problem"]) == ([0, 1, 2, 3], "")
    assert client.get("/api/episodes/2").status_code in (200, 422)
    assert client.get("/api/episodes/3").status_code == 200


def hostile(kind):
    if kind == "huge":
        # The header of a frame with 2**62 bytes.
        return b"\x28\xb5\x2f\xfd\xe0" + (2**62).to_bytes(8, "little") + b"\x01\x00\x00"
    depth = 5000 if kind == "nested" else 600
    info = b"\x81\xa1a" + b"\x91" * depth + b"\xc0"
    steps = b"\x91\x81\xa4info" + info
    return zstandard.compress(b"\x83\xa5index\x02\xa4seed\x01\xa5steps" + steps)


def append_encoded(path, index, data):
    with EpisodeLog(path / "episodes.log") as log:
        log.append(index, data, bytes(32))


def test_failure_of_the_reader_is_reported(api, varied_path, monkeypatch):
    monkeypatch.setattr("coding_gym_studio.viewer.index.summary_of", lambda *_: 1 / 0)
    assert rows(api(varied_path))["problem"] == "The dataset cannot be read: ZeroDivisionError: division by zero"


def test_texts_and_pictures_may_have_any_name(api, tmp_path):
    names = ["a/b", "", "..", ".", "a?b&c=#%2f", "action", "raw", "\u05e9"]
    observation = {name: f"text of {name}" for name in names} | {"x/y": np.ones((2, 2), np.uint8)}
    step = Step(observation=observation, action="do()", info={"outcome": "ok"})
    client = api(write(tmp_path / "names", [episode(0, steps=[step])], with_details=False))
    shown = client.get("/api/episodes/0").json()["steps"][1]

    def text(name):
        return client.get(f"/api/episodes/0/steps/1/text?name={quote(name, safe='')}").json()["text"]

    assert [text(name) for name in shown["lengths"]][: len(names)] == [f"text of {name}" for name in names]
    assert {"observation.action", "observation.raw"} <= set(shown["lengths"])
    assert (text("action"), json.loads(text("raw"))["action"]) == ("do()", "do()")
    picture = quote(shown["pictures"][0]["name"], safe="")
    assert client.get(f"/api/episodes/0/steps/1/picture?name={picture}").status_code == 200


def test_info_of_other_packages_is_tolerated(api, tmp_path):
    odd = [
        Step(observation=[1, 2], action=3, reward=2.0, terminated=True, info={"outcome": 7, "solved": "yes"}),
        Step(observation=np.zeros((2, 2), np.float32), action={"type": "click"}, info={"tests_passed": None}),
    ]
    client = api(write(tmp_path / "odd", [episode(0, steps=odd)], with_details=False))
    answer = rows(client)
    assert (answer["columns"]["reward"], answer["outcomes"]) == ([2.0], [""])
    step = client.get("/api/episodes/0").json()["steps"][2]
    assert (step["isCode"], step["pictures"]) == (False, [])
    assert "click" in client.get("/api/episodes/0/steps/2/text?name=action").json()["text"]


def test_details_of_an_episode_are_there_before_all_have_been_read(varied_path):
    for _ in range(20):
        index = EpisodeIndex(varied_path)
        index.start()
        # As if the page of the episode were the first that is opened.
        assert index.details(3) is not None
