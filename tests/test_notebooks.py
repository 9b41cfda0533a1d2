"""What notebooks show of objects of this package, by IPython's own formatter."""

from __future__ import annotations

import socket
from html.parser import HTMLParser
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from IPython.core.formatters import DisplayFormatter

import coding_gym
from coding_gym import Video
from coding_gym.code_interpreter import Execution, ExecutionError
from coding_gym.datasets import Dataset, collect
from coding_gym.datasets.episode import Episode, Step
from coding_gym.envs.episode import ObservationView
from coding_gym.media import representation
from coding_gym.media.results import Result
from coding_gym.tasks import Asserts, Task, TaskSuite, Verdict
from coding_gym_server.protocol import Frame, Pixels
from coding_gym_server.protocol.grading import CaseOutcome, CaseResult, VerdictOutcome

_HOSTILE = "</pre></td></table>\"'><script>alert(1)</script><img src=x onerror=alert(2)><iframe src='javascript:alert(3)'>&lt;"
_ELEMENTS = {
    *("b", "code", "details", "div", "iframe", "img", "li", "pre", "summary"),
    *("table", "tbody", "td", "th", "thead", "tr", "ul"),
}


class _Checker(HTMLParser):
    """Collects the elements and the text of HTML, and checks that nothing in it can run."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(html)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in _ELEMENTS
        given = dict(attrs)
        assert set(given) <= {"style", "src", "alt", "sandbox", "srcdoc"}
        assert "src" not in given or given["src"].startswith("data:image/")
        assert tag != "iframe" or given["sandbox"] == ""
        self.elements.append(tag)
        if tag != "img":
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def bundle(value: Any) -> dict[str, Any]:
    formatter = DisplayFormatter()
    formatter.active_types = formatter.format_types
    data, _ = formatter.format(value)
    return data


def shown(value: Any) -> _Checker:
    return _Checker(bundle(value)["text/html"])


def video(count: int, side: int = 16) -> Video:
    import zstandard

    rng = np.random.default_rng(1)
    frames = (rng.integers(0, 255, (side, side, 3), np.uint8).tobytes() for _ in range(count))
    return Video(
        Frame(index / 10, Pixels(side, side, zstandard.ZstdCompressor().compress(rgb))) for index, rgb in enumerate(frames)
    )


def verdict(text: str, *, cases: int = 1) -> Verdict:
    results = tuple(CaseResult(name=f"{text}{n}", outcome=CaseOutcome.FAILED, message=text) for n in range(cases))
    return Verdict(task_id=text, outcome=VerdictOutcome.FAILED, cases=results, message=text, stdout=text, stderr=text)


def task(text: str, number: int = 0) -> Task:
    tests = Asserts(cases=("assert f() == 1",))
    return Task(id=f"{text}{number}", prompt=text, tests=tests, entry_point="f", reference=text, files={"name <b>": text})


def episode(text: str) -> Episode:
    observation = {"stdout": text, "stderr": text, "exit_code": 0}
    steps = (Step(observation=observation), Step(observation=observation, action=text), Step(observation=text, action=text))
    return Episode(index=0, seed=1, options={"task_id": text}, steps=steps)


def execution(text: str) -> Execution:
    kinds = ("text/plain", "text/html", "image/svg+xml", "text/markdown", "text/latex", "application/javascript")
    results = [Result({kind: text, "text/plain": text}, is_value=False) for kind in kinds]
    results.append(Result({"e2b/data": {text: [text]}, "text/html": text}, is_value=True))
    return Execution(stdout=text, stderr=text, results=results, error=ExecutionError(text, text, text))


@pytest.mark.parametrize(
    "make",
    [
        verdict,
        task,
        episode,
        execution,
        lambda text: TaskSuite(text, [task(text)]),
        lambda text: ObservationView({"stdout": text, "stderr": text, "exit_code": 1, "prompt": text}),
        lambda text: Result({"text/html": text}, is_value=True),
        lambda text: Result({"image/svg+xml": text}, is_value=True),
        lambda text: Result({"e2b/data": {text: [text]}}, is_value=True),
    ],
)
def test_hostile_text_never_becomes_markup(make):
    assert shown(make(_HOSTILE)).elements.count("script") == 0
    # The same elements as for harmless text.
    assert shown(make(_HOSTILE)).elements == shown(make("harmless")).elements


def test_foreign_html_loads_nothing(open_tab):
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        url = f"http://127.0.0.1:{stranger.getsockname()[1]}"
        hostile = (
            f"<!doctype html><html><head><base href='{url}'><link rel=stylesheet href={url}/a><link rel=preconnect href={url}>"
            f"<style>@import '{url}/b'; p {{ color: rgb(1, 2, 3); background: url({url}/c) }}</style>"
            f"<meta http-equiv=refresh content='0; url={url}/d'></head><body><img src={url}/e><object data={url}/f></object>"
            f"<iframe src={url}/g></iframe><video src={url}/h></video><script src={url}/i></script>"
            f"<script>new Image().src = '{url}/j'; parent.hacked = 1</script><p>shown"
        )
        page = open_tab()
        page.set_content(bundle(Result({"text/html": hostile}, is_value=True))["text/html"])
        shown = page.frame_locator("iframe").locator("p")
        # Its own style applies.
        assert shown.evaluate("element => getComputedStyle(element).color") == "rgb(1, 2, 3)"
        page.wait_for_load_state("networkidle")
        assert page.evaluate("window.hacked") is None
        stranger.settimeout(1)
        with pytest.raises(TimeoutError):
            stranger.accept()
        # Chromium reports what it has blocked.
        page.traffic.problems.clear()


@pytest.mark.parametrize(
    "kind", ["text/markdown", "text/latex", "application/javascript", "application/vnd.jupyter.widget-view+json"]
)
def test_formats_that_may_run_are_left_out(kind):
    assert bundle(Result({kind: _HOSTILE, "text/plain": "text"}, is_value=True)) == {"text/plain": "text"}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"text/plain": "2"}, {"text/plain": "2"}),
        ({"text/plain": "<Figure>", "image/png": b"\x89PNG"}, {"text/plain": "<Figure>", "image/png": "iVBORw=="}),
        ({"application/json": {"a": 1}}, {"text/plain": "[application/json]", "application/json": {"a": 1}}),
        # User code may display a bundle with arbitrary contents.
        ({"image/png": "no base64", "text/plain": "x"}, {"text/plain": "x"}),
        ({"e2b/data": [1], "text/plain": "x"}, {"text/plain": "x"}),
    ],
)
def test_result_is_shown_as_in_its_own_notebook(data, expected):
    assert bundle(Result(data, is_value=True)) == expected


def test_execution_shows_output_results_and_error():
    page = shown(
        Execution(
            stdout="printed",
            results=[Result({"image/png": b"\x89PNG"}, is_value=True)],
            error=ExecutionError("ValueError", "no", "Traceback ... ValueError: no"),
        )
    )
    assert page.elements == ["div", "pre", "img", "pre"]
    assert page.text == "printedTraceback ... ValueError: no"


def test_verdict_shows_its_tests():
    page = shown(verdict("a test", cases=50))
    assert "0 of 50 tests" in page.text
    assert "... and 30 more" in page.text
    assert page.elements.count("tr") == 21


def test_video_is_an_animation():
    import base64
    import io
    import re

    from PIL import Image

    html = bundle(video(5))["text/html"]
    [data] = re.findall(r"data:image/gif;base64,([^\"]+)", html)
    movie = Image.open(io.BytesIO(base64.b64decode(data)))
    assert movie.n_frames == 5
    assert "5 frames, 0.00 s to 0.40 s" in _Checker(html).text
    assert shown(Video()).elements == ["div", "div"]


def test_observation_shows_its_screen():
    screenshot = np.zeros((4, 4, 3), np.uint8)
    observation = ObservationView({"stdout": "out", "stderr": "", "exit_code": np.int64(0), "screenshot": screenshot})
    assert shown(observation).elements == ["div", "pre", "div", "b"]
    screenshot[0] = 255
    assert "img" in shown(observation).elements


def test_observation_is_a_plain_dict_that_the_environment_shows(local_env):
    with pytest.raises(gym.error.ResetNeeded):
        local_env.show()
    observation, _ = local_env.reset(seed=1)
    # Not a subclass: minari and torch.utils._pytree look at the type.
    assert type(observation) is dict
    observation = local_env.step("print(1)\n1 / 0")[0]
    assert type(observation) is dict
    assert observation in local_env.observation_space
    assert "ZeroDivisionError" in shown(local_env.show()).text


@pytest.fixture
def local_env(pool):
    env = coding_gym.CodingEnv(pool=pool, screen=None)
    yield env
    env.close()


def test_dataset_and_its_episodes_are_tables(tmp_path):
    options = {"provider": "local", "preload": (), "screen": None}
    dataset = collect("CodingEnv-v0", ["print('<b>')", "2"], 2, seed=1, path=tmp_path, env_options=options)
    assert isinstance(dataset, Dataset)
    page = shown(dataset)
    assert page.elements.count("tr") == 3
    assert "2 episodes of CodingEnv-v0" in page.text
    assert "<b>" in shown(dataset[0]).text


@pytest.mark.parametrize(
    "make",
    [
        lambda: Execution(
            stdout="x" * 10**6, stderr="y" * 10**6, results=[Result({"text/plain": "z" * 10**6}, is_value=True)] * 50
        ),
        lambda: verdict("x" * 10**5, cases=500),
        lambda: TaskSuite("many", [task("x" * 10_000, n) for n in range(1000)]),
        lambda: episode("x" * 10**6),
        lambda: Result({"text/html": "<p>" * 10**6}, is_value=True),
        lambda: Result({"e2b/data": {"x": ["y" * 10_000] * 10_000}}, is_value=True),
        lambda: ObservationView({"stdout": "x" * 10**6, "stderr": "", "exit_code": 0}),
    ],
)
def test_large_objects_stay_small(make):
    html = bundle(make())["text/html"]
    assert len(html) < 200_000


def test_long_and_large_video_stays_small(monkeypatch):
    assert len(bundle(video(500))["text/html"]) < 200_000
    monkeypatch.setattr(representation, "_MAX_GIF_BYTES", 1000)
    assert "its last frame" in shown(video(5)).text
