"""Processes of a sandbox that are killed or stopped from outside: server, zygote, session root, worker."""

from __future__ import annotations

import ast
import contextlib
import os
import signal
from concurrent.futures import ThreadPoolExecutor

import gymnasium as gym
import psutil
import pytest
from docker.errors import APIError

from coding_gym.errors import ProtocolError
from tests.faults.episodes import SMALL, after, assert_infrastructure, assert_starts_over, outcome, shown
from tests.support.running_server import gone_within
from tests.support.sandbox_faults import is_gone
from tests.support.sandbox_processes import ITSELF, host_process, processes_of, server_of, workers_of, zygote_of
from tests.support.timing import eventually, promptly

pytestmark = pytest.mark.every_provider

SLEEP = "import time; time.sleep(60)"
IGNORE_INTERRUPTS = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"


@pytest.fixture(scope="module", autouse=True)
def _may_signal(provider):
    if provider == "docker" and os.geteuid() != 0:
        pytest.skip("only root may signal the processes of a container")


@pytest.fixture(scope="module")
def shared(provider):
    """Three sessions in one sandbox, shared by the tests that leave it alive."""
    with contextlib.closing(gym.make_vec("CodingEnv-v0", num_envs=3, provider=provider, **SMALL)) as envs:
        yield envs


@pytest.fixture
def envs(shared):
    """Three sessions in one sandbox, each with a different ``mark``."""
    shared.reset(seed=1)
    shared.step([f"mark = {number}; open('mark', 'w').close()" for number in range(3)])
    return shared


@pytest.fixture
def env(envs):
    """One of three sessions in one sandbox."""
    return envs.envs[1]


@pytest.fixture(scope="module")
def dedicated(provider):
    """Environment in a sandbox that tests kill and replace."""
    with contextlib.closing(gym.make("CodingEnv-v0", provider=provider, **SMALL).unwrapped) as env:
        yield env


@pytest.fixture
def alone(dedicated):
    """Environment in a dedicated sandbox."""
    dedicated.reset(seed=1)
    return dedicated


@pytest.fixture(scope="module")
def hasty_shared(provider):
    """Two sessions with a short step timeout, each in a sandbox that tests replace."""
    options = {**SMALL, "step_timeout": 3}
    with contextlib.closing(
        gym.make_vec("CodingEnv-v0", num_envs=2, sessions_per_sandbox=1, provider=provider, **options)
    ) as envs:
        yield envs


@pytest.fixture
def hasty(hasty_shared):
    """Two sessions with a short step timeout, each in a dedicated sandbox."""
    hasty_shared.reset(seed=1)
    return hasty_shared


def worker_of(env):
    return host_process(env.sandbox, ast.literal_eval(shown(env, ITSELF)))


def spare_worker_of(envs):
    """Return the worker of the spare executor."""
    used = [worker_of(env) for env in envs.envs]
    spares: list[psutil.Process] = []

    def find():
        spares.extend(worker for worker in workers_of(envs.envs[0].sandbox) if worker not in used)
        return spares

    assert eventually(find)
    return spares[0]


# The server


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=lambda number: number.name)
@pytest.mark.parametrize("moment", ["in a step", "before a step"])
def test_killed_server_truncates_episode(alone, number, moment):
    sandbox, server, family = alone.sandbox, server_of(alone.sandbox), processes_of(alone.sandbox)
    killer = after(0.3 if moment == "in a step" else 0, lambda: server.send_signal(number))
    if moment == "before a step":
        killer.join()
        assert gone_within(family) == []
    assert_infrastructure(alone.step(f"{IGNORE_INTERRUPTS}; {SLEEP}"))
    killer.join()
    assert gone_within(family) == []
    assert_starts_over(alone)
    assert alone.sandbox is not sandbox


def test_stopped_server_is_replaced(hasty, impatient):
    def stop_before_reset(env):
        server_of(env.sandbox).suspend()
        assert_starts_over(env)

    def stop_in_step(env):
        stopper = after(0.3, server_of(env.sandbox).suspend)
        with promptly():
            assert_infrastructure(env.step(SLEEP))
        stopper.join()
        assert_starts_over(env)

    sandboxes = [env.sandbox for env in hasty.envs]
    families = [processes_of(sandbox) for sandbox in sandboxes]
    with ThreadPoolExecutor(2) as threads:
        for result in [threads.submit(*case) for case in zip((stop_before_reset, stop_in_step), hasty.envs, strict=True)]:
            result.result()
    for env, sandbox, family in zip(hasty.envs, sandboxes, families, strict=True):
        assert env.sandbox is not sandbox
        assert gone_within(family) == []


