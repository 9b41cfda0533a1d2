from __future__ import annotations

import dataclasses
import itertools
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from coding_gym.errors import ConfigurationError, PoolClosedError, ProviderUnavailableError
from coding_gym.sandbox import Sandbox
from coding_gym.sandbox.pool import SandboxPool
from coding_gym.tasks import (
    Asserts,
    Grader,
    GradingLimits,
    ProgramCase,
    Programs,
    ScreenStep,
    ScreenTests,
    Task,
    TaskSuite,
    UnitTests,
    Verdict,
    VerdictOutcome,
    WindowCount,
)
from coding_gym.tasks.grading import CancellationToken, GradingConnection
from tests.support.sandbox_faults import kill_sandbox
from tests.support.timing import eventually, promptly

DOUBLE = Task(
    id="double",
    prompt="Double it.",
    entry_point="double",
    prefix="def double(x):\n",
    tests=Asserts(cases=("assert double(1) == 2", "assert double('a') == 'aa'")),
    reference="def double(x):\n    return 2 * x\n",
)
RIGHT, WRONG, SLOW, FOREVER = (
    "    return 2 * x",
    "    return x + x if x == 1 else x",
    "    import time\n    time.sleep(0.5)\n    return 2 * x",
    "    while True: pass",
)
PATIENT = dataclasses.replace(DOUBLE, limits=GradingLimits(cpu_timeout=90, wall_timeout=90))


class CanceledAtOnce(CancellationToken):
    """Cancels the grading that asks whether it is canceled."""

    def __init__(self, connection: GradingConnection) -> None:
        self._connection = connection

    @property
    def is_cancelled(self) -> bool:
        self._connection.abort(self)
        return True


def members(grader: Grader) -> list[Sandbox]:
    return [member.sandbox for member in grader.pool._members]


def outcomes(verdicts: Iterator[Verdict] | list[Verdict]) -> Counter[str]:
    return Counter(verdict.outcome.value for verdict in verdicts)


def test_verdict_has_cases_and_score(grader: Grader) -> None:
    verdict = grader.grade(DOUBLE, RIGHT)
    assert (verdict.task_id, verdict.passed, verdict.total, verdict.score, verdict.solved) == ("double", 2, 2, 1.0, True)
    assert 0 < verdict.load_seconds < verdict.seconds
    verdict = grader.grade(DOUBLE, WRONG)
    assert (verdict.outcome, verdict.passed, verdict.total, verdict.score, verdict.solved) == ("failed", 1, 2, 0.5, False)
    assert "assert double('a') == 'aa'" in verdict.cases[1].message
    verdict = grader.grade(DOUBLE, "1 +")
    assert (verdict.outcome, verdict.total, verdict.score) == ("error", 2, 0.0)
    assert "IndentationError" in verdict.message


def test_every_kind_of_tests_is_graded(grader: Grader) -> None:
    solution = "def double(x):\n    return 2 * x\nif __name__ == '__main__':\n    print(double(int(input())))\n"
    unittests = "import unittest\nclass T(unittest.TestCase):\n    def test_it(self):\n        self.assertEqual(double(1), 2)\n"
    asserts = Asserts(
        cases=("assert double(workspace.read_text('a.txt')) == 'bb'", "assert workspace.listdir() == ['a.txt', 'd']")
    )
    tasks = [
        Task(id="unit", prompt="", entry_point="double", tests=UnitTests(source=unittests)),
        Task(id="program", prompt="", tests=Programs(cases=(ProgramCase(stdin="2", stdout="4"),))),
        Task(id="files", prompt="", tests=asserts, files={"a.txt": "b", "d/e.bin": b"\xff"}),
    ]
    assert outcomes(grader.grade_many((task, solution) for task in tasks)) == {"passed": 3}


@pytest.mark.usefixtures("xvfb")
def test_screen_tests_are_graded(grader: Grader) -> None:
    steps = (ScreenStep(name="opens", expect=(WindowCount(count=1),)), ScreenStep(expect=(WindowCount(count=1),)))
    task = Task(id="window", prompt="", tests=ScreenTests(steps=steps))
    verdict = grader.grade(task, "import tkinter\nroot = tkinter.Tk()\nroot.mainloop()\n")
    assert (verdict.outcome, verdict.passed) == ("passed", 2)
    assert grader.grade(task, "\ud800").cases[0].name == "opens"


