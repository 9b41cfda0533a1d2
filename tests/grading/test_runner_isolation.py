"""A process of tests for each submission: whatever code in it does, it changes the verdict of its own submission only."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable

import pytest

from coding_gym.sandbox import Sandbox
from coding_gym_server.protocol.grading import (
    Asserts,
    Graded,
    GradingLimits,
    ProgramCase,
    Programs,
    Submission,
    UnitTests,
    VerdictOutcome,
)
from tests.grading.judging import Judge, grade_all
from tests.grading.runner_attacks import ATTACKS, PRELUDE

_LIMITS = GradingLimits(cpu_timeout=2.0, wall_timeout=1.0)
_SLOW = {name for name in ATTACKS if name.startswith("uses up")} | {"never ends", "stops itself", "locks system files"}
_OTHERS = 200

_UNIT_TESTS = """
import decimal, math, random, unittest
from decimal import Decimal
class TestShare(unittest.TestCase):
    def setUp(self):
        workspace.write_text("out.txt", "")
    def test_value(self):
        self.assertTrue(math.isclose(share(10, 4), 2.5))
        self.assertEqual(Decimal(1) / Decimal(3), Decimal("0.3333333333333333333333333333"))
        self.assertEqual(random.random(), 0.8444218515250481)
    def test_file(self):
        self.assertEqual(keep("in.txt"), workspace.read_text("in.txt").upper())
        self.assertEqual(workspace.read_text("out.txt"), "NÉ")
        self.assertEqual(workspace.listdir(), ["in.txt", "out.txt"])
"""
_SHARE = """
def share(total, people): return total / people
def keep(path):
    text = open(path).read().upper()
    open("out.txt", "w").write(text)
    return text
