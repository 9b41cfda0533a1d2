"""Measure what Ray costs, and what a loss costs, on a cluster of two nodes on this machine.

* a batch of ``RayVectorEnv`` beside one of ``CodingVectorEnv``, in alternating runs
* a node, a host, the sandboxes of a host are killed while environments step: when the loss is noticed, how long the other
  environments have waited at most, and when the lost ones continue

Driver, nodes and sandboxes share the processors here, so that the first table shows more than a cluster of machines costs.

Run it with ``pip install "coding-gym[ray]" psutil`` and ``python examples/ray_benchmark.py``.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from contextlib import closing
from typing import Any

import psutil
import ray
from ray.cluster_utils import Cluster

from coding_gym import CodingVectorEnv
from coding_gym_ray import RayPool, RayVectorEnv

ROUNDS = 9
BATCHES = 40
PLACES = 16
NODE = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False, "resources": {"sandbox": PLACES}}
GIVE_UP_SECONDS = 60.0


def milliseconds(envs: Any) -> float:
    """Return the median duration of a batch."""
    times = []
    for _ in range(BATCHES):
        began = time.perf_counter()
        envs.step(["print('hi')"] * envs.num_envs)
        times.append(1e3 * (time.perf_counter() - began))
    return statistics.median(times)


def measure_overhead(num_envs: int, options: dict[str, Any]) -> str:
    """Return a row of the first table: with sandboxes of eight sessions in both cases."""
    places = -(-num_envs // 2)
    with (
        closing(CodingVectorEnv(num_envs, **options)) as direct,
        closing(RayVectorEnv(num_envs, places=places, **options)) as remote,
    ):
        for envs in (direct, remote):
            envs.reset(seed=1)
            milliseconds(envs)
        pairs = [(milliseconds(direct), milliseconds(remote)) for _ in range(ROUNDS)]
    here, there = (statistics.median(column) for column in zip(*pairs, strict=True))
    ratio = statistics.median(second / first for first, second in pairs)
    return f"| {num_envs} | {here:.2f} ms | {there:.2f} ms | {there - here:+.2f} ms | {ratio:.2f} |"


def kill(kind: str, pool: RayPool, cluster: Cluster, nodes: dict[str, Any], node_id: str) -> None:
    """Kill a node, the host there, or its sandboxes."""
    host = pool.host_actor(node_id)
    worker = psutil.Process(ray.get(host.__ray_call__.remote(lambda _: os.getpid())))
    if kind == "node":
        cluster.remove_node(nodes.pop(node_id), allow_graceful=False)
    elif kind == "host":
        worker.kill()
    else:
        for child in worker.children():
            child.kill()


def measure_loss(kind: str, cluster: Cluster, nodes: dict[str, Any], options: dict[str, Any]) -> str:
    """Return a row of the second table: half of the places are taken, so that there is room elsewhere."""
    with closing(RayVectorEnv(PLACES, **options)) as envs:
        envs.reset(seed=1)
        pool = envs.pool
        milliseconds(envs)
        kill(kind, pool, cluster, nodes, next(iter(pool.hosts)))
        began = time.perf_counter()
        noticed = back = None
        slowest, lost = 0.0, 0
        while back is None and time.perf_counter() - began < GIVE_UP_SECONDS:
            at = time.perf_counter()
            truncated = envs.step(["1"] * PLACES)[3]
            slowest = max(slowest, time.perf_counter() - at)
            if truncated.any():
                noticed = noticed or time.perf_counter() - began
                lost = max(lost, int(truncated.sum()))
            elif noticed is not None:
                back = time.perf_counter() - began
    assert noticed is not None
    assert back is not None
    return f"| {kind} | {lost} of {PLACES} episodes | {noticed:.2f} s | {slowest:.2f} s | {back:.2f} s |"


def main() -> None:
    """Measure, and print two tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--provider", default="local", help="docker or local")
    parser.add_argument("--num-envs", type=int, nargs="+", default=[1, 8, 16, 32])
    arguments = parser.parse_args()
    options = {"provider": arguments.provider, "screen": None, "step_timeout": 10, "preload": (), "sessions": 8}
    head = {**NODE, "resources": {}}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    nodes: dict[str, Any] = {}

    def add_nodes() -> None:
        while len(nodes) < 2:
            node = cluster.add_node(**NODE)
            nodes[node.node_id] = node
        cluster.wait_for_nodes()

    ray.init(address=cluster.address, log_to_driver=False, configure_logging=False)
    try:
        add_nodes()
        print("| environments | one machine | Ray | more per batch | ratio |\n|---|---|---|---|---|")
        for num_envs in arguments.num_envs:
            print(measure_overhead(num_envs, options), flush=True)
        print("\n| killed | lost | noticed after | longest step | all continue after |\n|---|---|---|---|---|")
        for kind in ("sandboxes", "host", "node"):
            print(measure_loss(kind, cluster, nodes, options), flush=True)
            add_nodes()
    finally:
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main()
