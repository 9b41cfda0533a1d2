"""The shipped files harden a sandbox as the docker provider does."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from coding_gym import SandboxConfig
from coding_gym.sandbox.config import parse_size
from coding_gym_server.__main__ import main

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[2]
KUBERNETES = ROOT / "deploy" / "kubernetes"
DEFAULTS = SandboxConfig()


def read(path):
    return yaml.safe_load(path.read_text())


def compose():
    return read(ROOT / "deploy" / "compose.yaml")["services"]["sandbox"]


def pod():
    return read(KUBERNETES / "base" / "deployment.yaml")["spec"]["template"]["spec"]


def test_compose_has_the_hardening_of_the_docker_provider():
    service = compose()
    assert service["read_only"] is True
    assert service["user"] == "0:0"
    assert service["cap_drop"] == ["ALL"]
    assert service["cap_add"] == ["SETUID", "SETGID"]
    assert {"no-new-privileges", "systempaths=unconfined"} <= {*service["security_opt"]}
    assert service["cpus"] == DEFAULTS.cpu
    assert service["pids_limit"] == DEFAULTS.pids_limit
    assert service["mem_limit"] == service["memswap_limit"] == DEFAULTS.mem
    assert service["shm_size"] == DEFAULTS.shm_size
    assert service["ports"][0].startswith("127.0.0.1:")


def test_compose_mounts_file_systems_like_the_docker_provider():
    mounts = dict(entry.split(":", 1) for entry in compose()["tmpfs"])
    assert set(mounts) == {"/workspaces", "/tmp", "/home/user"}
    for path, options in mounts.items():
        mode = "1733" if path == "/workspaces" else "1777"
        assert options == f"rw,exec,nosuid,nodev,size={DEFAULTS.disk},nr_inodes={DEFAULTS.inodes},mode={mode}"


def test_compose_uses_the_seccomp_profile_of_the_docker_provider():
    (option,) = [entry for entry in compose()["security_opt"] if entry.startswith("seccomp:")]
    profile = option.partition(":-")[2].rstrip("}")
    assert (ROOT / "deploy" / profile).resolve() == ROOT / "coding_gym/sandbox/docker/seccomp.json"


@pytest.mark.parametrize("arguments", [lambda: compose()["command"], lambda: pod()["containers"][0]["args"]])
def test_the_server_knows_the_options(arguments, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["coding-gym-server", "--help"])
    with pytest.raises(SystemExit):
        main()
    usage = capsys.readouterr().out
    for argument in arguments():
        assert argument.partition("=")[0] in usage.split()


def test_pod_meets_the_restricted_profile():
    spec = pod()
    security = spec["securityContext"]
    assert security["runAsNonRoot"] is True
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert f"USER {security['runAsUser']}:{security['runAsGroup']}" in (ROOT / "server_image" / "Dockerfile").read_text()
    assert spec["automountServiceAccountToken"] is False
    (container,) = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert all(set(volume) - {"name"} <= {"emptyDir", "secret"} for volume in spec["volumes"])


def test_pod_has_the_limits_and_probes_of_the_server():
    (container,) = pod()["containers"]
    assert float(container["resources"]["limits"]["cpu"]) == DEFAULTS.cpu
    assert parse_size(container["resources"]["limits"]["memory"].removesuffix("i").lower()) == parse_size(DEFAULTS.mem)
    (port,) = container["ports"]
    assert f"EXPOSE {port['containerPort']}" in (ROOT / "server_image" / "Dockerfile").read_text()
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"] == {"path": "/health", "port": port["name"]}


def test_network_policy_selects_the_pods_and_denies_egress():
    policy = read(KUBERNETES / "base" / "networkpolicy.yaml")["spec"]
    template = read(KUBERNETES / "base" / "deployment.yaml")["spec"]["template"]["metadata"]
    assert policy["podSelector"]["matchLabels"] == template["labels"]
    assert policy["egress"] == []
    assert "Egress" in policy["policyTypes"]
    assert read(KUBERNETES / "base" / "service.yaml")["spec"]["selector"] == template["labels"]


def test_overlay_gives_sessions_users():
    if shutil.which("kubectl") is None:
        pytest.skip("needs kubectl")
    command = ["kubectl", "kustomize", str(KUBERNETES / "session-users")]
    rendered = yaml.safe_load_all(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    (deployment,) = [document for document in rendered if document["kind"] == "Deployment"]
    spec = deployment["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert container["args"][-1] == "--max-sessions=16"
    assert container["image"] != "coding-gym-sandbox"
    assert spec["securityContext"]["runAsUser"] == 0
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["SETUID", "SETGID"]}
    # Kubernetes refuses the one without the other.
    assert (spec["hostUsers"], container["securityContext"]["procMount"]) == (False, "Unmasked")
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
