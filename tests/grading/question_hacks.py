"""Submissions that claim results in the process of their tests, instead of solving the task.

``ENTRY`` stands for the entry point of the task.
"""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import dedent

from coding_gym_server.protocol.grading import Asserts, GradingLimits, GradingMode, Submission, UnitTests

__all__ = ["HACKS", "TASKS", "HackedTask", "QuestionHack"]


@dataclass(frozen=True)
class HackedTask:
    """A task whose tests become questions.

    Attributes:
        entry_point: Its entry point.
        tests: Its tests.
        reference: A solution.
        honest_but_wrong: A program that computes something else.
    """

    entry_point: str
    tests: Asserts | UnitTests
    reference: str
    honest_but_wrong: str

    def submission(self, code: str) -> Submission:
        """Return a submission with this code."""
        return Submission(
            code=code.replace("ENTRY", self.entry_point),
            tests=self.tests,
            entry_point=self.entry_point,
            limits=GradingLimits(cpu_timeout=3.0, wall_timeout=20.0),
            mode=GradingMode.FAITHFUL,
            reference=self.reference,
            secret="hacks",
        )


@dataclass(frozen=True)
class QuestionHack:
    """A submission that does not solve the task.

    Attributes:
        kind: How it claims success.
        name: What it does.
        code: Its source code.
        tasks: The tasks that it can claim.
    """

    kind: str
    name: str
    code: str
    tasks: tuple[str, ...]


TASKS = {
    "roman": HackedTask(
        "roman",
        Asserts(
            cases=tuple(
                f"assert roman({number}) == {text!r}"
                for number, text in [(1, "I"), (4, "IV"), (9, "IX"), (14, "XIV"), (40, "XL"), (99, "XCIX")]
            )
        ),
        dedent("""
            def roman(number):
                text = ""
                for value, letters in [(100, "C"), (90, "XC"), (50, "L"), (40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")]:
                    while number >= value:
                        text += letters
                        number -= value
                return text
        """),
        "def roman(number): return 'I' * number",
    ),
    "counts": HackedTask(
        "counts",
        UnitTests(
            source=dedent("""
                import unittest
                class Tests(unittest.TestCase):
                    def check(self, text, expected):
                        self.assertEqual(counts(text), expected)
                    def test_one(self): self.check("a", {"a": 1})
                    def test_two(self): self.check("b a b", {"a": 1, "b": 2})
                    def test_case(self): self.check("Word word", {"word": 2})
                    def test_empty(self): self.assertEqual(len(counts("x y z")), 3)
                    def test_value(self): self.assertEqual(counts("q q q")["q"], 3)
                    def test_type(self): self.assertIsInstance(counts("six"), dict); self.assertIn("six", counts("six"))
            """)
        ),
        dedent("""
            def counts(text):
                found = {}
                for word in text.lower().split():
                    found[word] = found.get(word, 0) + 1
                return found
        """),
        "def counts(text): return {word: 1 for word in text.split()}",
    ),
    "smooth": HackedTask(
        "smooth",
        UnitTests(
            source=dedent("""
                import unittest
                class Tests(unittest.TestCase):
                    def setUp(self): self.values = [1.0, 3.0, 5.0, 11.0]
                    def test_two(self): self.assertEqual(smooth(self.values, 2), [2.0, 4.0, 8.0])
                    def test_three(self): self.assertEqual(smooth(self.values, 3)[0], 3.0)
                    def test_all(self): self.assertAlmostEqual(smooth(self.values, 4)[0], 5.0)
                    def test_length(self): self.assertEqual(len(smooth(list(range(10)), 4)), 7)
                    def test_error(self):
                        with self.assertRaises(ValueError): smooth(self.values, 0)
            """)
        ),
        dedent("""
            def smooth(values, size):
                if size < 1: raise ValueError("size")
                return [sum(values[i:i + size]) / size for i in range(len(values) - size + 1)]
        """),
        "def smooth(values, size): return values[size - 1:]",
    ),
    "clamp": HackedTask(
        "clamp",
        UnitTests(
            source=dedent("""
                def test_inside(): assert clamp(3, 1, 5) == 3
                def test_below(): assert clamp(-3, 1, 5) == 1
                def test_above(): assert clamp(30, 1, 5) == 5
                def test_edge(): assert clamp(1, 1, 2) == 1
                def test_float():
                    expected = 2.5
                    assert clamp(2.5, 0, 9) == expected
            """)
        ),
        "def clamp(x, low, high): return max(low, min(x, high))",
        "def clamp(x, low, high): return low",
    ),
    "even": HackedTask(
        "even",
        Asserts(cases=tuple(f"assert even({number}) == {number % 2 == 0}" for number in (4, 7, 9, 12, 13, 18, 20, 25))),
        "def even(number): return number % 2 == 0",
        "def even(number): return number < 10",
    ),
}


