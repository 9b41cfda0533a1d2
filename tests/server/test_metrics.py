"""``/metrics`` of the server: what it says is what has happened."""

from __future__ import annotations

import asyncio
import contextlib

import httpx
import psutil
import pytest
from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from coding_gym import CodingEnv
from coding_gym.errors import CapacityError
from coding_gym.tasks import Asserts, Grader, Task, load_suite
from coding_gym_server.durations import STEP_BOUNDS, DurationHistogram
from coding_gym_server.linux import oom
from coding_gym_server.server import memory_usage
from coding_gym_server.server.grading.grading_slots import GradingSlots, OverloadedError, StartDeadline
from coding_gym_server.server.memory_usage import MemoryUsage
from tests.support.metrics import Scraped, scrape
from tests.support.running_server import RunningServer, gone_within
from tests.support.timing import eventually

TOKEN = "0123abc"
SESSIONS = 3
AUTHORIZED = {"authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    directory = tmp_path_factory.mktemp("metrics")
    with RunningServer(directory, "--max-sessions", str(SESSIONS), token=TOKEN) as server:
        yield server


@pytest.fixture
def env(server):
    env = env_of(server)
    yield env
    env.close()


def env_of(server, *, step_timeout=5):
    return CodingEnv(provider="remote", base_url=server.url, token=TOKEN, screen=None, step_timeout=step_timeout)


def read(server) -> Scraped:
    return scrape(server.url, **AUTHORIZED)


class Growth:
    """Differences between the metrics of a server now and at the construction."""

    def __init__(self, server):
        self._server = server
        self._before = read(server)

    def __call__(self, sample, **labels):
        now = read(self._server).value(sample, **labels)
        try:
            return now - self._before.value(sample, **labels)
        except AssertionError:
            return now


def test_metrics_require_the_token(server):
    with httpx.Client(verify=False) as client:
        assert client.get(f"{server.url}/metrics").status_code == 401


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", "text/plain; version=0.0.4"),
        ("application/openmetrics-text; version=1.0.0", "application/openmetrics-text; version=1"),
    ],
)
def test_the_client_chooses_the_format(server, accept, expected):
    with httpx.Client(verify=False) as client:
        response = client.get(f"{server.url}/metrics", headers={**AUTHORIZED, "accept": accept})
    assert response.headers["content-type"].startswith(expected)
    if accept:
        assert {family.name for family in parse_openmetrics(response.text)} >= {
            "coding_gym_steps",
            "coding_gym_step_duration_seconds",
        }


def test_steps_are_counted_by_outcome(server, env):
    growth = Growth(server)
    env.reset()
    for code in ("1 + 1", "1 / 0", "1 / 0", "import os; os._exit(3)"):
        env.step(code)
    env.step_timeout = 0.5
    env.reset()
    env.step("while True: pass")
    counts = {"ok": 1, "error": 2, "killed": 1, "timeout": 1, "infrastructure": 0, "memory": 0, "running": 0}
    for outcome, count in counts.items():
        assert growth("coding_gym_steps_total", backend="python", outcome=outcome) == count, outcome
    assert growth("coding_gym_resets_total", backend="python", outcome="ok") == 2
    assert growth("coding_gym_reset_duration_seconds_count") == 2
    assert growth("coding_gym_worker_wait_seconds_count") == 2
    assert growth("coding_gym_step_duration_seconds_count") == 5
    assert growth("coding_gym_step_duration_seconds_sum") > 0.5
    assert growth("coding_gym_step_duration_seconds_bucket", le="0.25") == 4


