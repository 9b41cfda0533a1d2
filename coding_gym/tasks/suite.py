"""``TaskSuite``: a named collection of tasks."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import overload

from coding_gym._html import caption, document, element, table
from coding_gym._validation import hint
from coding_gym.errors import ConfigurationError
from coding_gym.tasks.task import Task

__all__ = ["TaskSuite"]


class TaskSuite(Sequence[Task]):
    """A named, ordered, immutable collection of tasks; methods that select tasks return a new one.

    Args:
        name: Name of the suite.
        tasks: The tasks.

    Raises:
        ConfigurationError: If two tasks have the same id.

    Example:
        >>> from coding_gym.tasks import Asserts
        >>> ones = [Task(id=f"t/{n}", prompt="", tests=Asserts(cases=(f"assert f() == {n}",))) for n in range(10)]
        >>> suite = TaskSuite("ones", ones)
        >>> suite
        TaskSuite('ones', 10 tasks)
        >>> suite[3] is suite["t/3"]
        True
        >>> [task.id for task in suite.sample(2, seed=1)]
        ['t/2', 't/1']
        >>> train, test = suite.split(0.8, seed=1).values()
        >>> len(train), len(test)
        (8, 2)
    """

    def __init__(self, name: str, tasks: Iterable[Task]) -> None:
        self.name = name
        self._tasks = tuple(tasks)
        self._by_id: dict[str, Task] = {}
        for task in self._tasks:
            if task.id in self._by_id:
                message = f"Two tasks of the suite {name!r} have the id {task.id!r}: ids must be unique"
                raise ConfigurationError(message)
            self._by_id[task.id] = task

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the tasks, in order."""
        return tuple(self._by_id)

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[Task]:
        return iter(self._tasks)

    def __contains__(self, item: object) -> bool:
        """Return whether the suite has a task, or one with an id."""
        if isinstance(item, Task):
            return self._by_id.get(item.id) == item
        return isinstance(item, str) and item in self._by_id

    @overload
    def __getitem__(self, key: int | str) -> Task: ...

    @overload
    def __getitem__(self, key: slice) -> TaskSuite: ...

    def __getitem__(self, key: int | str | slice) -> Task | TaskSuite:
        """Return a task by index or id, or a suite for a slice.

        Raises:
            KeyError: If there is no task with the id.
            IndexError: If the index is out of range.
        """
        if isinstance(key, slice):
            return TaskSuite(self.name, self._tasks[key])
        if isinstance(key, str):
            try:
                return self._by_id[key]
            except KeyError:
                known = f"it has {len(self)}: {', '.join(self.ids[:3])}, ..." if self else "it is empty"
                message = f"The suite {self.name!r} has no task {key!r}{hint(key, self.ids)}; {known}"
                raise KeyError(message) from None
        return self._tasks[key]

    def _repr_html_(self) -> str:
        rows = ((task.id, task.entry_point or "a program", str(task.grading or ""), task.prompt.strip()) for task in self)
        return document(
            caption(element("b", self.name), f": {len(self)} tasks"),
            table(("id", "entry point", "grading", "prompt"), rows, total=len(self)),
        )

    def __repr__(self) -> str:
        return f"TaskSuite({self.name!r}, {len(self)} tasks)"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TaskSuite):
            return NotImplemented
        return self.name == other.name and self._tasks == other._tasks

    __hash__ = None  # type: ignore[assignment] # tasks hold mappings

    def sample(self, n: int = 1, *, seed: int) -> TaskSuite:
        """Return ``n`` tasks drawn without replacement, in the order drawn. Deterministic for a seed.

        Raises:
            ConfigurationError: If ``n`` is negative or exceeds the number of tasks.
        """
        if not 0 <= n <= len(self):
            message = f"Expected to draw 0 to {len(self)} tasks of the suite {self.name!r}, got {n}"
            raise ConfigurationError(message)
        return TaskSuite(self.name, random.Random(seed).sample(self._tasks, n))  # noqa: S311

    def split(self, parts: float | Mapping[str, float], *, seed: int) -> dict[str, TaskSuite]:
        """Split the suite into disjoint parts. Deterministic for a seed.

        Args:
            parts: Fraction of the tasks for ``train``, with the remainder in ``test``; or a mapping of names to fractions,
                where tasks may be left over.
            seed: Seed of the random assignment. Each part keeps the order of the suite.

        Raises:
            ConfigurationError: If a fraction is not between 0 and 1, or they add up to more than 1.
        """
        named = dict(parts) if isinstance(parts, Mapping) else {"train": parts, "test": 1 - parts}
        total = sum(named.values())
        if not all(0 <= part <= 1 for part in named.values()) or total > 1 + 1e-9:
            message = f"Expected parts between 0 and 1 that add up to 1 or less, got {parts!r}"
            raise ConfigurationError(message)
        order = random.Random(seed).sample(range(len(self)), len(self))  # noqa: S311
        split: dict[str, TaskSuite] = {}
        begin, share = 0, 0.0
        for name, part in named.items():
            share += part
            # Round the cumulative share, so that rounding errors do not lose tasks.
            end = round(share * len(self))
            split[name] = TaskSuite(f"{self.name}/{name}", [self._tasks[index] for index in sorted(order[begin:end])])
            begin = end
        return split

    def filter(self, wanted: Callable[[Task], bool] | Iterable[str]) -> TaskSuite:
        """Return the tasks that match a condition.

        Args:
            wanted: Predicate on a task; or tags, all of which a task must have in ``metadata["tags"]``.
        """
        if callable(wanted):
            return TaskSuite(self.name, [task for task in self if wanted(task)])
        tags = {wanted} if isinstance(wanted, str) else set(wanted)
        return TaskSuite(self.name, [task for task in self if tags <= set(task.metadata.get("tags", ()))])

    def merge(self, *others: TaskSuite, name: str | None = None) -> TaskSuite:
        """Return a suite with the tasks of this suite and others.

        Args:
            others: The other suites; ids must be unique across all of them.
            name: Name of the new suite; the names of all, joined by ``+``, if None.

        Raises:
            ConfigurationError: If two tasks have the same id.
        """
        suites = (self, *others)
        joined = name or "+".join(suite.name for suite in suites)
        return TaskSuite(joined, [task for suite in suites for task in suite])

    def save(self, path: Path | str) -> None:
        """Write the tasks to a JSON Lines file that ``load_suite`` can read."""
        text = "".join(f"{task.to_json()}\n" for task in self)
        Path(path).write_text(text, encoding="utf-8")