def test_sample_of_human_eval_is_graded_correctly(grader: Grader, humaneval: TaskSuite) -> None:
    some = humaneval[::5].merge(TaskSuite("", [humaneval["HumanEval/32"], humaneval["HumanEval/33"]]))
    assert outcomes(grader.grade_many((task, task.reference or "") for task in some)) == {"passed": 35}
    bodies = grader.grade_many((task, (task.reference or "")[len(task.prompt) :]) for task in some)
    assert outcomes(bodies) == {"passed": 35}
    assert sum(verdict.solved for verdict in grader.grade_many((task, "    pass") for task in some)) == 0


def test_sample_of_mbpp_references_passes(grader: Grader, mbpp: TaskSuite) -> None:
    # Their tests import, compare sizes, use classes of the submission, or have an entry point with the name of a builtin.
    hard = TaskSuite("", [mbpp[name] for name in ("126", "367", "596", "601", "927")])
    some = hard.merge(mbpp.filter(lambda task: int(task.id) % 20 == 0))
    verdicts = list(grader.grade_many((task, task.reference or "") for task in some))
    assert [verdict.task_id for verdict in verdicts if not verdict.solved] == []


@pytest.mark.skipif("CODING_GYM_ALL_SUITES" not in os.environ, reason="takes a minute: set CODING_GYM_ALL_SUITES=1")
def test_all_references_pass(grader: Grader, humaneval: TaskSuite, mbpp: TaskSuite) -> None:
    tasks = [*humaneval, *mbpp]
    verdicts = grader.grade_many([(task, task.reference or "") for task in tasks])
    assert [verdict.task_id for verdict in verdicts if not verdict.solved] == []
    assert outcomes(grader.grade_many([(task, "    pass") for task in humaneval])) == {"failed": 164}


def test_verdicts_keep_order_without_blocking_workers() -> None:
    tasks = [Task(id=str(n), prompt="", entry_point="f", tests=Asserts(cases=(f"assert f() == {n}",))) for n in range(24)]
    solutions = [f"import time\ntime.sleep({8 if n == 0 else 0})\ndef f(): return {n}" for n in range(24)]
    left = iter(zip(tasks, solutions, strict=True))
    with Grader(provider="local", preload=(), workers=2) as other:
        verdicts = other.grade_many(left)
        first = next(verdicts)
        # While the first one slept, the others were graded, all but the few that are taken in advance.
        assert next(left, None) is None
        rest = list(verdicts)
    assert [verdict.task_id for verdict in (first, *rest)] == [task.id for task in tasks]
    assert outcomes([first, *rest]) == {"passed": 24}


def test_submissions_are_consumed_lazily(grader: Grader) -> None:
    taken = itertools.count()
    verdicts = grader.grade_many((DOUBLE, f"{RIGHT} # {next(taken)}") for _ in itertools.count())
    assert [next(verdicts).solved for _ in range(5)] == [True] * 5
    verdicts.close()
    assert 5 <= next(taken) <= 5 + grader.workers * 16
    assert list(grader.grade_many([])) == []
    assert list(verdicts) == []


def test_verdicts_do_not_wait_for_submissions(grader: Grader) -> None:
    """A caller that generates submissions from verdicts gets each verdict as soon as the workers are busy."""
    gate = threading.Event()

    def submissions() -> Iterator[tuple[Task, str]]:
        for number in range(grader.workers * 8):
            yield DOUBLE, f"{RIGHT} # {number}"
        assert gate.wait(30)

    verdicts = grader.grade_many(submissions())
    assert next(verdicts).solved
    gate.set()
    assert len(list(verdicts)) == grader.workers * 8 - 1


def test_closing_iterator_cancels_grading(grader: Grader) -> None:
    verdicts = grader.grade_many(itertools.chain([(DOUBLE, RIGHT)], itertools.repeat((PATIENT, FOREVER))))
    assert next(verdicts).solved
    time.sleep(0.3)
    with promptly():
        verdicts.close()
        assert grader.grade(DOUBLE, RIGHT).solved