def children(process):
    """Return the children of a process, none if it has ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.children()
    return []


def test_a_lost_step_is_an_infrastructure_error(server, env):
    growth = Growth(server)
    env.reset()
    env.step("import os; print(os.getppid())")
    before = set(server.family())
    other = env_of(server)
    with contextlib.closing(other):
        other.reset()
        roots = [process for process in before if children(process) and process.pid != server.process.pid]
        assert roots
        workers = [worker for root in roots for worker in children(root)]
        for process in roots:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        # They end with their root, soon after it.
        psutil.wait_procs([*roots, *workers], timeout=1)
        *_, truncated, info = env.step("1")
        assert (truncated, info["outcome"]) == (True, "infrastructure")
    assert growth("coding_gym_steps_total", outcome="infrastructure") == 1


def test_cells_of_other_protocols_are_steps(server):
    growth = Growth(server)
    with httpx.Client(verify=False, base_url=server.url, headers=AUTHORIZED, timeout=30) as client:
        client.post("/execute", json={"code": "6 * 7"}).raise_for_status()
        client.post("/step", json={"action": {"code": "1 / 0"}}).raise_for_status()
    assert growth("coding_gym_steps_total", outcome="ok") == 1
    assert growth("coding_gym_steps_total", backend="python", outcome="error") == 1


def test_sessions_and_refusals(server):
    growth = Growth(server)
    held = growth("coding_gym_sessions")
    used = read(server).value("coding_gym_sessions")
    with contextlib.ExitStack() as stack:
        envs = [stack.enter_context(contextlib.closing(env_of(server))) for _ in range(SESSIONS - int(used))]
        for env in envs:
            env.reset()
        now = read(server)
        assert now.value("coding_gym_sessions") == now.value("coding_gym_sessions_limit") == SESSIONS
        assert now.value("coding_gym_workers", state="busy") >= SESSIONS - used
        surplus = stack.enter_context(contextlib.closing(env_of(server)))
        with pytest.raises(CapacityError):
            surplus.reset()
    assert held == 0
    assert growth("coding_gym_refusals_total", missing="sessions") >= 1
    assert growth("coding_gym_refusals_total", missing="places") == 0


def test_programs_are_counted_by_outcome(server):
    growth = Growth(server)
    programs = {
        "ok": "print(1)",
        "error": "1 / 0",
        "timeout": "while True: pass",
        "killed": "import os; os.kill(os.getpid(), 9)",
    }
    with httpx.Client(verify=False, base_url=server.url, headers=AUTHORIZED, timeout=30) as client:
        for code in programs.values():
            client.post("/run_code", json={"code": code, "language": "python", "run_timeout": 1}).raise_for_status()
    for outcome in programs:
        assert growth("coding_gym_programs_total", outcome=outcome) == 1, outcome
    assert growth("coding_gym_program_duration_seconds_count") == 4
    assert growth("coding_gym_place_wait_seconds_count") == 4


def test_submissions_are_counted_by_verdict(server):
    growth = Growth(server)
    task = load_suite("basics")["basics/add_up"]
    with Grader(provider="remote", base_url=server.url, token=TOKEN, workers=1) as grader:
        assert grader.grade(task, task.reference or "").solved
        assert not grader.grade(task, "this is not a program").solved
    assert growth("coding_gym_grades_total", mode="agreement", outcome="passed") == 1
    assert growth("coding_gym_grades_total", mode="agreement", outcome="error") == 1
    assert growth("coding_gym_grade_duration_seconds_count", mode="agreement") == 2
    assert growth("coding_gym_disagreements_total") == 0


def test_disagreements_are_counted(server):
    growth = Growth(server)
    task = Task(id="t", prompt="", tests=Asserts(cases=("assert f() == 1",)))
    with Grader(provider="remote", base_url=server.url, token=TOKEN, workers=1) as grader:
        verdict = grader.grade(task, "import os\ndef f(): return 1 + os.path.exists('solution.py')")
    assert (verdict.outcome, bool(verdict.disagreement)) == ("failed", True)
    assert growth("coding_gym_disagreements_total") == 1


@pytest.mark.parametrize("has_zygote", [True, False])
def test_memory_of_the_sandbox_includes_that_of_sessions(server, has_zygote):
    # On a busy machine, memory takes seconds to allocate.
    with contextlib.closing(env_of(server, step_timeout=60)) as env:
        env.reset()
        assert read(server).value("coding_gym_memory_bytes") > 10 << 20
        if not has_zygote:
            # Sessions outlive it, with another parent.
            zygotes = [child for child in children(psutil.Process(server.process.pid)) if children(child)]
            assert zygotes
            for zygote in zygotes:
                zygote.kill()
            assert gone_within(zygotes) == []
        observation, *_ = env.step("block = b'x' * (256 << 20); len(block)")
        assert (observation["stdout"], observation["stderr"]) == (f"{256 << 20}\n", "")
        # Other processes start and end in the meantime.
        used = read(server).value("coding_gym_memory_bytes")
        assert used > 256 << 20
        env.step("del block")
        assert eventually(lambda: 200 << 20 < used - read(server).value("coding_gym_memory_bytes") < 340 << 20)


@pytest.fixture(params=[1, 2])
def control_group(request, tmp_path, monkeypatch):
    """Function that writes the files of a control group of version 1 or 2, of which this machine has at most one."""
    version = request.param
    usage, limit = ("memory.current", "memory.max") if version == 2 else ("memory.usage_in_bytes", "memory.limit_in_bytes")
    cache = "inactive_file" if version == 2 else "total_inactive_file"
    monkeypatch.setattr(memory_usage, "_CONTROL_GROUPS", ((tmp_path / usage, tmp_path / "memory.stat", cache),))
    monkeypatch.setattr(oom, "_LIMITS", (tmp_path / limit,))

    def write(used, cached, limited):
        (tmp_path / usage).write_text(f"{used}\n")
        (tmp_path / "memory.stat").write_text(f"anon 5\ninactive_file 7\n{cache} {cached}\n")
        (tmp_path / limit).write_text(f"{limited}\n")

    return write


def test_memory_of_a_container_is_what_counts_towards_its_limit(control_group):
    usage = MemoryUsage(is_container=True)
    control_group(1000, 300, 4096)
    assert (usage.read(roots=()), usage.limit) == (700, 4096)
    for unlimited in ("max", 9223372036854771712):
        control_group(1000, 300, unlimited)
        assert usage.limit is None
    # The control group is not that of a sandbox alone elsewhere.
    elsewhere = MemoryUsage(is_container=False)
    assert elsewhere.limit is None
    assert elsewhere.read(roots=()) > 1 << 20


def test_scrapes_do_not_keep_an_abandoned_sandbox_alive(tmp_path):
    with RunningServer(tmp_path, "--first-client-within", "60", "--idle-timeout", "1") as server:
        env = CodingEnv(provider="remote", base_url=server.url, screen=None)
        env.reset()
        scrape(server.url)
        env.close()

        def has_ended():
            with contextlib.suppress(httpx.TransportError):
                scrape(server.url)
            return not server.is_alive()

        assert eventually(has_ended)


def test_a_histogram_has_the_buckets_of_the_library():
    registry = CollectorRegistry()
    theirs = Histogram("step", "of the library", buckets=STEP_BOUNDS, registry=registry)
    ours = DurationHistogram(STEP_BOUNDS)
    for seconds in (0.0, 0.001, 0.0011, 0.05, 7.5, 300.0, 1e6):
        theirs.observe(seconds)
        ours.add(seconds)
    (family,) = registry.collect()
    expected = [(sample.labels["le"], sample.value) for sample in family.samples if sample.name == "step_bucket"]
    assert ours.buckets == expected
    assert (ours.count, ours.total) == (7, registry.get_sample_value("step_sum"))
    copied = ours.copy()
    copied.add(1.0)
    assert (copied.count, ours.count) == (8, 7)


def test_waits_for_places_are_measured():
    async def scenario():
        places = GradingSlots(1)
        async with places.take(StartDeadline()):
            assert (places.waiting, places.waits.count) == (0, 1)

            async def wait() -> None:
                async with places.take(StartDeadline(0.05)):
                    raise AssertionError

            waiting = asyncio.create_task(wait())
            await asyncio.sleep(0.01)
            assert places.waiting == 1
            with pytest.raises(OverloadedError):
                await waiting
        assert (places.waiting, places.waits.count) == (0, 1)
        async with places.take(StartDeadline(0.05)) as place:
            place.close()
            async with places.take(StartDeadline(0.05)):
                pass

    asyncio.run(scenario())
