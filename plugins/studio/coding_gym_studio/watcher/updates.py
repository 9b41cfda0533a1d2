"""What the page is sent: figures of all processes, and the sessions that have changed."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable

import msgspec

from coding_gym_studio.watching.follower import FollowedProcess, Follower, Status
from coding_gym_studio.watching.messages import PoolRow, SessionRow, Summary

__all__ = ["ProcessRow", "Update", "Updates", "joined"]


class ProcessRow(msgspec.Struct, kw_only=True):
    """A process, as the page shows it.

    Attributes:
        key: Its key.
        name: Name of the trainer.
        pid: Id of the process.
        root: Id of the trainer's first process.
        command: Its command line.
        status: Whether it still runs.
        ended_at: When it ended, in seconds since the epoch; None while it runs.
    """

    key: int
    name: str
    pid: int
    root: int
    command: str
    status: Status
    ended_at: float | None


class Update(msgspec.Struct, kw_only=True):
    """A line of the stream.

    Attributes:
        processes: All processes.
        summary: Figures of all of them; None before there are any.
        sessions: Changed sessions by the key of their process; those of a new process are complete.
        removed: Sessions that are gone, by the key of their process.
        fields: Names of the fields of a session, in the first line only.
    """

    processes: list[ProcessRow]
    summary: Summary | None
    sessions: dict[str, list[SessionRow]]
    removed: dict[str, list[int]]
    fields: list[str] | None


class Updates:
    """Updates for one page, each of what has changed since the one before.

    Args:
        follower: What to report.
    """

    def __init__(self, follower: Follower) -> None:
        self._follower = follower
        self._known: dict[int, dict[int, int]] = {}
        self._is_first = True

    def next(self) -> Update:
        """Return the next update."""
        processes = list(self._follower.processes)
        sessions, removed = {}, {}
        for process in processes:
            known = self._known.setdefault(process.key, {})
            changed, gone = _differences(process, known)
            if changed:
                sessions[str(process.key)] = changed
            if gone:
                removed[str(process.key)] = gone
        for key in self._known.keys() - {process.key for process in processes}:
            del self._known[key]
        fields = list(SessionRow.__struct_fields__) if self._is_first else None
        self._is_first = False
        return Update(
            processes=[_row(process) for process in processes],
            summary=joined([process.summary for process in processes if process.summary is not None]),
            sessions=sessions,
            removed=removed,
            fields=fields,
        )


def joined(summaries: list[Summary]) -> Summary | None:
    """Join the figures of several processes; those of ended ones count, but for their rates."""
    if len(summaries) < 2:
        return summaries[0] if summaries else None
    newest = max(summary.now for summary in summaries)
    live = [summary for summary in summaries if newest - summary.now < 5]
    return Summary(
        now=newest,
        rate=sum(summary.rate for summary in live),
        minute_rate=sum(summary.minute_rate for summary in live),
        rates=_added([summary.rates for summary in live]),
        steps=sum(summary.steps for summary in summaries),
        episodes=sum(summary.episodes for summary in summaries),
        outcomes=_counted(summary.outcomes for summary in summaries),
        minute_outcomes=_counted(summary.minute_outcomes for summary in live),
        step_seconds=sorted(itertools.chain.from_iterable(summary.step_seconds for summary in summaries)),
        reset_seconds=sorted(itertools.chain.from_iterable(summary.reset_seconds for summary in summaries)),
        wait_seconds=sorted(itertools.chain.from_iterable(summary.wait_seconds for summary in summaries)),
        waits=sum(summary.waits for summary in summaries),
        pools=_pools(live),
    )


def _differences(process: FollowedProcess, known: dict[int, int]) -> tuple[list[SessionRow], list[int]]:
    rows = process.rows
    changed = []
    for id, (version, row) in rows.items():
        if known.get(id) != version:
            known[id] = version
            changed.append(row)
    gone = list(known.keys() - rows.keys()) if len(known) > len(rows) else []
    for id in gone:
        del known[id]
    return changed, gone


def _row(process: FollowedProcess) -> ProcessRow:
    hello = process.hello
    return ProcessRow(
        key=process.key,
        name=hello.name,
        pid=hello.pid,
        root=hello.root,
        command=hello.command,
        status=process.status,
        ended_at=process.ended_at,
    )


def _added(series: list[list[int]]) -> list[int]:
    """Add series of seconds that end at the same time."""
    reversed_sums = [sum(values) for values in itertools.zip_longest(*map(reversed, series), fillvalue=0)]
    return reversed_sums[::-1]


def _counted(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    return dict(total)


def _pools(summaries: list[Summary]) -> list[PoolRow]:
    return list(itertools.chain.from_iterable(summary.pools for summary in summaries))