def test_submissions_that_raise_end_the_run(grader: Grader) -> None:
    def submissions() -> Iterator[tuple[Task, str]]:
        yield DOUBLE, RIGHT
        raise KeyError("the policy broke")

    with pytest.raises(KeyError, match="the policy broke"):
        list(grader.grade_many(submissions()))
    with pytest.raises(ConfigurationError, match="'double' to be a str, got NoneType"):
        list(grader.grade_many([(DOUBLE, None)]))  # type: ignore[list-item]


def test_equal_submissions_are_graded_once(grader: Grader) -> None:
    """A program that counts its runs is run once per task, and again in another call, or if asked to."""
    other = dataclasses.replace(DOUBLE, id="other")
    random = "    import os\n    if x == 1:\n        raise ValueError(os.urandom(8).hex())\n    return 2 * x"
    verdicts = list(grader.grade_many([(DOUBLE, random), (other, random), (DOUBLE, random), (DOUBLE, RIGHT), (DOUBLE, random)]))
    assert [verdict.is_repeat for verdict in verdicts] == [False, False, True, False, True]
    assert [verdict.task_id for verdict in verdicts] == ["double", "other", "double", "double", "double"]
    first, apart, again, right, last = (verdict.cases[0].message for verdict in verdicts)
    assert first == again == last
    assert len({first, apart, right}) == 3
    assert dataclasses.replace(verdicts[2], is_repeat=False) == verdicts[0]
    (later,) = grader.grade_many([(DOUBLE, random)])
    assert not later.is_repeat
    assert later.cases[0].message != first
    regraded = list(grader.grade_many([(DOUBLE, random)] * 3, regrade=True))
    assert len({verdict.cases[0].message for verdict in regraded}) == 3
    assert not any(verdict.is_repeat for verdict in regraded)


def test_limits_and_prefix_distinguish_submissions(grader: Grader) -> None:
    prefix = "def double(x):\n    x = 0 * x\n"
    tasks = [DOUBLE, PATIENT, dataclasses.replace(DOUBLE, prefix=prefix), DOUBLE]
    verdicts = list(grader.grade_many([(task, RIGHT) for task in tasks]))
    assert [verdict.is_repeat for verdict in verdicts] == [False, False, False, True]
    assert [verdict.solved for verdict in verdicts] == [True, True, False, True]


def test_repeats_leave_workers_to_others(grader: Grader) -> None:
    """A slow submission and its repeats occupy one worker."""
    slow = [(DOUBLE, SLOW)] * (8 * grader.workers)
    verdicts = grader.grade_many(itertools.chain(slow, ((DOUBLE, f"{RIGHT} # {number}") for number in range(20))))
    assert [verdict.is_repeat for verdict in verdicts] == [False, *[True] * (len(slow) - 1), *[False] * 20]


def test_cached_verdicts_are_those_of_earlier_calls() -> None:
    with Grader(provider="local", preload=(), workers=2, cache=2) as other:
        codes = [RIGHT, WRONG, RIGHT, "    return x", RIGHT, WRONG]
        assert [other.grade(DOUBLE, code).is_repeat for code in codes] == [False, False, True, False, True, False]
        verdicts = list(other.grade_many([(DOUBLE, WRONG), (DOUBLE, "1"), (DOUBLE, "1")]))
        assert [verdict.is_repeat for verdict in verdicts] == [True, False, True]
        assert not other.grade(DOUBLE, RIGHT).is_repeat
        with ThreadPoolExecutor(8) as threads:
            counts = Counter(verdict.is_repeat for verdict in threads.map(other.grade, [DOUBLE] * 16, [SLOW] * 16))
        assert counts == {False: 1, True: 15}
        with pytest.raises(ConfigurationError, match="got NoneType"):
            other.grade(DOUBLE, None)  # type: ignore[arg-type]


def test_canceled_and_lost_verdicts_are_not_shared() -> None:
    with Grader(provider="local", preload=(), workers=1, retries=0, cache=10) as other:
        canceled = other.grade_many([(DOUBLE, RIGHT), (PATIENT, SLOW)])
        assert next(canceled).solved
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(other.grade, PATIENT, SLOW)
            canceled.close()
            assert waiting.result().solved
        [connection] = other._connections
        # It is canceled, and its session aborted, once it has begun, and before it uses the session.
        assert connection.grade(DOUBLE, RIGHT, CanceledAtOnce(connection)).is_infrastructure
        assert other.grade(DOUBLE, f"{RIGHT} # afterwards").solved
        threading.Timer(0.5, kill_sandbox, (members(other)[0],)).start()
        lost = other.grade(PATIENT, FOREVER)
        assert lost.is_infrastructure
        assert not other.grade(PATIENT, SLOW.replace("0.5", "0")).is_repeat
        limited = dataclasses.replace(PATIENT, limits=GradingLimits(cpu_timeout=0.2))
        assert not other.grade(limited, FOREVER).is_repeat


