"""Steps environments on the servers of CODING_GYM_URLS, or else in a sandbox on this machine; see docs/slurm.md."""

from __future__ import annotations

import os
import time

from coding_gym import CodingVectorEnv

STEPS = 100


def make_envs() -> CodingVectorEnv:
    """Return as many environments as the servers have sessions, or as the job has CPUs on this machine."""
    if urls := os.environ.get("CODING_GYM_URLS", "").split():
        token = os.environ["CODING_GYM_TOKEN"]
        count = len(urls) * int(os.environ["SLURM_CPUS_PER_TASK"])
        return CodingVectorEnv(count, provider="remote", base_urls=urls, token=token, screen=None)
    count = len(os.sched_getaffinity(0))
    return CodingVectorEnv(count, provider="local", mem="1g", sessions_per_sandbox=count, screen=None)


def main() -> None:
    """Step all environments, in an order of programs that depends on the seed."""
    seed = int(os.environ.get("SLURM_ARRAY_TASK_ID", "0"))
    envs = make_envs()
    try:
        envs.reset(seed=seed)
        started = time.perf_counter()
        for step in range(STEPS):
            observations, *_ = envs.step([f"print({seed} + {step} * {index})" for index in range(envs.num_envs)])
        seconds = time.perf_counter() - started
    finally:
        envs.close()
    assert observations["stdout"] == tuple(f"{seed + step * index}\n" for index in range(envs.num_envs))
    print(f"seed {seed}: {envs.num_envs} environments, {envs.num_envs * STEPS / seconds:.0f} steps per second")


if __name__ == "__main__":
    main()
