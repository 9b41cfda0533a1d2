from __future__ import annotations

import itertools

from coding_gym.telemetry import Identity
from coding_gym_server.protocol import Pixels
from coding_gym_studio.watching.table import SessionTable

IDENTITY = Identity("CodingEnv-v0", "python", None, None, None)


def result(stdout="", *, outcome="ok", reward=0.0, terminated=False):
    return {"stdout": stdout, "stderr": "", "exit_code": 0}, reward, terminated, False, {"outcome": outcome}


def run_steps(session, count, stdout=""):
    for number in range(count):
        session.running(f"step {number}")
        session.stepped(result(stdout), None)


def test_states_of_an_episode():
    session = SessionTable().opened(IDENTITY)
    states = [session.state]
    for act in (
        session.waiting,
        session.resetting,
        lambda: session.begun(None, None),
        lambda: session.running("1"),
        lambda: session.stepped(result(), None),
        session.truncated,
        session.resetting,
        session.abandoned,
        session.closed,
    ):
        act()
        states.append(session.state)
    assert states == ["idle", "waiting", "resetting", "idle", "running", "idle", "ended", "resetting", "idle", "closed"]


def test_return_is_the_sum_of_an_episode():
    session = SessionTable().opened(IDENTITY)
    session.begun("a", None)
    for reward in (0.5, 0.25):
        session.running("x")
        session.stepped(result(reward=reward), None)
    assert (session.row().episode_return, session.row().reward) == (0.75, 0.25)
    session.begun("b", None)
    assert (session.row().episode_return, session.row().label, session.row().outcome) == (0.0, "b", None)


def test_long_texts_are_cut_in_the_middle():
    session = SessionTable().opened(IDENTITY)
    session.running("x" * 1_000_000)
    session.stepped(result("a" * 500_000 + "b" * 500_000), None)
    (step,) = session.history()
    assert len(step.stdout) < 8200
    assert step.stdout.startswith("aaa")
    assert step.stdout.endswith("bbb")
    assert "992000 characters are left out" in step.stdout
    assert len(step.action) < 8200
    assert len(session.row().action) == 400


def test_few_steps_are_kept():
    session = SessionTable().opened(IDENTITY)
    run_steps(session, 100)
    assert [step.action for step in session.history()] == [f"step {number}" for number in range(68, 100)]
    assert session.row().all_steps == 100


def test_thousands_of_sessions_share_the_memory_for_texts():
    table = SessionTable()
    sessions = [table.opened(IDENTITY) for _ in range(4096)]
    for session in sessions:
        run_steps(session, 20, "x" * 4000)
    kept = sum(len(step.stdout) for session in sessions for step in session.history())
    assert kept < 50_000_000
    assert all(session.history() for session in sessions)


def test_pictures_are_numbered():
    session = SessionTable().opened(IDENTITY)
    first = Pixels(1, 1, b"first")
    assert session.row().picture == 0
    session.stepped(result(), first)
    session.stepped(result(), first)
    assert session.row().picture == 1
    assert session.picture() == (1, first)
    session.stepped(result(), None)
    assert session.row().picture == 0


def test_changes_are_those_since_the_last_ones():
    table = SessionTable()
    one, other = table.opened(IDENTITY), table.opened(IDENTITY)
    known = {}
    assert [row.id for row in table.changes(known).sessions] == [one.id, other.id]
    assert table.changes(known).sessions == []
    other.running("1")
    assert [row.state for row in table.changes(known).sessions] == ["running"]


def test_rates_and_outcomes():
    table = SessionTable()
    session = table.opened(IDENTITY)
    table.sample()
    for _ in range(4):
        run_steps(session, 10)
        table.sample()
    summary = table.summary()
    assert summary.rates == [10, 10, 10, 10]
    assert (summary.rate, summary.minute_rate, summary.steps) == (10, 10, 40)
    assert summary.outcomes == summary.minute_outcomes == {"ok": 40}
    for _ in range(70):
        table.sample()
    session.stepped(result(outcome="error"), None)
    assert table.summary().rate == 0
    assert table.summary().minute_outcomes == {"error": 1}
    assert table.summary().outcomes == {"ok": 40, "error": 1}


def test_durations_are_sampled():
    table = SessionTable()
    session = table.opened(IDENTITY)
    session._shared.steps.extend(range(1000))
    sample = table.summary().step_seconds
    assert sample == sorted(sample)
    assert len(sample) <= 80
    assert sample[-1] == 999


def test_closed_sessions_leave_after_a_while(monkeypatch):
    now = itertools.count()
    monkeypatch.setattr("time.monotonic", lambda: next(now) * 6.0)
    table = SessionTable()
    one, other = table.opened(IDENTITY), table.opened(IDENTITY)
    run_steps(one, 3)
    known = {}
    table.changes(known)
    one.closed()
    for _ in range(3):
        table.sample()
    assert table.changes(known).removed == [one.id]
    assert table.summary().steps == 3
    other.closed()
    for _ in range(3):
        table.sample()
    assert [row.state for row in table.changes({}).sessions] == ["closed"], "the last ones stay"


def test_many_closed_sessions_leave_at_once():
    table = SessionTable()
    for _ in range(1000):
        table.opened(IDENTITY).closed()
    table.sample()
    assert len(table.changes({}).sessions) == 256