def test_limits_of_grader_replace_those_of_tasks() -> None:
    with Grader(provider="local", preload=(), workers=2, limits=GradingLimits(cpu_timeout=0.2)) as hasty:
        assert outcomes(hasty.grade_many([(PATIENT, FOREVER), (PATIENT, RIGHT)])) == {"timeout": 1, "passed": 1}
    assert PATIENT.limits.cpu_timeout == 90
    with pytest.raises(ConfigurationError, match="Expected limits to be a GradingLimits or None, got 3"):
        Grader(provider="local", limits=3)  # type: ignore[arg-type]


def test_grader_is_thread_safe(grader: Grader) -> None:
    with ThreadPoolExecutor(12) as threads:
        verdicts = list(threads.map(lambda n: grader.grade(DOUBLE, WRONG if n % 3 else RIGHT), range(36)))
    assert [verdict.solved for verdict in verdicts] == [n % 3 == 0 for n in range(36)]


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        ("", "error"),
        ("\ud800", "error"),
        ("\0", "error"),
        ("double = " + "(" * 200_000, "error"),
        ("double = " + "-" * 200_000 + "1", "error"),
        ("x" * 3_000_000, "error"),
        ("#" * 9_000_000, "error"),
        ("    return 2 * x\n" + "#" * 6_000_000, "passed"),
        ("def double(x):\n    raise SystemExit", "failed"),
        ("    import os\n    os._exit(0)", "killed"),
        (FOREVER, "timeout"),
    ],
    ids=["empty", "surrogate", "nul", "nested", "signs", "long", "longest", "comment", "exit", "_exit", "forever"],
)
def test_any_submission_gets_verdict(grader: Grader, code: str, outcome: str) -> None:
    limits = GradingLimits(cpu_timeout=1.5)
    task = Task(id="double", prompt="", entry_point="double", prefix=DOUBLE.prefix, tests=DOUBLE.tests, limits=limits)
    verdict = grader.grade(task, code)
    assert (verdict.outcome, verdict.total) == (outcome, 2)
    assert outcome == "passed" or verdict.passed == 0


def test_inputs_larger_than_frame_are_split(grader: Grader) -> None:
    cases = tuple(ProgramCase(stdin="x" * 7_000_000 + name, stdout=name) for name in "abcde")
    task = Task(id="large", prompt="", tests=Programs(cases=cases))
    verdict = grader.grade(task, "print(input()[-1].replace('d', 'e'))")
    assert [case.name for case in verdict.cases] == ["0", "1", "2", "3", "4"]
    assert (verdict.outcome, verdict.passed, verdict.stdout) == ("failed", 4, "e\n")
    too_large = Asserts(cases=(f"assert double(1) == 2 # {'x' * 17_000_000}",))
    with pytest.raises(ConfigurationError, match="tests of task 'huge' are too large"):
        grader.grade(Task(id="huge", prompt="", tests=too_large), RIGHT)


def test_dead_sandbox_is_replaced() -> None:
    with Grader(provider="local", preload=(), workers=3) as grader:
        verdicts = grader.grade_many([(DOUBLE, SLOW)] * 6, regrade=True)
        seen = [next(verdicts)]
        kill_sandbox(members(grader)[0])
        seen += verdicts
        assert outcomes(seen) == {"passed": 6}
        assert grader.pool.stats.lost == 1


def test_persistent_infrastructure_failure_has_no_score() -> None:
    with Grader(provider="local", preload=(), workers=1, retries=0) as grader:
        assert grader.grade(DOUBLE, RIGHT).solved
        verdicts = grader.grade_many([(DOUBLE, FOREVER), (DOUBLE, RIGHT)])
        threading.Timer(0.5, kill_sandbox, (members(grader)[0],)).start()
        lost, right = verdicts
        assert lost.is_infrastructure
        assert (lost.score, lost.solved, lost.total) == (None, False, 2)
        assert "broke" in lost.message
        assert right.solved


