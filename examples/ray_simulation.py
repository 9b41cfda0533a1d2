"""Simulate a cluster of a thousand nodes: what the driver of a ``RayPool`` spends on leases, and on a lost node.

The hosts are simulated: they have addresses and places, but no sandboxes. All the rest is that of ``RayPool``: queue, leases,
choice of nodes, loss. Printed and plotted, for clusters of several sizes, with every place taken and callers waiting:

* how long a lease takes while places are free, and a lease with a release while all are taken
* how many episodes per second the latter allows
* how long the driver needs to notice a lost node and to give its places up
* by how many places the order of service differs from that of request (0: first come, first served)
* how much memory the driver has per node

Run it with ``pip install "coding-gym[ray]" matplotlib`` and ``python examples/ray_simulation.py --plot simulation.png``.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

from coding_gym.client.address import Address
from coding_gym.sandbox.pool import Lease, LeaseRequest, PooledMember
from coding_gym_ray import RayPool
from coding_gym_ray.pool import HostedSandbox

PLACES = 64
WAITING = 256
LEASES = 2000


class SimulatedPool(RayPool):
    """A pool whose hosts are simulated."""

    def set_hosts(self, count: int) -> None:
        """Set the number of hosts, and wait until the pool uses them."""
        addresses = {f"http://10.{n >> 16}.{n >> 8 & 255}.{n & 255}:8000": f"{n:056x}" for n in range(1, count + 1)}
        self.on_hosts(addresses)
        while len(self._members) < count:
            time.sleep(0.001)

    def ask(self) -> LeaseRequest:
        """Ask for a lease without waiting for it."""
        future = LeaseRequest()
        self._request(future)
        return future

    def _begin(self) -> Any:
        return None

    def _open_server(self, base_url: str) -> PooledMember:
        return PooledMember(HostedSandbox(Address(base_url), "simulated"), PLACES, base_url=base_url)

    def _to_check(self) -> list[PooledMember]:
        return []

    def _request_nodes(self) -> None:
        pass


def microseconds(work: Callable[[], object]) -> float:
    """Return how long a call takes."""
    began = time.perf_counter()
    work()
    return 1e6 * (time.perf_counter() - began)


def simulate(nodes: int, rng: random.Random) -> dict[str, float]:
    """Return what the driver needs for a number of nodes."""
    tracemalloc.start()
    pool = SimulatedPool(provider="local", acquire_timeout=None)
    leases: list[Lease] = []
    before, _ = tracemalloc.get_traced_memory()
    pool.set_hosts(nodes)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    filling = microseconds(lambda: leases.extend(pool.ask().result(0) for _ in range(nodes * PLACES))) / (nodes * PLACES)
    waiting = [pool.ask() for _ in range(WAITING)]
    served: list[int] = []
    for number, future in enumerate(waiting):
        future.add_done_callback(lambda _, number=number: served.append(number))
    times = []
    for _ in range(LEASES):
        # An episode ends somewhere; its place goes to the caller that has waited longest, and another one queues.
        index = rng.randrange(len(leases))
        times.append(microseconds(leases[index].release))
        first = waiting.pop(0)
        leases[index] = first.result(0)
        number = len(served) + len(waiting)
        times[-1] += microseconds(lambda: waiting.append(pool.ask()))
        waiting[-1].add_done_callback(lambda _, number=number: served.append(number))
    losses = []
    for lost in range(1, min(20, max(nodes // 2, 1)) + 1):
        addresses = dict(list(pool._nodes.items())[1:])
        losses.append(microseconds(lambda addresses=addresses: pool.on_hosts(addresses)))
        assert len(pool.hosts) == nodes - lost
    pool.close()
    lease = statistics.median(times)
    return {
        "nodes": nodes,
        "first lease (us)": filling,
        "lease (us)": lease,
        "episodes/s": 1e6 / lease,
        "lost node (ms)": statistics.median(losses) / 1e3,
        "out of order": max(abs(position - number) for position, number in enumerate(served)),
        "memory (kB per node)": (after - before) / nodes / 1e3,
    }


def plot(rows: list[dict[str, float]], path: Path) -> None:
    """Draw the costs over the number of nodes."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    nodes = [row["nodes"] for row in rows]
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), constrained_layout=True)
    axes[0].loglog(nodes, [row["episodes/s"] for row in rows], "o-")
    axes[0].set(title="Episodes that one driver can begin per second", xlabel="nodes", ylabel="episodes per second")
    axes[1].loglog(nodes, [row["lost node (ms)"] for row in rows], "o-", color="tab:red")
    axes[1].set(title="Driver's time for a lost node", xlabel="nodes", ylabel="milliseconds")
    for axis in axes:
        axis.grid(alpha=0.3, which="both")
    figure.savefig(path, dpi=110)


def main() -> None:
    """Simulate, print a table, and draw it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 10, 100, 1000])
    parser.add_argument("--plot", type=Path, help="file of the plot")
    options = parser.parse_args()
    rng = random.Random(0)  # noqa: S311 - no secret
    rows = [simulate(nodes, rng) for nodes in options.nodes]
    names = list(rows[0])
    print(" | ".join(names))
    for row in rows:
        print(" | ".join(f"{row[name]:>{len(name)},.{0 if row[name] >= 100 or name == 'nodes' else 1}f}" for name in names))
    if options.plot is not None:
        plot(rows, options.plot)


if __name__ == "__main__":
    main()