# The zygote


def test_sessions_outlive_the_zygote(envs):
    sandbox = envs.envs[0].sandbox
    server, zygote = server_of(sandbox), zygote_of(sandbox)
    killer = after(0.3, zygote.kill)
    for _ in range(3):
        observations, _, _, truncations, infos = envs.step(["import time; time.sleep(0.7); mark"] * 3)
        assert observations["stdout"] == ("0\n", "1\n", "2\n"), observations["stderr"]
        assert list(infos["outcome"]) == ["ok"] * 3
        assert not truncations.any()
    killer.join()
    assert gone_within([zygote]) == []
    assert server_of(sandbox) == server


def test_resets_outlive_the_zygote(env):
    sandbox, server, zygote = env.sandbox, server_of(env.sandbox), zygote_of(env.sandbox)
    zygote.kill()
    # More resets than there are spare executors.
    for _ in range(3):
        assert_starts_over(env)
    assert env.sandbox is sandbox
    assert server_of(sandbox) == server


def test_dead_zygote_is_replaced_until_repeated(alone):
    sandbox, server, zygote = alone.sandbox, server_of(alone.sandbox), zygote_of(alone.sandbox)
    workers = workers_of(sandbox)
    assert workers
    zygote.kill()
    # Kill all session roots of the old zygote, so that no spare executor remains either.
    for worker in workers:
        worker.parent().kill()
    assert gone_within(workers) == []
    assert_starts_over(alone)
    assert alone.sandbox is sandbox
    assert server_of(sandbox) == server
    assert zygote_of(sandbox) != zygote

    def kill():
        with contextlib.suppress(StopIteration, psutil.Error, APIError):
            zygote_of(sandbox).kill()
        return is_gone(server)

    assert eventually(kill)
    assert_infrastructure(alone.step("1"))
    assert_starts_over(alone)
    assert alone.sandbox is not sandbox


# Session roots


def test_root_killed_between_steps_truncates_episode(envs):
    victim, sandbox = envs.envs[1], envs.envs[1].sandbox
    root = worker_of(victim).parent()
    root.kill()
    assert gone_within([root]) == []
    with promptly():
        observations, _, _, truncations, infos = envs.step(["mark"] * 3)
    assert list(infos["outcome"]) == ["ok", "infrastructure", "ok"]
    assert list(observations["exit_code"]) == [0, 255, 0]
    assert list(truncations) == [False, True, False]
    # The next step resets the environment, the one after it runs code.
    assert not envs.step(["mark"] * 3)[3].any()
    observations, *_ = envs.step(["'mark' in globals()"] * 3)
    assert observations["stdout"] == ("True\n", "False\n", "True\n")
    assert victim.sandbox is sandbox


def test_root_killed_during_step_truncates_episode(envs):
    victim, sandbox = envs.envs[1], envs.envs[1].sandbox
    worker = worker_of(victim)
    killer = after(0.5, worker.parent().kill)
    with promptly():
        observations, _, _, truncations, infos = envs.step(
            ["mark", f"{IGNORE_INTERRUPTS}; {SLEEP}", "import time; time.sleep(1); mark"]
        )
    killer.join()
    assert list(infos["outcome"]) == ["ok", "infrastructure", "ok"]
    assert observations["stdout"] == ("0\n", "", "2\n")
    assert list(truncations) == [False, True, False]
    assert gone_within([worker]) == []
    assert_starts_over(victim)
    assert victim.sandbox is sandbox


@pytest.mark.parametrize("how_to_continue", ["step", "reset"])
def test_environment_continues_after_root_was_killed(env, how_to_continue):
    sandbox, root = env.sandbox, worker_of(env).parent()
    root.kill()
    assert gone_within([root]) == []
    if how_to_continue == "step":
        assert_infrastructure(env.step("mark"))
        # Agents do not step after the end of an episode, but it is not an error.
        assert shown(env, "'mark' in globals()") == "False\n"
    assert_starts_over(env)
    assert env.sandbox is sandbox


