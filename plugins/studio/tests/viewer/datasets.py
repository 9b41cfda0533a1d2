"""Datasets for the tests of the viewer, written with the package's own writers: no sandbox is needed."""

from __future__ import annotations

import io
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from coding_gym import Result
from coding_gym.datasets.details import DetailsLog, EpisodeDetails, StepDetails
from coding_gym.datasets.episode import Episode, Step, encode_episode
from coding_gym.datasets.episode_log import EpisodeLog
from coding_gym.datasets.manifest import Arguments, CollectionRun, Manifest
from coding_gym.tasks import Verdict
from coding_gym_server.protocol.grading import CaseOutcome, CaseResult, VerdictOutcome

HOSTILE = (
    '<img src=x onerror="window.hacked = 1"><script>window.hacked = 1</script></pre></div>'
    "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x1b[2J\x00 \u202etxet desrever\u202c \u05e9\u05dc\u05d5\u05dd\n"
)
MEGABYTE = "".join(f"line {number} of a long output\n" for number in range(35_000))
SCREEN = (48, 64, 3)


def episode(index: int, *, task: str | None = None, solved: bool | None = None, steps: Sequence[Step] = ()) -> Episode:
    """Return an episode with a reset, and by default one step."""
    info: dict[str, Any] = {"outcome": "ok"}
    last: dict[str, Any] = info
    if solved is not None:
        last = {**info, "graded": True, "solved": solved, "tests_passed": 2 if solved else 1, "tests_total": 2}
    given = steps or (
        Step(
            observation={"stdout": f"{index}\n", "stderr": "", "exit_code": 0},
            action=f"print({index})\n",
            reward=1.0 if solved else 0.5,
            terminated=bool(solved),
            truncated=not solved,
            info=last,
        ),
    )
    options = {} if task is None else {"task_id": task}
    reset = Step(observation={"stdout": "", "stderr": "", "exit_code": 0, "prompt": "Print."}, info=info)
    return Episode(index=index, seed=2**62 + index, options=options, steps=(reset, *given))


def varied(index: int) -> Episode:
    """Return one of several kinds of episodes: of two tasks, solved or not, with an error, with pictures, with long output."""
    kind = index % 5
    if kind == 0:
        return episode(index, task="tasks/first", solved=True)
    if kind == 1:
        return episode(index, task="tasks/second", solved=False)
    if kind == 2:
        step = Step(
            observation={"stdout": "", "stderr": HOSTILE, "exit_code": 1},
            action=f"# {HOSTILE}1 / 0\n",
            reward=-0.25,
            truncated=True,
            info={"outcome": "error"},
        )
        return episode(index, task=f"tasks/{HOSTILE[:60]}", steps=[step])
    if kind == 3:
        return episode(index, steps=[_drawing(index, number) for number in range(4)])
    output = {"stdout": MEGABYTE, "stderr": "", "exit_code": 0}
    return episode(index, steps=[Step(observation=output, action="print(text)", truncated=True, info={"outcome": "ok"})])


def _drawing(index: int, number: int) -> Step:
    picture = np.zeros(SCREEN, np.uint8)
    if number:
        picture[:24, : number * 10] = (200, 40 * number, index % 255)
    return Step(
        observation={"stdout": "", "stderr": "", "exit_code": 0, "screenshot": picture},
        action=f"draw({number})",
        truncated=number == 3,
        info={"outcome": "ok"},
    )


def rich(index: int) -> Episode:
    """Return an episode whose step has a value, a plot, a table with a hostile script, and a document."""
    plot = io.BytesIO()
    Image.new("RGB", (80, 60), (200, 40, 90)).save(plot, "PNG")
    results = (
        Result({"text/plain": "<Figure size 80x60>", "image/png": plot.getvalue()}, is_value=False),
        Result({"text/plain": "\x1b[31m   a\x1b[0m\n0  1", "text/html": f"<table><tr><td>1</table>{HOSTILE}"}, is_value=True),
        Result({"application/json": {"numbers": [1, 2, 3]}}, is_value=False),
    )
    observation = {"stdout": "printed\n", "stderr": "", "exit_code": 0}
    info = {"outcome": "ok", "results": results}
    return episode(index, steps=[Step(observation=observation, action="table", truncated=True, info=info)])


def details(recorded: Episode) -> EpisodeDetails:
    """Return details of an episode: step N takes N / 10 seconds, and graded steps have a verdict on two tests."""
    steps = [
        StepDetails(seconds=0.1 * number, policy_seconds=0.02, verdict=_verdict(step.info))
        for number, step in enumerate(recorded.steps)
    ]
    return EpisodeDetails(episode=recorded.index, started="2026-01-02T03:04:05+00:00", steps=tuple(steps))


def _verdict(info: dict[str, Any]) -> Verdict | None:
    if not info.get("graded"):
        return None
    second = CaseResult(name="1", outcome=CaseOutcome.FAILED, message=f"assert {HOSTILE}", seconds=0.25)
    if info["solved"]:
        second = CaseResult(name="1", outcome=CaseOutcome.PASSED, seconds=0.25)
    outcome = VerdictOutcome.PASSED if info["solved"] else VerdictOutcome.FAILED
    cases = (CaseResult(name="0", outcome=CaseOutcome.PASSED, seconds=0.125), second)
    return Verdict(task_id="tasks/first", outcome=outcome, cases=cases, seconds=0.5)


def write(path: Path, episodes: Sequence[Episode], *, requested: int | None = None, with_details: bool = True) -> Path:
    """Write a dataset, or append to one, and return its path."""
    path.mkdir(parents=True, exist_ok=True)
    arguments = Arguments(env="CodingTask-v0", env_options={"suite": "tests"}, policy={"name": "test"}, seed=1, max_steps=9)
    manifest = Manifest(arguments=arguments, episodes=requested or len(episodes))
    manifest.runs.append(CollectionRun.starting(had=0, sessions=1, sandbox="test"))
    manifest.write(path)
    with EpisodeLog(path / "episodes.log") as log:
        for recorded in episodes:
            if with_details:
                with DetailsLog(path) as found:
                    found.append(details(recorded))
            log.append(recorded.index, *encode_episode(recorded))
    return path


def write_many(path: Path, count: int) -> Path:
    """Write a dataset of many short episodes."""
    rng = random.Random(1)
    episodes = [episode(index, task=f"many/task_{rng.randrange(200)}", solved=rng.random() < 0.5) for index in range(50)]
    write(path, episodes, requested=count)
    records = [encode_episode(recorded) for recorded in episodes]
    with EpisodeLog(path / "episodes.log") as log:
        for index in range(len(episodes), count):
            log.append(index, *records[index % len(records)])
    return path
