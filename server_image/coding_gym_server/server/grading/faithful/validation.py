"""Makes the canary pool of a task: splits its tests, and keeps the mutations that its reference does not pass."""

from __future__ import annotations

import ast
import functools
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec

from coding_gym_server.protocol.grading import Asserts, CaseOutcome, GradingLimits, Submission, UnitTests
from coding_gym_server.server.grading.faithful.canary_pool import Canary, CanaryPool, GuardedTest, canaries_per_test
from coding_gym_server.server.grading.faithful.literals import entry_names
from coding_gym_server.server.grading.faithful.mutations import Mutation, mutations
from coding_gym_server.server.grading.faithful.runs import ProcessRun, RunOne
from coding_gym_server.server.grading.faithful.splitting import (
    UNPARSABLE,
    SingleTest,
    names_in_source,
    parse,
    split,
    split_asserts,
)
from coding_gym_server.server.threads import in_thread
from coding_gym_server.submission.faithful_messages import CollectedTest, Framework

__all__ = ["Validation"]

_SPARE = 2
"""How many times as many strong canaries a pool has as a submission faces, so that each grading draws others."""

_MAX_TRIES = 3
"""How many times as many mutations are tried as there are canaries to find."""

_MIN_CPU, _MIN_WALL = 1.0, 5.0
_CPU_FACTOR, _WALL_FACTOR = 3, 10
"""A canary must fail about as quickly as the reference passes the test: one that needs all the time it gets is of no use."""


class _Splitter(Protocol):
    def __call__(self, number: int, *, alone: bool) -> SingleTest:
        """Return the module of a test."""


class Validation:
    """Validation of the canaries of one task.

    Args:
        submission: Any submission to the task.
        run: Runs code with a test.
        collect: Returns the tests of a module as its framework finds them, None if it cannot be executed with the reference.
    """

    def __init__(
        self,
        submission: Submission,
        *,
        run: RunOne,
        collect: Callable[[str, Framework], Awaitable[list[CollectedTest] | None]],
    ) -> None:
        assert submission.reference is not None
        self._tests = submission.tests
        self._entry_point = submission.entry_point
        self._reference = submission.reference
        self._limits = submission.limits
        self._run = run
        self._collect = collect
        self._count = 0

    async def pool(self) -> CanaryPool:
        """Return the canary pool; it has no tests if the module of tests is not valid Python."""
        try:
            single = await self._splitter()
            singles = [await in_thread(single, number, alone=True) for number in range(self._count)]
        except UNPARSABLE:
            return CanaryPool(())
        tests = [_guarded(one) for one in singles]
        passed = await self._run_reference(singles, tests, single)
        if passed:
            chosen = [singles[number] for number in passed]
            found = await in_thread(self._mutations, chosen)
            limit = canaries_per_test(len(tests)) * _SPARE * _MAX_TRIES
            queues = {number: (one.tree, _queue(some, limit)) for number, one, some in zip(passed, chosen, found, strict=True)}
            await self._fill(tests, queues, passed)
        return CanaryPool(tests)

    async def _splitter(self) -> _Splitter:
        """Return a function that returns the module of one test, and set the number of tests."""
        if isinstance(self._tests, Asserts):
            self._count = len(self._tests.cases)
            return functools.partial(split_asserts, self._tests)
        assert isinstance(self._tests, UnitTests)
        tree, framework = await in_thread(parse, self._tests)
        collected = await self._collect(self._tests.source, framework)
        names = names_in_source(tree) if collected is None else collected
        self._count = len(names)
        return functools.partial(split, tree, framework, names)

    async def _run_reference(
        self, singles: list[SingleTest], tests: list[GuardedTest], single: _Splitter
    ) -> dict[int, ProcessRun]:
        """Run the reference; return the runs of the tests that it passes, by their indices.

        A test that it passes only after the earlier ones, because they share state, is replaced by one that includes them.
        """
        passed = {}
        deadline = time.monotonic() + self._limits.wall_timeout
        for number, test in enumerate(tests):
            if time.monotonic() > deadline:
                break
            ran = await self._run(self._reference, test, test.source, self._limits)
            if ran.outcome in {CaseOutcome.FAILED, CaseOutcome.ERROR} and ran.is_loaded and number:
                one = await in_thread(single, number, alone=False)
                after_others = _guarded(one)
                ran = await self._run(self._reference, after_others, one.source, self._limits)
                if ran.outcome is CaseOutcome.PASSED:
                    singles[number], tests[number] = one, after_others
            tests[number].is_skipped = ran.is_skipped
            if ran.outcome is CaseOutcome.PASSED and not ran.is_skipped:
                passed[number] = ran
        return passed

    def _mutations(self, tests: list[SingleTest]) -> list[list[Mutation]]:
        try:
            names = entry_names(ast.parse(self._reference), self._entry_point)
        except UNPARSABLE:
            names = frozenset({self._entry_point} if self._entry_point else ())
        return mutations(tests, names, secrets.SystemRandom())

    async def _fill(
        self,
        tests: list[GuardedTest],
        queues: dict[int, tuple[ast.Module, deque[Mutation]]],
        passed: dict[int, ProcessRun],
    ) -> None:
        """Add canaries to the tests in turn, so that all of them have some when the time is over."""
        count = canaries_per_test(len(tests))
        deadline = time.monotonic() + self._limits.wall_timeout
        while queues and time.monotonic() < deadline:
            for number, (tree, queue) in list(queues.items()):
                test = tests[number]
                if not queue or _has_enough(test, queue[0], count):
                    del queues[number]
                    continue
                await self._try(test, tree, queue.popleft(), self._limits_after(passed[number]))

    async def _try(self, test: GuardedTest, tree: ast.Module, mutation: Mutation, limits: GradingLimits) -> None:
        """Keep a mutation if the reference fails with it twice: it may depend on chance."""
        try:
            source = await in_thread(mutation.source, tree)
        except UNPARSABLE:
            return
        if source in {test.source, *(canary.source for canary in test.canaries)}:
            return
        for _ in range(2):
            ran = await self._run(self._reference, test, source, limits)
            if ran.outcome not in {CaseOutcome.FAILED, CaseOutcome.ERROR} or not ran.is_loaded:
                return
        test.canaries.append(Canary(source, mutation.is_strong))

    def _limits_after(self, ran: ProcessRun) -> GradingLimits:
        return msgspec.structs.replace(
            self._limits,
            cpu_timeout=max(_MIN_CPU, ran.cpu_seconds * _CPU_FACTOR),
            wall_timeout=max(_MIN_WALL, ran.seconds * _WALL_FACTOR),
        )


def _guarded(single: SingleTest) -> GuardedTest:
    return GuardedTest(single.id, single.name, single.framework, single.source, single.earlier)


def _queue(found: list[Mutation], limit: int) -> deque[Mutation]:
    """Return the first mutations, so that weaker ones are tried, too, if stronger ones change nothing."""
    strong = [mutation for mutation in found if mutation.is_strong]
    return deque([*strong[:limit], *found[len(strong) :][:limit]])


def _has_enough(test: GuardedTest, mutation: Mutation, count: int) -> bool:
    """Return whether a test needs no canary of the kind of a mutation, nor of the weaker ones that follow."""
    return len(test.canaries) >= (count * _SPARE if mutation.is_strong else count)