# Workers


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGKILL, 137), (signal.SIGSEGV, 139), (signal.SIGTERM, 143)])
def test_worker_killed_during_step_loses_state(env, number, exit_code):
    worker = worker_of(env)
    killer = after(0.3, lambda: worker.send_signal(number))
    assert outcome(env, f"print('before'); {SLEEP}") == ("killed", exit_code, True)
    killer.join()
    assert shown(env, "import os; 'mark' in globals(), os.listdir()") == "(False, ['mark'])\n"


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGKILL, 137), (signal.SIGSEGV, 139)])
def test_worker_killed_between_steps_loses_state(env, number, exit_code):
    worker = worker_of(env)
    worker.send_signal(number)
    assert gone_within([worker]) == []
    # "killed" if the code was sent before the server noticed the death of the worker.
    assert outcome(env, "1") in [("ok", 0, True), ("killed", exit_code, True)]
    assert shown(env, "import os; 'mark' in globals(), os.listdir()") == "(False, ['mark'])\n"


def test_stopped_worker_times_out(hasty):
    # One is stopped before a step, the other in a step.
    first, second = workers = [worker_of(env) for env in hasty.envs]
    first.suspend()
    stopper = after(0.3, second.suspend)
    observations, rewards, terminations, truncations, infos = hasty.step([SLEEP] * 2)
    stopper.join()
    assert list(infos["outcome"]) == ["timeout"] * 2
    assert list(infos["state_lost"]) == [True] * 2
    assert list(observations["exit_code"]) == [124] * 2
    assert not truncations.any(), observations["stderr"]
    assert not rewards.any()
    assert not terminations.any()
    assert gone_within(workers) == []
    for env in hasty.envs:
        assert shown(env, "1") == "1\n"
        assert_starts_over(env)


@pytest.mark.parametrize("victim", ["worker", "root"])
def test_killed_spare_is_replaced(envs, victim):
    env, sandbox, spare = envs.envs[1], envs.envs[1].sandbox, spare_worker_of(envs)
    process = spare if victim == "worker" else spare.parent()
    process.kill()
    assert gone_within([spare]) == []
    for _ in range(2):
        assert_starts_over(env)
    assert env.sandbox is sandbox


# Spawners and shims


def spawner_of(env):
    """Return the process that starts the programs of a session."""
    worker = worker_of(env)
    [spawner] = [child for child in worker.parent().children() if child != worker]
    return spawner


def test_killed_spawner_is_replaced(env):
    process = env.processes.start("echo ready; sleep 60")
    next(iter(process))
    spawner = spawner_of(env)
    family = spawner.children(recursive=True)
    spawner.kill()
    assert process.wait().lost == "the process of the sandbox that ran it died"
    assert gone_within([spawner, *family]) == []
    assert env.exec("echo again").stdout == b"again\n"
    assert spawner_of(env) != spawner
    assert shown(env, "mark") == "1\n"


def test_killed_shim_ends_its_program_only(env):
    first = env.processes.start("echo ready; sleep 60; true")
    next(iter(first))
    spawner = spawner_of(env)
    [shim] = [shim for shim in spawner.children() if any("echo ready" in child.cmdline()[-1] for child in shim.children())]
    second = env.processes.start("sleep 60")
    shim.kill()
    assert first.wait().lost == "the process of the sandbox that ran it died"
    second.signal(signal.SIGTERM)
    assert second.wait().signal == signal.SIGTERM
    assert spawner_of(env) == spawner


def test_processes_and_files_of_lost_episode_are_refused(env):
    root = worker_of(env).parent()
    root.kill()
    assert gone_within([root]) == []
    refused = pytest.raises(ProtocolError, match=r"410.*The episode was lost .*: reset the session")
    for request in (lambda: env.exec("true"), env.processes.list, env.files.list, lambda: env.files.write("file", "x")):
        with refused:
            request()
    assert_infrastructure(env.step("mark"))
    with refused:
        env.exec("true")
    assert_starts_over(env)
    assert env.exec("echo new").stdout == b"new\n"


def test_processes_run_again_after_step_of_new_episode(env):
    root = worker_of(env).parent()
    root.kill()
    assert gone_within([root]) == []
    assert_infrastructure(env.step("mark"))
    assert shown(env, "'mark' in globals()") == "False\n"
    assert env.exec("echo new").stdout == b"new\n"


def test_programs_end_with_root(alone):
    # Its zygote has not died, which would adopt what the root leaves.
    process = alone.processes.start("setsid sleep 60 & echo ready; sleep 61")
    next(iter(process))
    spawner = spawner_of(alone)
    family = [spawner, *spawner.children(recursive=True)]
    worker_of(alone).parent().kill()
    assert gone_within(family) == []
    assert "died" in process.wait().lost
