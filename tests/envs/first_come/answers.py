"""Environments of the tests of ``send`` and ``recv``, and their answers."""

from __future__ import annotations

from gymnasium.utils.env_checker import data_equivalence

ENV = {"screen": None, "step_timeout": 60}
FAST = {"provider": "local", "preload": (), **ENV}
SLEEP = "import time; time.sleep({})"
NAP = SLEEP.format(0.5)


def receive(envs, min_ready=1, timeout=30):
    """Return the answers by environment: observation, reward, terminated, truncated, info."""
    observations, rewards, terminations, truncations, infos = envs.recv(min_ready=min_ready, timeout=timeout)
    ids = infos["env_id"].tolist()
    assert infos["_env_id"].all()
    assert ids == sorted(ids)
    assert len(ids) >= min_ready
    return {
        index: (row_of(observations, row), rewards[row], terminations[row], truncations[row], info_of(infos, row))
        for row, index in enumerate(ids)
    }


def row_of(observations, row):
    return {key: values[row] for key, values in observations.items()}


def info_of(infos, row):
    """Return the info of one environment, without its id."""
    return {
        key: info_of(values, row) if isinstance(values, dict) else values[row]
        for key, values in infos.items()
        if not key.startswith("_") and key != "env_id" and infos[f"_{key}"][row]
    }


def outputs(answers):
    return {index: obs["stdout"] for index, (obs, *_) in answers.items()}


def assert_equal(ours, theirs, context):
    assert data_equivalence(ours, theirs), f"{context}:\n{ours}\n{theirs}"


def without_ids(batch):
    *arrays, infos = batch
    return (*arrays, {key: value for key, value in infos.items() if key not in ("env_id", "_env_id")})