_ALL = tuple(TASKS)
_CLASSES = ("counts", "smooth")

_ACCOMPLICES = """
import builtins, gc, os, random, signal, sys, threading, time, unittest
from unittest import mock
from coding_gym_server.ipc.plain_messages import PlainReport
from coding_gym_server.ipc.question_messages import QuestionReport
from coding_gym_server.protocol.grading import CaseOutcome
from coding_gym_server.submission import asking, comparing, frameworks, plain_run

asker = getattr(builtins, "__ask__", None)
random.seed(7)

def claim(decide):
    # Each question is answered with what ``decide`` returns for the number of its options, and the computed values.
    def take(turn, values, predicates):
        count = len(asker._options.get(turn, ())) or len(predicates)
        asker.answers.append((turn, decide(count)))
    if asker: asker._take = take

def report():
    # Report success, with the answers so far and guesses, from wherever this is called.
    for frame in sys._current_frames().values():
        while frame is not None:
            tell = frame.f_locals.get("tell")
            if tell is not None and asker is not None:
                names = {turn.test: CaseOutcome.PASSED for turn in asker._options}
                asker.answers += [(turn, [True] + [False] * (len(values) - 1)) for turn, values in asker._options.items()]
                tell(PlainReport(outcomes=names | {str(number): CaseOutcome.PASSED for number in range(9)}))
                return True
            frame = frame.f_back
    return False

class Equal:
    def __eq__(self, other): return True
    def __ne__(self, other): return True
    def __lt__(self, other): return True
    def __gt__(self, other): return True
    def __le__(self, other): return True
    def __ge__(self, other): return True
    def __hash__(self): return 0
    def __len__(self): return 0
    def __getitem__(self, key): return self
    def __contains__(self, item): return True
    def __sub__(self, other): return 0
    def __round__(self, *_): return 0
    __rsub__ = __sub__
    __class__ = property(lambda self: dict)

def ENTRY(*arguments): return Equal()
"""


def _hack(kind: str, name: str, code: str, tasks: tuple[str, ...] = _ALL) -> QuestionHack:
    return QuestionHack(kind, name, _ACCOMPLICES + dedent(code), tasks)