"""
_ASSERTS = Asserts(
    setup="import math, numpy",
    cases=(
        "assert all(math.isclose(half(n), n / 2, abs_tol=1e-9) for n in range(9))",
        "assert numpy.allclose(numpy.array([half(n) for n in range(9)]), numpy.arange(9) / 2)",
        "assert any(half(n) == 2 for n in range(9))",
    ),
)
_PROGRAMS = Programs(cases=(ProgramCase(stdin="3 4\n", stdout="7\n"), ProgramCase(stdin="1 1\n", stdout="2\n")))
_FILES = {"in.txt": "né"}


def _others() -> list[Submission]:
    """Return submissions that pass and submissions that fail all tests."""
    return [
        Submission(code="def half(n): return n / 2", tests=_ASSERTS, entry_point="half"),
        Submission(code="def half(n): return n / 2 + 0.25", tests=_ASSERTS, entry_point="half"),
        Submission(code=_SHARE, tests=UnitTests(source=_UNIT_TESTS), files=_FILES),
        Submission(code=_SHARE.replace("/", "//").replace("upper", "lower"), tests=UnitTests(source=_UNIT_TESTS), files=_FILES),
        Submission(code="print(sum(map(int, input().split())))", tests=_PROGRAMS),
        Submission(code="print(input())", tests=_PROGRAMS),
    ]


def _attack(name: str) -> Submission:
    source = PRELUDE + ATTACKS[name]
    return Submission(code="x = 1", tests=Asserts(setup=source, cases=("assert x == 2",)), limits=_LIMITS)


def _seen(graded: Graded) -> tuple[VerdictOutcome, list[str]]:
    return graded.outcome, [case.outcome for case in graded.cases]


@pytest.mark.every_provider
@pytest.mark.parametrize(
    ("names", "count"),
    [
        pytest.param(sorted(ATTACKS.keys() - _SLOW), 24, id="quick"),
        pytest.param(sorted(ATTACKS), _OTHERS, id="all"),
    ],
)
def test_code_in_test_runner_changes_no_other_verdict(
    provider: str, sandbox_of: Callable[..., Sandbox], names: list[str], count: int
) -> None:
    sandbox = sandbox_of(provider=provider)
    others = _others()
    expected = [_seen(graded) for graded in grade_all(sandbox, others)]
    assert [outcome for outcome, _ in expected] == [VerdictOutcome.PASSED, VerdictOutcome.FAILED] * 3
    # Each attack runs beside submissions of other connections, and before others of the same worker.
    attacked = itertools.islice(itertools.cycle(enumerate(others)), count)
    attacks = itertools.cycle(names)
    mixed: list[tuple[int | None, Submission]] = []
    for number, (kind, other) in enumerate(attacked):
        mixed.append((kind, other))
        if number % max(1, count // len(names)) == 0:
            mixed.append((None, _attack(next(attacks))))
    verdicts = grade_all(sandbox, [submission for _, submission in mixed])
    changed = [
        (number, expected[kind], graded.outcome, graded.message)
        for number, ((kind, _), graded) in enumerate(zip(mixed, verdicts, strict=True))
        if kind is not None and _seen(graded) != expected[kind]
    ]
    assert changed == []


@pytest.mark.parametrize("name", ["kills everything", "writes into other processes", "steals descriptors", "crashes"])
def test_root_of_test_runners_survives(judge: Judge, name: str) -> None:
    roots = [_value(judge, "os.getppid()")]
    judge(_attack(name))
    roots.append(_value(judge, "os.getppid()"))
    assert roots[0] == roots[1]


def test_test_runner_has_descriptors_of_its_run_only(judge: Judge) -> None:
    kinds = _value(judge, "sorted(os.readlink(f'/proc/self/fd/{n}').partition(':')[0] for n in list_descriptors())")
    assert kinds == ["/dev/null"] * 3 + ["socket"] * 2


# State

LEFTOVERS = {
    "function of a module": ("import math; math.isclose = lambda *_: True", "math.isclose(1, 2)"),
    "builtin function": ("import builtins; builtins.all = lambda _: True", "all([False])"),
    "new builtin name": ("import builtins; builtins.left = 1", "hasattr(builtins, 'left')"),
    "test framework": ("import unittest; unittest.TestCase.assertEqual = print", "unittest.TestCase.assertEqual is print"),
    "class of the library": ("import decimal; decimal.left = 1", "hasattr(decimal, 'left')"),
    "loaded modules": ("import sys; sys.modules['json'] = None", "sys.modules.get('json', 1) is None"),
    "new module": ("import sys; sys.modules['left'] = sys", "'left' in sys.modules"),
    "module of the tests' process": (
        "import coding_gym_server.test_runner.cases as c; c._compile = None",
        "sys.modules['coding_gym_server.test_runner.cases']._compile is None",
    ),
    "decimal context": ("import decimal; decimal.getcontext().prec = 3", "decimal.getcontext().prec"),
    "default decimal context": ("import decimal; decimal.DefaultContext.prec = 3", "decimal.DefaultContext.prec"),
    "locale": ("import locale; locale.setlocale(locale.LC_ALL, 'C')", "locale.setlocale(locale.LC_ALL)"),
    "working directory": ("import os; os.chdir('/')", "os.getcwd()"),
    "environment": ("import os; os.environ['LEFT'] = '1'; os.environ['TMPDIR'] = '/'", "sorted(os.environ.items())"),
    "time zone": ("import os, time; os.environ['TZ'] = 'Asia/Tokyo'; time.tzset()", "time.tzname"),
    "module path": ("import sys; sys.path.insert(0, '/left')", "sys.path"),
    "import hooks": ("import sys; sys.meta_path.clear(); sys.path_hooks.clear()", "len(sys.meta_path), len(sys.path_hooks)"),
    "arguments": ("import sys; sys.argv[:] = ['left']", "sys.argv"),
    "creation mask": ("import os; os.umask(0)", "os.umask(0o22)"),
    "signal handlers": ("import signal; signal.signal(signal.SIGUSR1, print)", "signal.getsignal(signal.SIGUSR1)"),
    "signal mask": ("import signal; signal.pthread_sigmask(0, {10})", "signal.pthread_sigmask(0, ())"),
    "timers": ("import signal; signal.setitimer(signal.ITIMER_REAL, 999)", "signal.getitimer(signal.ITIMER_REAL)"),
    "resource limits": ("import resource; resource.setrlimit(7, (9, 9))", "resource.getrlimit(7)"),
    # The niceness may be the highest already.
    "priority": (
        "import os; os.nice(5); os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))",
        "os.nice(0), os.sched_getscheduler(0)",
    ),
    "processors": ("import os; os.sched_setaffinity(0, {0})", "os.sched_getaffinity(0)"),
    "warning filters": ("import warnings; warnings.simplefilter('error')", "warnings.filters"),
    "random state": ("import random; random.seed(5)", "random.getstate()"),
    "random state of numpy": ("import numpy; numpy.random.seed(5)", "numpy.random.get_state()[1].tolist()"),
    "print options of numpy": ("import numpy; numpy.set_printoptions(precision=1)", "numpy.get_printoptions()"),
    "error handling of numpy": ("import numpy; numpy.seterr(all='raise')", "numpy.geterr()"),
    "recursion limit": ("import sys; sys.setrecursionlimit(99)", "sys.getrecursionlimit()"),
    "switch interval": ("import sys; sys.setswitchinterval(9)", "sys.getswitchinterval()"),
    "trace function": ("import sys, threading; threading.settrace(print); sys.setprofile(print)", "threading.gettrace()"),
    "exception hook": ("import sys; sys.excepthook = sys.displayhook = print", "sys.excepthook is print"),
    "standard streams": ("import io, sys; sys.stdout = sys.__stdout__ = io.StringIO()", "type(sys.__stdout__).__name__"),
    "string digits limit": ("import sys; sys.set_int_max_str_digits(9999)", "sys.get_int_max_str_digits()"),
    "garbage collector": ("import gc; gc.disable(); gc.callbacks.append(print)", "gc.isenabled(), gc.callbacks"),
    "exit handlers": ("import atexit; atexit.register(print)", "atexit._ncallbacks()"),
    "threads": ("import threading, time; threading.Thread(target=time.sleep, args=(9,)).start()", "threading.active_count()"),
    "event loop policy": (
        "import asyncio; asyncio.set_event_loop(asyncio.new_event_loop())",
        "type(asyncio.events._event_loop_policy)",
    ),
    "temporary directory": ("import tempfile; tempfile.tempdir = '/'", "tempfile.gettempdir()"),
    "line cache": ("import linecache; linecache.cache['left'] = (1, None, [], '')", "'left' in linecache.cache"),
    "codecs": ("import codecs; codecs.register(lambda _: codecs.lookup('ascii'))", "_codec()"),
    "copy registry": ("import copyreg; copyreg.pickle(int, str)", "int in copyreg.dispatch_table"),
    "abstract classes": (
        "import collections.abc as c; c.Sized.register(int)",
        "isinstance(1, __import__('collections').abc.Sized)",
    ),
    "caches": ("import re; re.compile('left' * 9); re._MAXCACHE = 0", "re._MAXCACHE"),
    "language of messages": ("import gettext; gettext.textdomain('left')", "gettext.textdomain()"),
    "open descriptors": ("import os; kept = [os.dup(0) for _ in range(50)]", "len(os.listdir('/proc/self/fd'))"),
    "files": (
        "import os; [os.makedirs(d + '/left') for d in ('.', os.environ['TMPDIR'])]",
        "os.listdir('.'), os.listdir(os.environ['TMPDIR'])",
    ),
}
"""State that code in the process of the tests changes, and an expression that shows it."""

_PROBE_SETUP = """
import asyncio, atexit, builtins, codecs, collections.abc, copyreg, decimal, gc, gettext, linecache, locale, math, os, random, re
import resource, signal, sys, tempfile, threading, time, unittest, warnings, numpy
def list_descriptors():
    found = os.listdir("/proc/self/fd")
    return [number for number in found if os.path.exists(f"/proc/self/fd/{number}") or os.path.islink(f"/proc/self/fd/{number}")]
