"""Write classes method by method: tree search over live interpreters, and the same policy without branching.

The tasks are those of the suite ``classes`` below. A step adds one method to the class in the interpreter, or replaces one, and
runs the visible tests: the first two thirds of the task's tests. All that the search sees is how many pass. Programs that
pass them are candidates; the hidden tests, which are all tests, judge the first ten of them when the budget is spent.

No language model is involved. The policy stands in for one that knows the class, but errs in most methods: it writes the next
missing method, afterwards any method anew. With the probability ``--skill`` it copies the method of the reference solution,
otherwise one of the mistakes against which the suite checks its tests, or an empty body.

Three methods use this policy, with the same seeds and at most the same number of steps per task. Steps that run again count:

* search with branching: best-first; a node is a snapshot of the interpreter
* search with replay: the same, but a node is reached by running its steps again from the beginning
* independent rollouts: episodes from the beginning, as long as the deepest path of the tree

Run it in a checkout, with ``pip install -e . matplotlib`` and ``python examples/tree_search.py --output tree_search.png``.
"""

from __future__ import annotations

import argparse
import ast
import math
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from textwrap import indent
from typing import Any

import gymnasium as gym
import matplotlib as mpl
import numpy as np

import coding_gym  # noqa: F401 - registers the environments
from coding_gym.tasks import Asserts, Grader
from coding_gym.tasks.loaders.bundled import Problem, load_problems
from coding_gym_search import BranchTree, Node, best_first, epsilon_greedy

mpl.use("Agg")
from matplotlib import pyplot as plt

TASKS = ("polynomial", "registry", "ring_log", "sparse_grid", "stopwatch", "temperature", "undo_list")
REWRITES = 4
PROPOSALS = 8
CANDIDATES = 10
SNAPSHOTS = 60
OPENING = """\
{skeleton}

def check():
    space, passed = dict(globals()), 0
    for number, case in enumerate({cases!r}):
        try:
            exec(case, space)
            passed += number > 0
        except Exception:
            pass
    print(passed)
"""


class BudgetSpentError(Exception):
    """The attempt has no steps left, or enough candidates."""


class Attempt(gym.Wrapper[Any, str, Any, str]):
    """One attempt at a task: the environment, the policy, and the candidates that were found.

    Args:
        env: An environment, which counts its steps from now on.
        problem: The task, with its reference solution and its mistakes.
        rng: Random number generator of the policy.
        skill: Probability of a correct method.
        budget: Number of steps.
    """

    def __init__(
        self, env: gym.Env[Any, str], problem: Problem, *, rng: np.random.Generator, skill: float, budget: int
    ) -> None:
        super().__init__(env)
        self.task, self.skeleton = problem.task, problem.stub
        self.rng, self.skill, self.budget = rng, skill, budget
        reference, tests = self.task.reference or "", self.task.tests
        assert isinstance(tests, Asserts)
        self.imports = reference.partition("class ")[0]
        self.visible = tests.cases[: math.ceil(len(tests.cases) * 2 / 3)]
        self.versions = {method: [source] for method, source in methods(reference).items()}
        for mutant in map(methods, (*problem.mutants, problem.stub)):
            for method, source in mutant.items() if mutant.keys() == self.versions.keys() else ():
                self.versions[method] += [source] if source not in self.versions[method] else []
        self.turns = len(self.versions) + REWRITES
        self.steps = 0
        self.seen: set[str] = set()
        self.candidates: dict[str, int] = {}

    def begin(self) -> None:
        """Begin an episode with the skeleton of the class, whose methods are empty."""
        self.env.reset()
        cases = (self.task.tests.setup, *self.visible)
        self.env.step(OPENING.format(skeleton=self.skeleton, cases=cases))

    def step(self, action: str) -> Any:
        if self.steps == self.budget or len(self.candidates) == CANDIDATES:
            raise BudgetSpentError
        self.steps += 1
        return self.env.step(action)

    def get_branch_state(self) -> None:
        """Return nothing for snapshots: what the attempt has used and found is not rewound with an episode."""

    def set_branch_state(self, state: None) -> None:
        """Do nothing."""

    def propose(self, actions: list[str]) -> str:
        """Draw the policy's next action, after those of an episode."""
        written = methods("\n".join(actions))
        missing = [method for method in self.versions if method not in written]
        right, *wrong = self.versions[missing[0] if missing else str(self.rng.choice(list(self.versions)))]
        source = right if self.rng.random() < self.skill else str(self.rng.choice(wrong))
        return f"class {self.task.entry_point}({self.task.entry_point}):\n{indent(source, '    ')}\ncheck()"

    def evaluate(self, actions: list[str], observation: dict[str, Any]) -> float:
        """Return the share of visible tests that pass, 0 for a program that was seen before; keep one that passes all."""
        body = indent("\n".join(methods("\n".join(actions)).values()), "    ")
        program = f"{self.imports}class {self.task.entry_point}:\n{body}"
        printed = observation["stdout"].strip()
        if program in self.seen or not printed.isdecimal():
            return 0.0
        self.seen.add(program)
        share = int(printed) / len(self.visible)
        if share == 1:
            self.candidates[program] = self.steps
        return share