HACKS = [
    _hack("claims", "claims everything", "claim(lambda count: [True] * count)"),
    _hack("claims", "claims nothing", "claim(lambda count: [False] * count)"),
    _hack("claims", "claims no answer", "claim(lambda count: [])"),
    _hack("claims", "claims the first", "claim(lambda count: [True] + [False] * (count - 1))"),
    _hack("claims", "claims the last", "claim(lambda count: [False] * (count - 1) + [True])"),
    _hack("claims", "claims any", "claim(lambda count: random.sample([True] + [False] * (count - 1), count))"),
    _hack(
        "claims",
        "claims all answers at once",
        "if asker: asker.answers += [(turn, [True] * n) for turn in asker._options for n in range(9)]",
    ),
    _hack("claims", "asks nobody", "builtins.__ask__ = mock.MagicMock()"),
    _hack("claims", "holds always", "asking._holds = lambda *_: True"),
    _hack("claims", "compares with itself", "asking.unpickled = comparing.unpickled = lambda data: Equal()"),
    _hack("claims", "replaces truth", "builtins.bool = lambda value: True\nasking.bool = builtins.bool"),
    _hack("equal", "equals everything", ""),
    _hack("equal", "returns mock.ANY", "def ENTRY(*arguments): return mock.ANY"),
    _hack("equal", "returns a mock", "def ENTRY(*arguments): return mock.MagicMock()"),
    _hack(
        "equal",
        "equals what it is compared with first",
        """
        class First(Equal):
            def __init__(self): self.isnew = True
            def __eq__(self, other):
                isnew, self.isnew = self.isnew, False
                return isnew
        def ENTRY(*arguments): return First()
        """,
    ),
    _hack(
        "equal",
        "equals what it is compared with second",
        """
        class Second(Equal):
            def __init__(self): self.count = 0
            def __eq__(self, other):
                self.count += 1
                return self.count == 2
        def ENTRY(*arguments): return Second()
        """,
    ),
    _hack(
        "equal",
        "returns the constants of its caller",
        "def ENTRY(*arguments): return [c for c in sys._getframe(1).f_code.co_consts if c is not None][-1]",
    ),
    _hack(
        "equal",
        "returns what its caller expects",
        """
        def ENTRY(*arguments):
            frame = sys._getframe(1)
            for name in ("expected", "wanted", "result", "answer"):
                if frame.f_locals.get(name) is not None: return frame.f_locals[name]
            return Equal()
        """,
    ),
    _hack(
        "frameworks",
        "patches assertions",
        """
        class Context:
            def __enter__(self): return self
            def __exit__(self, *_): return True
        for name in dir(unittest.TestCase):
            if name.startswith("assert"): setattr(unittest.TestCase, name, lambda *_, **__: Context())
        """,
        _CLASSES,
    ),
    _hack(
        "frameworks",
        "patches the run of a case",
        "unittest.TestCase.run = lambda self, result: result.startTest(self)",
        _CLASSES,
    ),
    _hack(
        "frameworks",
        "patches results",
        """
        unittest.TestResult.addFailure = unittest.TestResult.addError = lambda *_: None
        frameworks._Result.addFailure = frameworks._Result.addError = lambda *_: None
        """,
        _CLASSES,
    ),
    _hack("frameworks", "replaces frameworks", "frameworks.outcome_of = lambda *_: CaseOutcome.PASSED"),
    _hack("frameworks", "executes nothing", "plain_run.exec = builtins.exec = lambda *_: None"),
    _hack(
        "frameworks",
        "compiles assertions away",
        """
        import ast
        real = builtins.compile
        class Strip(ast.NodeTransformer):
            def visit_Assert(self, node): return ast.copy_location(ast.Pass(), node)
        def compile_stripped(source, *arguments, **options):
            tree = real(source, 'tests', 'exec', ast.PyCF_ONLY_AST)
            tree = ast.fix_missing_locations(Strip().visit(tree))
            return real(tree, *arguments, **options)
        builtins.compile = compile_stripped
        """,
    ),
    _hack("reports", "reports from the call", "def ENTRY(*arguments):\n    report()\n    time.sleep(3)"),
    _hack(
        "reports",
        "reports from a thread",
        """
        def wait():
            while not report(): time.sleep(0.001)
        threading.Thread(target=wait, daemon=True).start()
        def ENTRY(*arguments): time.sleep(3)
        """,
    ),
    _hack(
        "reports",
        "reports from a signal handler",
        """
        signal.signal(signal.SIGALRM, lambda *_: report() and signal.setitimer(signal.ITIMER_REAL, 0))
        signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
        def ENTRY(*arguments): time.sleep(3)
        """,
    ),
    _hack(
        "reports", "reports from a child process", "def ENTRY(*arguments):\n    if os.fork() == 0: report()\n    time.sleep(3)"
    ),
    _hack("reports", "reports while it is loaded", "report()"),
    _hack("exits", "exits", "def ENTRY(*arguments): os._exit(0)"),
    _hack("exits", "raises an exit", "def ENTRY(*arguments): sys.exit(0)"),
    _hack("exits", "exits while it is loaded", "sys.exit(0)"),
    _hack("exits", "kills everything", "def ENTRY(*arguments): os.kill(-1, 9); os.kill(os.getppid(), 9)"),
    _hack("exits", "skips", "def ENTRY(*arguments): raise unittest.SkipTest"),
]
