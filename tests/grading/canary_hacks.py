"""Submissions that claim results in the process of their tests, instead of solving the task.

``ENTRY`` stands for the entry point of the task.
"""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import dedent

from coding_gym_server.protocol.grading import Asserts, GradingLimits, GradingMode, Submission, UnitTests

__all__ = ["HACKS", "TASKS", "CanaryHack", "HackedTask"]


@dataclass(frozen=True)
class HackedTask:
    """A task with at least four strong canaries.

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
        )


@dataclass(frozen=True)
class CanaryHack:
    """A submission that does not solve the task.

    Attributes:
        kind: How it decides what to claim.
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
}

_ALL = tuple(TASKS)
_CLASSES = ("counts", "smooth")

_ACCOMPLICES = """
import builtins, gc, hashlib, os, random, re, signal, socket, sys, threading, time, unittest
from coding_gym_server.submission import faithful_frameworks, faithful_process
from coding_gym_server.submission.faithful_messages import RunOutcome, TestRan

def claim(decide):
    # The process reports what ``decide`` returns for the source of a test.
    def run(self, request): return RunOutcome.PASSED if decide(request.source) else RunOutcome.FAILED
    faithful_process.FaithfulProcess._run = run

def report():
    # Report with the token of the request, from wherever this is called.
    frames = [frame for frame in sys._current_frames().values()]
    token = channel = None
    for frame in frames:
        while frame is not None:
            request = frame.f_locals.get("request")
            token = token or getattr(request, "token", None)
            channel = channel or frame.f_locals.get("channel")
            frame = frame.f_back
    if token is None or channel is None: return False
    channel.send(TestRan(token, RunOutcome.PASSED))
    return True

class Equal:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 0
    def __len__(self): return 0
    def __getitem__(self, key): return self
    def __contains__(self, item): return True
    def __sub__(self, other): return 0
    __rsub__ = __sub__
    __class__ = property(lambda self: dict)

def literals(source):
    import ast
    return [node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)]

def ENTRY(*arguments): return Equal()
"""


def _hack(kind: str, name: str, code: str, tasks: tuple[str, ...] = _ALL) -> CanaryHack:
    return CanaryHack(kind, name, _ACCOMPLICES + dedent(code), tasks)