def test_grader_shares_given_pool() -> None:
    with SandboxPool(1, provider="local", preload=(), sessions=3, max_episodes=10) as pool:
        with Grader(pool=pool, workers=64) as grader:
            assert grader.workers == 3
            assert outcomes(grader.grade_many([(DOUBLE, RIGHT)] * 12, regrade=True)) == {"passed": 12}
            assert pool.stats.episodes == 12
        assert pool.stats.busy == 0
        assert pool.stats.recycled >= 1
        with pytest.raises(ConfigurationError, match="pass mem to SandboxPool instead"):
            Grader(pool=pool, mem="1g")
        with pool.acquire():
            pass
        with pytest.raises(PoolClosedError):
            grader.grade(DOUBLE, RIGHT)
        with pytest.raises(PoolClosedError):
            list(grader.grade_many([(DOUBLE, RIGHT)]))


def test_invalid_settings_are_refused() -> None:
    for wrong in ({"workers": 0}, {"retries": -1}, {"workers": 1.5}, {"cache": -1}):
        with pytest.raises(ConfigurationError, match=next(iter(wrong))):
            Grader(provider="local", **wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"'mem'.*workers"):
        Grader(memory="1g")
    assert repr(Grader(provider="local", workers=3)) == "<Grader provider=local workers=3>"


def test_sandboxes_follow_workers() -> None:
    sizes = {workers: Grader(provider="local", workers=workers).pool for workers in (1, 16, 17, 40)}
    assert {workers: (pool.size, pool.config.sessions) for workers, pool in sizes.items()} == {
        1: (1, 1),
        16: (1, 16),
        17: (2, 9),
        40: (3, 14),
    }
    with Grader(provider="local", preload=(), workers=17) as grader:
        assert outcomes(grader.grade_many([(DOUBLE, RIGHT), (DOUBLE, "def double(x): return x")] * 40, regrade=True)) == {
            "passed": 40,
            "failed": 40,
        }
        assert grader.pool.stats.sandboxes == 2


def test_grading_without_sandbox_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere.sock")
    grader = Grader(provider="docker")
    with pytest.raises(ProviderUnavailableError):
        grader.grade(DOUBLE, RIGHT)
    with pytest.raises(ProviderUnavailableError):
        list(grader.grade_many([(DOUBLE, RIGHT)]))
    grader.close()


def test_close_cancels_all_grading() -> None:
    with Grader(provider="local", preload=(), workers=2) as other:
        verdicts = other.grade_many([(DOUBLE, RIGHT), (PATIENT, FOREVER), (PATIENT, FOREVER)])
        assert next(verdicts).solved
        time.sleep(0.2)
        with promptly():
            other.close()
            other.close()
        assert {verdict.outcome for verdict in _as_far_as_there_are(verdicts)} <= {VerdictOutcome.INFRASTRUCTURE}


def test_close_does_not_wait_for_leased_sessions() -> None:
    with SandboxPool(1, provider="local", preload=()) as pool:
        lease = pool.acquire()
        other = Grader(pool=pool)
        waiting = ThreadPoolExecutor(1)
        verdict = waiting.submit(other.grade, DOUBLE, RIGHT)
        assert eventually(lambda: pool.stats.waiting == 1)
        other.close()
        lease.release()
        assert verdict.result(30).is_infrastructure
        assert eventually(lambda: pool.stats.busy == 0)
        waiting.shutdown()


def _as_far_as_there_are(verdicts: Iterator[Verdict]) -> Iterator[Verdict]:
    try:
        yield from verdicts
    except PoolClosedError:
        return


def test_progress_is_shown_on_stderr(grader: Grader, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(list(grader.grade_many([(DOUBLE, RIGHT), (DOUBLE, WRONG), (DOUBLE, RIGHT)], progress=True))) == 3
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "3/3" in captured.err
    assert "2 solved" in captured.err
    assert len(list(grader.grade_many(((DOUBLE, RIGHT) for _ in range(2)), progress=True))) == 2
    assert "2/?" in capsys.readouterr().err
