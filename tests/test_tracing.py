"""OpenTelemetry spans."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import numpy as np
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from coding_gym import AsyncCodingEnv, CodingEnv, CodingVectorEnv, tracing
from coding_gym.envs.task_env import CodingTaskEnv
from coding_gym.errors import ProviderError
from coding_gym.tasks import Grader, load_suite
from tests.support.sandbox_faults import kill_sandbox

FAST = {"provider": "local", "preload": (), "screen": None}


class Recorder:
    """Spans that have ended."""

    def __init__(self):
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self.provider.get_tracer("test")

    def take(self):
        spans = [span for span in self._exporter.get_finished_spans() if span.name.startswith("coding_gym.")]
        self._exporter.clear()
        return spans


@pytest.fixture
def recorder():
    recorder = Recorder()
    tracing.enable(recorder.provider)
    yield recorder
    tracing.disable()


@pytest.fixture
def env():
    env = CodingEnv(step_timeout=3, **FAST)
    yield env
    env.close()


def test_spans_describe_resets_and_steps(recorder, env):
    with recorder.tracer.start_as_current_span("rollout") as parent:
        env.reset(seed=1)
        env.step("1 + 1")
        env.step("raise SystemExit(7)")
    reset, first, second = recorder.take()
    assert [span.name for span in (reset, first, second)] == ["coding_gym.reset", "coding_gym.step", "coding_gym.step"]
    assert {span.parent.span_id for span in (reset, first, second)} == {parent.get_span_context().span_id}
    assert {span.kind for span in (reset, first, second)} == {SpanKind.CLIENT}
    assert dict(second.attributes) == {
        "coding_gym.env.id": "CodingEnv-v0",
        "coding_gym.backend": "default",
        "coding_gym.timeout": 3.0,
        "coding_gym.outcome": "error",
        "coding_gym.duration": env.last_timing.seconds,
        "process.exit.code": 7,
    }
    assert (first.attributes["coding_gym.outcome"], first.attributes["process.exit.code"]) == ("ok", 0)
    assert (second.end_time - second.start_time) / 1e9 == pytest.approx(env.last_timing.seconds, abs=0.05)
    # What the agent's code does wrong is not an error of this system.
    assert second.status.status_code is StatusCode.UNSET
    env.step_timeout = 4
    env.step("1")
    env.reset(seed=1)
    assert [span.attributes["coding_gym.timeout"] for span in recorder.take()[-2:]] == [3.0, 4.0]


def test_a_lost_sandbox_is_an_error(recorder, env):
    env.reset()
    kill_sandbox(env.sandbox)
    *_, truncated, _ = env.step("1")
    assert truncated
    span = recorder.take()[-1]
    assert span.attributes["coding_gym.outcome"] == span.attributes["error.type"] == "infrastructure"
    assert span.status.status_code is StatusCode.ERROR


def test_exceptions_end_spans(recorder):
    env = CodingEnv(provider="remote", base_url="http://127.0.0.1:9", screen=None)
    with pytest.raises(ProviderError):
        env.reset()
    (span,) = recorder.take()
    assert span.name == "coding_gym.reset"
    assert span.attributes["error.type"].startswith("coding_gym.errors.")
    assert span.events[0].name == "exception"
    env.close()


def test_environments_of_a_vector_have_indices(recorder):
    envs = CodingVectorEnv(2, **FAST)
    with recorder.tracer.start_as_current_span("rollout") as parent:
        envs.reset(seed=1)
        envs.step(["1", "2"])
        envs.send(["3", "4"], np.array([0, 1]))
        envs.recv(2)
    envs.close()
    spans = recorder.take()
    indices = {
        name: [span.attributes["coding_gym.env.index"] for span in spans if span.name == name] for name in set_of_names(spans)
    }
    assert {name: sorted(found) for name, found in indices.items()} == {
        "coding_gym.reset": [0, 1],
        "coding_gym.step": [0, 0, 1, 1],
    }
    assert {span.parent.span_id for span in spans} == {parent.get_span_context().span_id}


def set_of_names(spans):
    return {span.name for span in spans}


def test_spans_of_concurrent_coroutines_have_their_own_parents(recorder):
    async def rollout(env, name):
        with recorder.tracer.start_as_current_span(name) as parent:
            await env.reset()
            await env.step(f"print({name!r})")
            await asyncio.sleep(0)
        return parent.get_span_context().span_id

    async def main():
        async with AsyncCodingEnv(sessions=2, **FAST) as first, AsyncCodingEnv(**FAST) as second:
            recorder.take()
            return await asyncio.gather(rollout(first, "a"), rollout(second, "b"))

    parents = asyncio.run(main())
    spans = recorder.take()
    assert [sum(span.parent.span_id == parent for span in spans) for parent in parents] == [2, 2]
    assert set_of_names(spans) == {"coding_gym.reset", "coding_gym.step"}


def test_a_canceled_step_ends_its_span(recorder):
    async def main():
        async with AsyncCodingEnv(**FAST) as env:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await env.step("while True: pass")

    asyncio.run(main())
    assert recorder.take()[-1].attributes["error.type"] == "asyncio.exceptions.CancelledError"


def test_gradings_have_spans(recorder):
    task = load_suite("basics")["basics/add_up"]
    with Grader(provider="local", workers=1) as grader, recorder.tracer.start_as_current_span("reward") as parent:
        grader.grade(task, task.reference or "")
        list(grader.grade_many([(task, "def add_up(*_): return None")]))
    solved, failed = recorder.take()
    assert dict(solved.attributes) == {
        "coding_gym.task.id": "basics/add_up",
        "coding_gym.grading.mode": "agreement",
        "coding_gym.timeout": task.limits.wall_timeout,
        "coding_gym.outcome": "passed",
        "coding_gym.tests.passed": solved.attributes["coding_gym.tests.total"],
        "coding_gym.tests.total": solved.attributes["coding_gym.tests.passed"],
    }
    assert failed.attributes["coding_gym.outcome"] == "failed"
    assert {span.parent.span_id for span in (solved, failed)} == {parent.get_span_context().span_id}


def test_task_environments_have_spans_of_steps_and_gradings(recorder):
    env = CodingTaskEnv(suite="basics", **FAST)
    with recorder.tracer.start_as_current_span("rollout") as parent:
        env.reset(options={"task_id": "basics/add_up"})
        env.step(env.task.reference)
    spans = recorder.take()
    assert set_of_names(spans) == {"coding_gym.reset", "coding_gym.step", "coding_gym.grade"}
    assert {span.parent.span_id for span in spans} == {parent.get_span_context().span_id}
    assert {span.attributes.get("coding_gym.env.id") for span in spans} == {"CodingTask-v0", None}
    env.close()


def test_nothing_is_imported_or_recorded_unless_enabled(recorder, env):
    tracing.disable()
    env.reset()
    env.step("1")
    assert recorder.take() == []
    code = "import coding_gym, coding_gym.tasks, sys; print([name for name in sys.modules if 'opentelemetry' in name])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_tracing_may_be_turned_off_during_a_step(recorder, env):
    env.reset()
    env.begin_step("1")
    tracing.disable()
    env.finish_step()
    assert [span.name for span in recorder.take()] == ["coding_gym.reset", "coding_gym.step"]