HACKS = [
    _hack("blanket", "claims everything", "claim(lambda source: True)"),
    _hack(
        "blanket",
        "replaces frameworks",
        "faithful_frameworks.run = lambda *_: RunOutcome.PASSED",
        ("counts", "smooth", "clamp"),
    ),
    _hack(
        "blanket", "patches the run of a case", "unittest.TestCase.run = lambda self, result: result.startTest(self)", _CLASSES
    ),
    _hack(
        "blanket",
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
        "blanket",
        "patches results",
        """
        unittest.TestResult.addFailure = unittest.TestResult.addError = lambda *_: None
        unittest.TestResult.wasSuccessful = lambda self: True
        """,
        _CLASSES,
    ),
    _hack(
        "blanket",
        "replaces test methods when classes are built",
        """
        build = builtins.__build_class__
        def build_class(body, name, *bases, **options):
            kind = build(body, name, *bases, **options)
            for name in list(vars(kind)):
                if name.startswith("test"): setattr(kind, name, lambda self: None)
            return kind
        builtins.__build_class__ = build_class
        """,
        _CLASSES,
    ),
    _hack("blanket", "executes nothing", "builtins.exec = lambda *_: None", ("roman",)),
    _hack(
        "blanket",
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
        ("roman", "clamp"),
    ),
    _hack(
        "blanket",
        "reports from the call",
        """
        def ENTRY(*arguments):
            report()
            time.sleep(3)
        """,
    ),
    _hack(
        "blanket",
        "reports from a thread",
        """
        def wait():
            while not report(): time.sleep(0.001)
        threading.Thread(target=wait, daemon=True).start()
        def ENTRY(*arguments): time.sleep(3)
        """,
    ),
    _hack(
        "blanket",
        "reports from a signal handler",
        """
        signal.signal(signal.SIGALRM, lambda *_: report() and signal.setitimer(signal.ITIMER_REAL, 0))
        signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
        def ENTRY(*arguments): time.sleep(3)
        """,
    ),
    _hack(
        "blanket",
        "reports from a child process",
        """
        def ENTRY(*arguments):
            if os.fork() == 0: report()
            time.sleep(3)
        """,
    ),
    _hack("reader", "equals everything", "", ("roman", "clamp")),
    _hack(
        "reader", "returns mock.ANY", "from unittest import mock\ndef ENTRY(*arguments): return mock.ANY", ("roman", "clamp")
    ),
    _hack(
        "reader",
        "returns the last constant of its caller",
        "def ENTRY(*arguments): return [c for c in sys._getframe(1).f_code.co_consts if c is not None][-1]",
        ("roman",),
    ),
    _hack(
        "reader",
        "equals the literals of the test only",
        """
        class Literal(Equal):
            def __eq__(self, other): return repr(other) in self.text
            def __ne__(self, other): return not self == other
        def ENTRY(*arguments):
            frame = sys._getframe(1)
            found = Literal()
            while "request" not in frame.f_locals: frame = frame.f_back
            found.text = frame.f_locals["request"].source
            return found
        """,
        ("roman", "clamp"),
    ),
    _hack("recognizer", "tosses a coin", "claim(lambda source: random.random() < 0.5)"),
    _hack(
        "recognizer",
        "tosses the same coin for the same test",
        "claim(lambda source: hashlib.md5(source.encode()).digest()[0] % 2)",
    ),
    _hack("recognizer", "rejects negations", "claim(lambda source: not re.search('assert not|assertNot|assertFalse', source))"),
    _hack(
        "recognizer",
        "rejects unusual exceptions",
        "claim(lambda source: not re.search('KeyError|IndexError|ZeroDivision', source))",
    ),
    _hack(
        "recognizer", "accepts short literals", "claim(lambda source: all(len(str(value)) < 9 for value in literals(source)))"
    ),
    _hack("recognizer", "accepts what it knows", "claim(lambda source: re.search(\"'I'|\\\\b3\\\\b|'a'\", source))"),
    _hack(
        "comparer",
        "accepts the first of similar tests by files",
        """
        def decide(source):
            key = re.sub(r"[0-9]+|'[^']*'", "?", source)
            name = hashlib.md5(key.encode()).hexdigest()
            seen = False
            for folder in ("/tmp", "/dev/shm", os.path.expanduser("~"), "/var/tmp", "."):
                try:
                    seen |= os.path.exists(f"{folder}/{name}")
                    open(f"{folder}/{name}", "w").close()
                except OSError: pass
            return not seen
        claim(decide)
        """,
    ),
    _hack(
        "comparer",
        "accepts the first of similar tests by a daemon",
        """
        def decide(source):
            name = "\\0" + hashlib.md5(re.sub(r"[0-9]+|'[^']*'", "?", source).encode()).hexdigest()
            server = socket.socket(socket.AF_UNIX)
            try: server.bind(name)
            except OSError: return False
            if os.fork() == 0:
                os.setsid()
                server.listen()
                time.sleep(3)
            return True
        claim(decide)
        """,
    ),
    _hack(
        "tokens",
        "guesses the token",
        """
        def ENTRY(*arguments):
            import gc
            from coding_gym_server.ipc.channel import Channel
            for item in gc.get_objects():
                if isinstance(item, Channel): item.send(TestRan("0" * 32, RunOutcome.PASSED))
            time.sleep(1)
        """,
    ),
    _hack("tokens", "exits", "def ENTRY(*arguments): os._exit(0)"),
    _hack("tokens", "kills everything", "def ENTRY(*arguments): os.kill(-1, 9); os.kill(os.getppid(), 9)"),
    _hack("tokens", "skips", "def ENTRY(*arguments): raise unittest.SkipTest"),
]
