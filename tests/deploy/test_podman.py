"""The manifests for Kubernetes, run by ``podman kube play``.

Podman has no Services, NetworkPolicies and Jobs: it runs the Deployment, and the Job's template as a Pod. Podman 4.3
publishes all ports, needs a container's ports for probes, and passes on the data of a Secret undecoded, and none to variables.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import gymnasium as gym
import pytest

from coding_gym.client.address import Address
from coding_gym.client.http import get_json
from coding_gym.sandbox.base import wait_until_ready
from coding_gym.sandbox.docker.images import image_name
from tests.support.timing import eventually

yaml = pytest.importorskip("yaml")
pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
KUBERNETES = ROOT / "deploy" / "kubernetes"
TRAINER_IMAGE = "coding-gym-test-trainer"
# Of what an unprivileged process may set.
LIMITS = '[containers]\ndefault_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]\n'
PROBES = ("startupProbe", "readinessProbe", "livenessProbe")


@pytest.fixture(scope="module")
def podman(tmp_path_factory):
    """Function that runs Podman with arguments, and returns its output."""
    if shutil.which("podman") is None or shutil.which("kubectl") is None:
        pytest.skip("needs podman and kubectl")
    configuration = tmp_path_factory.mktemp("podman") / "containers.conf"
    configuration.write_text(LIMITS)

    def run(*arguments, **options):
        command = ["env", f"CONTAINERS_CONF={configuration}", "podman", *arguments]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=120, **options)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    return run


@pytest.fixture(scope="module")
def load(podman):
    """Function that copies an image of Docker to Podman, and returns its name there."""

    def load(name):
        if subprocess.run(["podman", "image", "exists", f"localhost/{name}"]).returncode:
            subprocess.run(
                f"docker save {name} | podman load --quiet", shell=True, check=True, capture_output=True, timeout=240
            )
        return f"localhost/{name}"

    return load


@pytest.fixture
def alone():
    """Keeps tests in other processes from the same Secret and the same volumes."""
    with (Path(tempfile.gettempdir()) / f"coding-gym-test-podman-{os.getuid()}").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture
def play(podman, load, alone, tmp_path):
    """Function that plays the pod of a directory of manifests, and returns the name of its container."""
    played = []

    def play(directory, kind, image, **variables):
        command = ["kubectl", "kustomize", str(KUBERNETES / directory)]
        rendered = list(yaml.safe_load_all(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
        (workload,) = [document for document in rendered if document["kind"] == kind]
        pod = {"apiVersion": "v1", "kind": "Pod", **workload["spec"]["template"]}
        pod["metadata"]["name"] = name = f"coding-gym-test-{directory}"
        (container,) = pod["spec"]["containers"]
        container |= {"image": load(image), "imagePullPolicy": "Never"}
        container.pop("ports", None)
        for probe in PROBES:
            container.pop(probe, None)
        # Podman makes a volume with the name of each of the pod's.
        for entry in (*pod["spec"]["volumes"], *container["volumeMounts"]):
            entry["name"] = f"coding-gym-test-{entry['name']}"
        if variables:
            container["env"] = [{"name": key, "value": value} for key, value in variables.items()]
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "coding-gym-token"}}
        secret["data"] = {"token": base64.b64encode(b"podman-token").decode()}
        file = tmp_path / f"{directory}.yaml"
        others = [document for document in rendered if document["kind"] == "ConfigMap"]
        file.write_text(yaml.safe_dump_all([secret, *others, pod]))
        played.append(file)
        podman("kube", "play", "--seccomp-profile-root", str(profiles), str(file))
        return f"{name}-{container['name']}"

    profiles = tmp_path / "seccomp"
    profiles.mkdir()
    shutil.copy(ROOT / "coding_gym/sandbox/docker/seccomp.json", profiles / "coding-gym.json")
    yield play
    for file in reversed(played):
        podman("kube", "down", str(file))
        for document in yaml.safe_load_all(file.read_text()):
            volumes = [entry["name"] for entry in document.get("spec", {}).get("volumes", ()) if "emptyDir" in entry]
            if document["kind"] in ("ConfigMap", "Secret"):
                volumes.append(document["metadata"]["name"])
            for volume in volumes:
                subprocess.run(["podman", "volume", "rm", "--force", volume], capture_output=True)
        subprocess.run(["podman", "secret", "rm", "coding-gym-token"], capture_output=True)


@pytest.fixture
def serve(play, podman):
    """Function that plays the sandbox of a directory of manifests, and returns its address with the token that it has read."""

    def serve(directory):
        container = play(directory, "Deployment", image_name())
        (pod,) = json.loads(podman("inspect", container))
        (infra,) = json.loads(podman("inspect", json.loads(podman("pod", "inspect", pod["Pod"]))["InfraContainerID"]))
        (network,) = infra["NetworkSettings"]["Networks"].values()
        token = podman("exec", container, "cat", "/run/coding-gym/token")
        address = Address.of_url(f"http://{network['IPAddress']}:8000", token=token)
        wait_until_ready(address, timeout=30, explain_death=lambda: None)
        return address

    return serve


@pytest.mark.parametrize("directory", ["base", "session-users"])
def test_podman_runs_the_sandbox(serve, directory):
    address = serve(directory)
    isolation = get_json(address, "/health", timeout=10)["isolation"]
    own = directory == "session-users"
    assert (isolation["session_users"], isolation["session_mounts"], isolation["seccomp"]) == (own, own, True)
    with gym.make("CodingEnv-v0", provider="remote", base_url=address.url, token=address.token, screen=None) as env:
        env.reset(seed=0)
        assert env.step("print(6 * 7)")[0]["stdout"] == "42\n"
        assert "PermissionError" in env.step("open('/run/coding-gym/token')")[0]["stderr"]


def test_trainer_of_the_job_steps_the_sandbox(serve, play, podman):
    dockerfile = KUBERNETES / "trainer" / "Dockerfile"
    build = ["docker", "build", "--quiet", "--file", str(dockerfile), "--tag", TRAINER_IMAGE, str(ROOT)]
    subprocess.run(build, check=True, capture_output=True, timeout=280)
    subprocess.run(["podman", "rmi", "--force", f"localhost/{TRAINER_IMAGE}"], capture_output=True)
    address = serve("base")
    service = address.url.removeprefix("http://")
    container = play("trainer", "Job", TRAINER_IMAGE, CODING_GYM_SERVICE=service, CODING_GYM_TOKEN=address.token)
    assert eventually(lambda: podman("inspect", "--format", "{{.State.Status}}", container).strip() == "exited", 60)
    assert podman("logs", container).startswith("1 servers, 1 environments, ")
