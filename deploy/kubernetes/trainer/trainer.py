"""Steps environments on all pods of the service CODING_GYM_SERVICE; see docs/deployment.md."""

from __future__ import annotations

import os
import socket
import time

from coding_gym import CodingVectorEnv, SandboxPool

STEPS = 100
START_SECONDS = 120


def addresses(service: str) -> list[str]:
    """Return the URLs of all ready pods of a headless service, waiting for the first one.

    Raises:
        socket.gaierror: If none is ready in time.
    """
    host, _, port = service.rpartition(":")
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            found = {entry[4][0] for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
        except socket.gaierror:
            if time.monotonic() > deadline:
                raise
            time.sleep(1)
        else:
            return [
                f"http://[{address}]:{port}" if ":" in str(address) else f"http://{address}:{port}" for address in sorted(found)
            ]


def main() -> None:
    """Step as many environments as the pods have sessions."""
    urls = addresses(os.environ["CODING_GYM_SERVICE"])
    with SandboxPool(provider="remote", base_urls=urls, token=os.environ["CODING_GYM_TOKEN"]) as pool:
        envs = CodingVectorEnv(pool.capacity, pool=pool, screen=None)
        try:
            envs.reset(seed=0)
            started = time.perf_counter()
            for step in range(STEPS):
                observations, *_ = envs.step([f"print({step} * {index})" for index in range(envs.num_envs)])
            seconds = time.perf_counter() - started
        finally:
            envs.close()
    assert observations["stdout"] == tuple(f"{step * index}\n" for index in range(envs.num_envs))
    print(f"{len(urls)} servers, {envs.num_envs} environments, {envs.num_envs * STEPS / seconds:.0f} steps per second")


if __name__ == "__main__":
    main()