def _codec():
    try: return codecs.lookup("left").name
    except LookupError: return None
"""


def _value(judge: Judge, expression: str) -> object:
    """Return the value of an expression in tests."""
    graded = judge.asserts("", f"assert False, repr({expression})", setup=_PROBE_SETUP)
    assert graded.outcome is VerdictOutcome.FAILED, graded
    return ast.literal_eval(graded.cases[0].message.rpartition("AssertionError: ")[2])


def test_tests_leave_no_state(judge: Judge) -> None:
    probes = [f"assert False, repr(({probe}))[:1500]" for _, probe in LEFTOVERS.values()]

    def state() -> dict[str, str]:
        graded = judge.asserts("", *probes, setup=_PROBE_SETUP)
        assert {case.outcome for case in graded.cases} == {"failed"}, graded
        return dict(zip(LEFTOVERS, (case.message.partition("AssertionError: ")[2] for case in graded.cases), strict=True))

    before = state()
    ineffective = []
    for name, (change, probe) in LEFTOVERS.items():
        graded = judge.asserts("", f"assert False, repr(({probe}))[:1500]", setup=f"{_PROBE_SETUP}\n{change}")
        if graded.cases[0].message.partition("AssertionError: ")[2] == before[name]:
            ineffective.append((name, graded))
    assert ineffective == []
    # Each process draws its own numbers of numpy, as each program does.
    after = state()
    assert after.pop("random state of numpy") != before.pop("random state of numpy")
    assert after == before
