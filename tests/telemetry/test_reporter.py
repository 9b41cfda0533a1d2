from __future__ import annotations

import gc
import logging

import pytest

from coding_gym.telemetry import Group, SessionReporter, observation


class Recorder:
    """An observer that records what it is told."""

    def __init__(self):
        self.told = []

    def opened(self, identity):
        self.told.append(("opened", identity))
        return self

    def __getattr__(self, name):
        return lambda *arguments: self.told.append((name, *arguments))

    @property
    def names(self):
        return [name for name, *_ in self.told]


@pytest.fixture
def recorder(monkeypatch):
    recorder = Recorder()
    monkeypatch.setattr(observation, "observers", (recorder,))
    return recorder


def result(outcome="ok", reward=0.0, terminated=False, **info):
    return {"stdout": "1\n", "stderr": "", "exit_code": 0}, reward, terminated, False, {"outcome": outcome, **info}


def test_nothing_is_kept_without_an_observer(monkeypatch):
    monkeypatch.setattr(observation, "observers", ())
    reporter = SessionReporter("CodingEnv-v0")
    reporter.resetting()
    reporter.running("x")
    reporter.stepped(result(), None)
    reporter.closed()
    assert reporter._told == []


def test_events_are_reported_in_order(recorder):
    reporter = SessionReporter("CodingEnv-v0", screen=(640, 480))
    reporter.waiting()
    reporter.resetting()
    reporter.begun("task 1", None)
    reporter.running("print(1)")
    reporter.stepped(result(reward=1, terminated=True, graded=True, tests_passed=2, tests_total=3), None)
    reporter.closed()
    assert recorder.names == ["opened", "waiting", "resetting", "begun", "running", "stepped", "closed"]
    _, (obs, reward, terminated, _, info), picture = recorder.told[5]
    assert (obs["stdout"], info["outcome"], reward, terminated, picture) == ("1\n", "ok", 1, True, None)
    assert recorder.told[0][1].screen == (640, 480)


def test_members_of_a_group_appear_at_once(recorder):
    group = Group(2)
    reporters = [SessionReporter("CodingEnv-v0") for _ in range(2)]
    for index, reporter in enumerate(reporters):
        reporter.place(group, index)
    assert [(identity.group, identity.position) for _, identity in recorder.told] == [(group, 0), (group, 1)]


def test_observers_are_told_side_by_side(recorder, caplog):
    other = Recorder()
    observation.begin(other)
    reporter = SessionReporter("CodingEnv-v0")
    reporter.running("1")
    other.truncated = None
    reporter.truncated()
    reporter.closed()
    assert recorder.names == ["opened", "running", "truncated", "closed"]
    assert other.names == ["opened", "running"]
    assert observation.observers == (recorder,)
    assert "Watching has failed" in caplog.text


def test_observation_can_begin_later(monkeypatch):
    monkeypatch.setattr(observation, "observers", ())
    reporter = SessionReporter("CodingEnv-v0")
    reporter.running("1")
    recorder = Recorder()
    observation.begin(recorder)
    reporter.stepped(result(), None)
    assert recorder.names == ["opened", "stepped"]


def test_lost_environments_are_closed(recorder):
    reporter = SessionReporter("CodingEnv-v0")
    reporter.resetting()
    del reporter
    gc.collect()
    assert recorder.names == ["opened", "resetting", "closed"]


@pytest.mark.parametrize("method", ["waiting", "resetting", "abandoned", "truncated", "closed"])
def test_an_error_of_the_observer_ends_the_observation(recorder, method, caplog):
    reporter = SessionReporter("CodingEnv-v0")
    reporter.running("1")

    def fail():
        message = "broken observer"
        raise RuntimeError(message)

    setattr(recorder, method, fail)
    with caplog.at_level(logging.WARNING, logger="coding_gym"):
        getattr(reporter, method)()
        getattr(reporter, method)()
    assert observation.observers == ()
    assert [record.message for record in caplog.records] == ["Watching has failed, and has been turned off in this process."]


def test_interruptions_pass(recorder):
    reporter = SessionReporter("CodingEnv-v0")

    def interrupt(action):
        raise KeyboardInterrupt

    recorder.running = interrupt
    with pytest.raises(KeyboardInterrupt):
        reporter.running("1")


@pytest.mark.parametrize(
    ("backend", "language"),
    [
        (None, "python"),
        ("restricted", "python"),
        ("bash", "bash"),
        ("jupyter:deno", "typescript"),
        ("js", "typescript"),
        ("jupyter:julia", "julia"),
        ("C++", "cpp"),
    ],
)
def test_language_follows_the_backend(recorder, backend, language):
    SessionReporter("CodingEnv-v0", backend=backend).waiting()
    assert recorder.told[0][1].language == language