def methods(source: str) -> dict[str, str]:
    """Return the source of each method of all classes; a later one replaces those of the same name in earlier classes."""
    found: dict[str, str] = {}
    for statement in ast.parse(source).body:
        own: dict[str, str] = {}
        for member in statement.body if isinstance(statement, ast.ClassDef) else ():
            if isinstance(member, ast.FunctionDef):
                # A property has several functions of one name.
                own[member.name] = own.get(member.name, "") + ast.unparse(member) + "\n"
        found |= own
    return found


def search(attempt: Attempt, *, snapshots: int) -> None:
    """Search best-first; with a single snapshot, that of the root, all other nodes are reached by replay."""
    attempt.begin()
    with BranchTree(attempt, max_snapshots=snapshots) as tree:

        def actions(node: Node) -> list[str]:
            return [each.action for each in tree.path(node)[1:]]

        def propose(node: Node) -> list[str]:
            drawn = [attempt.propose(actions(node)) for _ in range(PROPOSALS)]
            return list(dict.fromkeys(drawn)) if node.depth < attempt.turns else []

        def evaluate(node: Node) -> float:
            return attempt.evaluate(actions(node), node.observation)

        best_first(
            tree, propose, evaluate, expansions=attempt.budget, policy=partial(epsilon_greedy, rng=attempt.rng, epsilon=0.1)
        )


def roll_out(attempt: Attempt) -> None:
    """Play episodes from the beginning, each until its turns are over or the visible tests pass."""
    while True:
        attempt.begin()
        actions: list[str] = []
        share = 0.0
        while share < 1 and len(actions) < attempt.turns:
            actions.append(attempt.propose(actions))
            share = attempt.evaluate(actions, attempt.step(actions[-1])[0])


METHODS: dict[str, Callable[[Attempt], None]] = {
    "search with branching": partial(search, snapshots=SNAPSHOTS),
    "search with replay": partial(search, snapshots=1),
    "independent rollouts": roll_out,
}


def draw(solved: dict[str, list[int]], *, budget: int, attempts: int, output: Path) -> None:
    """Save a plot of the attempts solved over the steps used."""
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for (method, steps), style in zip(solved.items(), ("-", "--", ":"), strict=True):
        axes.step([0, *sorted(steps), budget], [*range(len(steps) + 1), len(steps)], style, where="post", label=method)
    axes.set(xlabel="steps per attempt", ylabel=f"solved of {attempts} attempts", xlim=(0, budget), ylim=(-0.2, attempts + 0.2))
    axes.set_title("Classes that pass their hidden tests")
    axes.yaxis.get_major_locator().set_params(integer=True)
    figure.legend(loc="outside lower center", ncols=len(solved))
    axes.grid(alpha=0.3)
    figure.savefig(output, dpi=120)


def main() -> None:
    """Compare the methods, with the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=TASKS, metavar="TASK", help="tasks of classes (default: %(default)s)")
    parser.add_argument("--budget", type=int, default=200, help="steps per attempt (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=1, help="attempts per task and method (default: %(default)s)")
    parser.add_argument("--skill", type=float, default=0.4, help="probability of a correct method (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="random seed (default: %(default)s)")
    parser.add_argument("--provider", default="auto", help="sandbox provider: auto, docker or local (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=Path("tree_search.png"), help="file of the plot (default: %(default)s)")
    arguments = parser.parse_args()
    problems = {problem.task.id.partition("/")[2]: problem for problem in load_problems("classes")}
    solved: dict[str, list[int]] = {method: [] for method in METHODS}
    options = {"provider": arguments.provider, "preload": ()}
    with gym.make("CodingEnv-v0", screen=None, step_timeout=1.0, **options) as env, Grader(**options) as grader:
        columns = "".join(f"{name:>13}" for name in arguments.tasks)
        print(f"{'solved':<22}{columns}{'all':>5}{'steps':>7}{'seconds':>9}")
        for method, run in METHODS.items():
            line, steps, began = f"{method:<22}", 0, time.perf_counter()
            for number, name in enumerate(arguments.tasks):
                before = len(solved[method])
                for repeat in range(arguments.repeats):
                    rng = np.random.default_rng([arguments.seed, number, repeat])
                    attempt = Attempt(env, problems[name], rng=rng, skill=arguments.skill, budget=arguments.budget)
                    with suppress(BudgetSpentError):
                        run(attempt)
                    steps += attempt.steps
                    verdicts = grader.grade_many([(attempt.task, program) for program in attempt.candidates])
                    found = zip(attempt.candidates.values(), verdicts, strict=True)
                    solved[method] += [at for at, verdict in found if verdict.solved][:1]
                line += f"{len(solved[method]) - before:>13}"
            print(f"{line}{len(solved[method]):>5}{steps:>7}{time.perf_counter() - began:>9.0f}", flush=True)
    draw(solved, budget=arguments.budget, attempts=len(arguments.tasks) * arguments.repeats, output=arguments.output)
    print(f"plot: {arguments.output}")


if __name__ == "__main__":
    main()
