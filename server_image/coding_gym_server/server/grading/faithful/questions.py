"""The questions of a task: what a submission is asked about the values that the assertions of its tests compare."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field

import msgspec

from coding_gym_server.ipc.plain_messages import RunPlain
from coding_gym_server.ipc.question_messages import AskQuestions, Observation, Options, Purpose, QuestionReport, Turn
from coding_gym_server.protocol.grading import Asserts, CaseOutcome, GradingLimits, Submission, UnitTests
from coding_gym_server.server.grading.faithful.drawing import Dice
from coding_gym_server.server.grading.faithful.mutants import mutants
from coding_gym_server.server.grading.faithful.rendering import UNPARSABLE, AskingTests
from coding_gym_server.server.grading.faithful.statements import Assertion, Form
from coding_gym_server.server.threads import in_thread

__all__ = ["Questions", "RunQuestions", "make_questions"]

_MUTANTS, _LOOKS = 40, 4
_MAX_QUESTIONS = 200
_MAX_PREDICATES = 4

_MIN_STRONG = 6
"""With fewer, a program that guesses answers them all too often."""

_MIN_CPU, _CPU_FACTOR = 0.2, 3
"""A mutant may take some time more than the reference, or it is taken for an endless one."""

_SEEDS = (1, 2)


RunQuestions = Callable[[AskQuestions, GradingLimits], Awaitable[tuple[QuestionReport | None, float]]]
"""Runs a request in a new process, within limits; returns what it claims, None if it has ended before, and its CPU time."""


@dataclass(frozen=True)
class Questions:
    """The questions of a task.

    Attributes:
        tests: The tests that ask them.
        options: The values that they are about.
        answers: The right answers: which options, or predicates, hold.
        names: Real names of the tests that the reference passes, by neutral ones.
    """

    tests: Asserts | UnitTests | None = None
    options: list[Options] = field(default_factory=list)
    answers: dict[Turn, list[bool]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        """Return the number of questions, each of which is worth one bit, however many options it has."""
        return len(self.answers)

    @property
    def is_weak(self) -> bool:
        """Whether there are too few questions to keep programs from guessing all answers.

        What is asked several times, and always has the same answer, counts once.
        """
        shown = {item.turn: tuple(item.values) for item in self.options}
        answers: dict[object, list[list[bool]]] = {}
        for turn, answer in self.answers.items():
            answers.setdefault(shown.get(turn, turn.site), []).append(answer)
        counts = (len(given) if any(answer != given[0] for answer in given) else 1 for given in answers.values())
        return sum(counts) < _MIN_STRONG

    def request(self, code: str, entry_point: str | None) -> AskQuestions:
        """Return the request that asks a submission all of them."""
        assert self.tests is not None
        return AskQuestions(RunPlain(code, entry_point, self.tests), Purpose.ASK, self.options)

    def judge(self, report: QuestionReport) -> dict[str, CaseOutcome]:
        """Return the outcomes of the tests, by their real names, of a submission whose process claims to have run them.

        A test has passed if all its questions are answered rightly, and nothing else has failed.
        """
        given: dict[Turn, list[bool]] = {}
        for turn, answer in report.answers:
            given.setdefault(turn, answer)
        wrong = {
            name for turn, answer in self.answers.items() if given.get(turn) != answer for name in _tests_of(turn, self.names)
        }
        outcomes = {name: report.plain.outcomes.get(name, CaseOutcome.ERROR) for name in self.names}
        for name in wrong:
            if outcomes[name] is CaseOutcome.PASSED:
                outcomes[name] = CaseOutcome.FAILED
        return {self.names[name]: outcome for name, outcome in outcomes.items()}


def _tests_of(turn: Turn, names: Iterable[str]) -> list[str]:
    """Return the names of the tests that a question belongs to: all, if it is one of fixtures."""
    method = turn.test.rpartition(".")[2]
    # The class is that of the method, or derives from it.
    return [name for name in names if name == turn.test] or [
        name for name in names if not method or name.rpartition(".")[2] == method
    ]


async def make_questions(submission: Submission, run: RunQuestions, key: bytes) -> Questions:
    """Make the questions of a task, with its reference and mutants of it.

    Args:
        submission: Any submission to the task.
        run: Runs a request in a new process.
        key: Secret of the task; the same one draws the same options.
    """
    assert submission.reference is not None
    assert isinstance(submission.tests, Asserts | UnitTests)
    try:
        tests = await in_thread(AskingTests, submission.tests)
        return await _Maker(submission, submission.reference, tests, run, Dice(key)).questions()
    except UNPARSABLE:
        return Questions()


class _Maker:
    """Makes questions.

    Args:
        submission: Any submission to the task.
        reference: The reference.
        tests: The tests.
        run: Runs a request in a new process.
        dice: What is drawn with.
    """

    def __init__(self, submission: Submission, reference: str, tests: AskingTests, run: RunQuestions, dice: Dice) -> None:
        self._entry_point = submission.entry_point
        self._limits = submission.limits
        self._reference = reference
        self._tests = tests
        self._run = run
        self._dice = dice
        self._truths: dict[Turn, Observation] = {}
        self._others: dict[Turn, list[Observation]] = {}
        # Which value the submission computes, by the site of an assertion of two.
        self._sides: dict[int, int] = {}

    async def questions(self) -> Questions:
        """Return the questions; there are none if the reference cannot be run with the tests."""
        await self._observe()
        computed = self._sides = self._computed()
        options = await self._draw(computed)
        asked = {turn.site for turn in options}
        return await self._verified(await self._source({site: computed[site] for site in computed.keys() & asked}), options)

    async def _source(self, computed: dict[int, int]) -> Asserts | UnitTests:
        """Return the tests that compare computed values with options, and ask which predicates hold elsewhere."""

        def choose(site: int, assertion: Assertion) -> Form:
            if site in computed:
                return assertion.form.comparing(computed[site])
            chosen = [] if self._expects_data(site) else self._predicates(site, assertion)
            form = assertion.contrary if chosen and assertion.contrary else assertion.form
            return form.choosing(chosen)

        return await in_thread(self._tests.source, choose)

    def _expects_data(self, site: int) -> bool:
        """Return whether an assertion has a value beside the computed one, which would be there to be found."""
        side = self._sides.get(site)
        values = (truth.values for turn, truth in self._truths.items() if turn.site == site)
        return side is not None and any(found[1 - side] is not None for found in values)

    async def _observe(self) -> None:
        """Run the reference and its mutants, and collect what their assertions compare."""
        source = await in_thread(self._tests.source, lambda _, assertion: assertion.form)
        report, cpu_seconds = await self._ask(self._reference, source, Purpose.OBSERVE)
        if report is None:
            return
        self._truths = {item.turn: item for item in report.observations}
        limit = min(self._limits.cpu_timeout, max(_MIN_CPU, _CPU_FACTOR * cpu_seconds))
        limits = msgspec.structs.replace(self._limits, cpu_timeout=limit)
        left = max(self._limits.cpu_timeout, _MUTANTS * cpu_seconds)
        for code in await in_thread(mutants, self._reference, _MUTANTS, self._dice.of("mutants")):
            report, cpu_seconds = await self._ask(code, source, Purpose.OBSERVE, limits=limits)
            for item in report.observations if report is not None else ():
                self._others.setdefault(item.turn, []).append(item)
            left -= cpu_seconds
            if left < 0:
                break

    def _pairs(self, site: int) -> Iterator[tuple[Observation, Observation]]:
        """Yield what an assertion compares with the reference, with what it compares with a mutant."""
        for turn, truth in self._truths.items():
            if turn.site == site:
                yield from ((truth, other) for other in self._others.get(turn, ()) if len(other.values) == len(truth.values))

    def _computed(self) -> dict[int, int]:
        """Return which of the two values of assertions the submission computes, where that is known, and not both."""
        found = {}
        for site, assertion in enumerate(self._tests.assertions):
            pairs = list(self._pairs(site)) if assertion.comparison is not None else []
            sides = [side for side in (0, 1) if any(other.values[side] != truth.values[side] for truth, other in pairs)]
            if len(sides) == 1:
                found[site] = sides[0]
        return found

    def _predicates(self, site: int, assertion: Assertion) -> list[int]:
        """Return which predicates to ask about, in which order; none if mutants make no difference."""
        form = assertion.contrary
        pairs = list(self._pairs(site))
        if form is None or not all(truth.holds[0] for truth, _ in pairs):
            return []
        if all(other.holds == truth.holds for truth, other in pairs):
            return []
        others = list(range(1, len(form.predicates)))
        if len(others) > 1:
            # One that holds, too, is no decoy. Those that hold for a mutant are better than others.
            others = [index for index in others if not any(truth.holds[index] for truth, _ in pairs)]
            others.sort(key=lambda index: not any(other.holds[index] for _, other in pairs))
        rng = self._dice.of("predicates", site)
        chosen = [0, *others[: _MAX_PREDICATES - 1]]
        return rng.sample(chosen, len(chosen)) if others else []

    async def _draw(self, computed: dict[int, int]) -> dict[Turn, tuple[Options, list[bool]]]:
        """Draw the values that assertions are asked about; return them with the answers."""
        found = []
        for turn, truth in self._truths.items():
            if (side := computed.get(turn.site)) is not None and (expected := truth.values[1 - side]) is not None:
                others = dict.fromkeys(other.values[side] for other in self._others.get(turn, ()))
                found.append(Options(turn, [expected, *(value for value in others if value is not None)]))
        if not found:
            return {}
        source = await self._source(computed)
        report, _ = await self._ask(self._reference, source, Purpose.SIFT, found)
        drawn = {}
        options: dict[bytes, list[bytes]] = {}
        for item in report.candidates if report is not None else ():
            expected = item.values[0]
            if expected not in options:
                options[expected] = self._dice.options(item.values, item.distances)
            if options[expected]:
                # What is expected again is drawn once: of two draws, it alone might be in both.
                drawn[item.turn] = Options(item.turn, options[expected]), [one == expected for one in options[expected]]
        return drawn

    async def _verified(self, source: Asserts | UnitTests, options: dict[Turn, tuple[Options, list[bool]]]) -> Questions:
        """Return the questions that the reference answers rightly, and the same with other random numbers."""
        hidden = await self._hidden(source, options)
        asked = [item for item, _ in options.values() if item.turn in hidden]
        one, other = [(await self._ask(self._reference, source, Purpose.ASK, asked, seed))[0] for seed in _SEEDS]
        if one is None or other is None:
            return Questions()
        again = dict(other.answers)
        names = [
            name
            for name, outcome in one.plain.outcomes.items()
            if outcome is CaseOutcome.PASSED is other.plain.outcomes.get(name)
        ]
        answers = {}
        for turn, answer in one.answers:
            right = options[turn][1] if turn in options else answer
            if answer == again.get(turn) == right and len(set(right)) > 1 and _tests_of(turn, names):
                answers[turn] = right
        if len(answers) > _MAX_QUESTIONS:
            kept = set(self._dice.of("questions").sample(range(len(answers)), _MAX_QUESTIONS))
            answers = {turn: answer for number, (turn, answer) in enumerate(answers.items()) if number in kept}
        return Questions(
            source,
            [item for item in asked if item.turn in answers],
            answers,
            {name: self._tests.names.real(name) for name in names},
        )

    async def _hidden(self, source: Asserts | UnitTests, options: dict[Turn, tuple[Options, list[bool]]]) -> set[Turn]:
        """Return when the tests do not hold the expected value themselves.

        What a submission has returned before is held as well, but only if that was right: so wrong ones are looked at, too.
        """
        expected = [Options(turn, [item.values[right.index(True)]]) for turn, (item, right) in options.items()]
        found: set[Turn] = set()
        for code in [self._reference, *await in_thread(mutants, self._reference, _LOOKS, self._dice.of("looks"))]:
            report, _ = await self._ask(code, source, Purpose.LOOK, expected)
            found |= {item.turn for item in report.candidates} if report is not None else set()
            if len(found) == len(expected):
                break
        return found

    async def _ask(
        self,
        code: str,
        source: Asserts | UnitTests,
        purpose: Purpose,
        options: list[Options] | None = None,
        seed: int = 0,
        *,
        limits: GradingLimits | None = None,
    ) -> tuple[QuestionReport | None, float]:
        request = AskQuestions(RunPlain(code, self._entry_point, source), purpose, options or [], seed)
        return await self._run(request, limits or self._limits)
