"""The manifests for Kubernetes agree with each other, and with its schemas."""

from __future__ import annotations

import os
import runpy
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.requirements import import_extra
from tests.support.running_server import RunningServer

yaml = pytest.importorskip("yaml")

KUBERNETES = Path(__file__).parents[2] / "deploy" / "kubernetes"
FILES = sorted(path for path in KUBERNETES.rglob("*.yaml") if path.name != "kustomization.yaml")
TRAINER = KUBERNETES / "trainer" / "trainer.py"
TOKEN = "kubernetes-token"


def read(name):
    return yaml.safe_load((KUBERNETES / name).read_text())


def template(name):
    return read(name)["spec"]["template"]


WORKLOADS = {"sandbox": "base/deployment.yaml", "trainer": "trainer/job.yaml"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_objects_have_kinds_and_names(path):
    documents = list(yaml.safe_load_all(path.read_text()))
    assert documents
    for document in documents:
        assert {"apiVersion", "kind", "spec"} <= set(document)
        assert document["metadata"]["name"].startswith("coding-gym")


def test_every_file_belongs_to_a_kustomization():
    named = set()
    for path in KUBERNETES.rglob("kustomization.yaml"):
        kustomization = yaml.safe_load(path.read_text())
        patches = [patch["path"] for patch in kustomization.get("patches", ()) if "path" in patch]
        files = [name for config in kustomization.get("configMapGenerator", ()) for name in config["files"]]
        named |= {path.parent / name for name in [*kustomization["resources"], *patches, *files]}
    assert {path for path in named if path.suffix} == {*FILES, TRAINER}
    assert all(path.exists() for path in named)


def test_selectors_match_labels():
    deployment, labels = read("base/deployment.yaml"), template("base/deployment.yaml")["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert read("base/service.yaml")["spec"]["selector"].items() <= labels.items()
    policy = read("base/networkpolicy.yaml")["spec"]
    (rule,) = policy["ingress"]
    (source,) = rule["from"]
    trainer = template("trainer/job.yaml")["metadata"]["labels"]
    assert source["podSelector"]["matchLabels"].items() <= trainer.items()
    # The trainer is not one of the pods that the Service and the policy select.
    assert not read("base/service.yaml")["spec"]["selector"].items() <= trainer.items()


def test_ports_agree():
    (container,) = template("base/deployment.yaml")["spec"]["containers"]
    (port,) = container["ports"]
    (service,) = read("base/service.yaml")["spec"]["ports"]
    assert service["targetPort"] == port["name"]
    (rule,) = read("base/networkpolicy.yaml")["spec"]["ingress"]
    assert [entry["port"] for entry in rule["ports"]] == [port["containerPort"]]
    # A headless Service does not translate ports.
    assert service["port"] == port["containerPort"]
    name = f"{read('base/service.yaml')['metadata']['name']}:{service['port']}"
    assert {"name": "CODING_GYM_SERVICE", "value": name} in template("trainer/job.yaml")["spec"]["containers"][0]["env"]


def test_token_comes_from_the_secret():
    sandbox, trainer = (template(WORKLOADS[name])["spec"] for name in ("sandbox", "trainer"))
    (volume,) = [volume for volume in sandbox["volumes"] if "secret" in volume]
    (mount,) = [mount for mount in sandbox["containers"][0]["volumeMounts"] if mount["name"] == volume["name"]]
    (variable,) = [entry for entry in trainer["containers"][0]["env"] if entry["name"] == "CODING_GYM_TOKEN"]
    secret = variable["valueFrom"]["secretKeyRef"]
    assert secret["name"] == volume["secret"]["secretName"]
    assert f"{mount['mountPath']}/{secret['key']}" in " ".join(sandbox["containers"][0]["command"])
    assert "value" not in variable


@pytest.mark.parametrize("name", WORKLOADS)
def test_pods_meet_the_restricted_profile(name):
    spec = template(WORKLOADS[name])["spec"]
    security = spec["securityContext"]
    assert security["runAsNonRoot"] is True
    assert security["runAsUser"] > 0
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["automountServiceAccountToken"] is False
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
    (container,) = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert all(set(volume) - {"name"} <= {"configMap", "emptyDir", "secret"} for volume in spec["volumes"])
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in spec["volumes"]}


@pytest.mark.parametrize("directory", ["base", "session-users", "trainer"])
def test_rendered_objects_match_the_schemas_of_kubernetes(directory):
    kubernetes_validate = import_extra("kubernetes_validate")
    if shutil.which("kubectl") is None:
        pytest.skip("needs kubectl")
    command = ["kubectl", "kustomize", str(KUBERNETES / directory)]
    rendered = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    documents = list(yaml.safe_load_all(rendered))
    assert len(documents) == {"base": 3, "session-users": 3, "trainer": 2}[directory]
    for document in documents:
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


# The trainer


def test_trainer_waits_for_pods_and_finds_all(monkeypatch):
    answers = [
        socket.gaierror("unknown"),
        [(None, None, None, "", (address, 8000)) for address in ("10.0.0.2", "10.0.0.1", "10.0.0.2", "fd00::1")],
    ]

    def getaddrinfo(host, port, **options):
        assert (host, port) == ("coding-gym", "8000")
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    addresses = runpy.run_path(str(TRAINER))["addresses"]
    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    assert addresses("coding-gym:8000") == ["http://10.0.0.1:8000", "http://10.0.0.2:8000", "http://[fd00::1]:8000"]


def test_trainer_steps_all_sessions(tmp_path):
    server = RunningServer(tmp_path, "--max-sessions", "3", token=TOKEN)
    try:
        variables = {"CODING_GYM_SERVICE": f"127.0.0.1:{server.port}", "CODING_GYM_TOKEN": TOKEN}
        ran = subprocess.run([sys.executable, TRAINER], env=os.environ | variables, capture_output=True, text=True, timeout=60)
    finally:
        server.stop()
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("1 servers, 3 environments, ")
