"""References of task folders earn what they earn in a plain container."""

from __future__ import annotations

import io
import re
import tarfile
import textwrap

import pytest
from typer.testing import CliRunner

from coding_gym.cli import main as cli
from coding_gym.sandbox.docker.dockerfiles import built_image
from coding_gym.sandbox.docker.images import ensure_image
from coding_gym.tasks import Grader, load_suite
from coding_gym.tasks.repository.results import parse_pytest_summary, parse_reward
from coding_gym.tasks.suite_check import check_tasks

pytestmark = pytest.mark.docker
pytest.importorskip("yaml")

PYTHON = "/opt/coding-gym/venv/bin/python"
TOML = """
    [environment]
    allow_internet = false
    env = { GREETING = "it's" }
    [verifier]
    env = { EXPECTED = "5" }
    [solution]
    env = { VALUE = "5" }
"""
YAML = "instruction: Serve it.\nparser_name: pytest\nmax_test_timeout_sec: 60\n"
COMPOSE = "services: {client: {build: ., command: [sh, -c, sleep infinity], network_mode: none, working_dir: /app, environment: [A=b]}}\n"
FOLDERS = {
    # Files in several places, with helpers of the solution, and a reward of which a part is had for nothing.
    "scattered": {
        "task.toml": TOML,
        "instruction.md": "Write files.",
        "environment/Dockerfile": "FROM debian:trixie-slim\nWORKDIR /app\nRUN echo old >/etc/state && touch /app/old\n",
        "solution/solve.sh": """
            #!/bin/bash
            set -e
            here=$(cd "$(dirname "$0")" && pwd)
            "$here"/lib/write.sh "$VALUE" >/app/value
            echo "$GREETING" >/root/greeting
            tail -c 4 "$here"/data.bin >/app/data
            echo new >/etc/state
            rm /app/old
            test "$DEBIAN_FRONTEND" = noninteractive
            exit 3
        """,
        "solution/lib/write.sh": '#!/bin/sh\necho "$1"\n',
        "solution/data.bin": b"\0\xff\r\nabc\n",
        "tests/test.sh": """
            #!/bin/bash
            passed=0
            [ -e /tests/test.sh ] && passed=1
            grep -q "it's" /root/greeting && grep -q new /etc/state && [ "$(cat /app/value)" = "$EXPECTED" ] \\
                && [ "$(pwd)" = /app ] && [ ! -e old ] && [ "$(cat data)" = abc ] && passed=2
            echo '{"reward": 0.'$((passed * 5))', "speed": 7}' | sed 's/0.10/1/' >/logs/verifier/reward.json
            echo 0 >/logs/verifier/reward.txt
        """,
        "mode": "layer",
    },
    # A user who is not root, and a stale reward.
    "user": {
        "task.toml": "[environment]\nnetwork_mode = 'no-network'\n",
        "instruction.md": "Write a file.",
        "environment/Dockerfile": "FROM debian:trixie-slim\nRUN mkdir /work && chown 1234:1234 /work\nWORKDIR /work\nUSER 1234:1234\n",
        "environment/docker-compose.yml": "services: {other: {image: of-the-task}}\n",
        "solution/solve.sh": "cp /solution/text /work/text; echo 1 >/logs/verifier/reward.txt; echo a >/logs/agent/a && cp /logs/agent/a /work/\n",
        "solution/text": "right",
        "tests/test.sh": "#!/bin/sh\n[ $(id -u) = 1234 ] && grep -q right text && [ -e a ] && touch /logs/verifier/x && echo 1 >/logs/verifier/reward.txt\n",
        "mode": "copy",
    },
    # Tests that see nothing but artifacts, in directories that the image does not have.
    "separate": {
        "task.toml": "artifacts = ['/srv/made/here/report']\n[verifier]\nenvironment_mode = 'separate'\n[environment]\nnetwork_mode = 'no-network'\n",
        "instruction.md": "Write files.",
        "environment/Dockerfile": "FROM debian:trixie-slim\nRUN install -d -o 1234 /srv/made/here && rmdir /srv/made/here && chown 1234 /srv/made\nUSER 1234\n",
        "solution/solve.sh": "mkdir /srv/made/here && echo 1 >/srv/made/here/report && echo 2 >/logs/artifacts/other\n",
        "tests/test.sh": "#!/bin/sh\n[ $(cat /srv/made/here/report /logs/artifacts/other | tr -d '\\n') = 12 ] && echo 1 >/logs/verifier/reward.txt\n",
        "mode": "copy",
    },
    # A service that the solution leaves running.
    "service": {
        "task.yaml": YAML,
        "docker-compose.yaml": COMPOSE,
        "Dockerfile": "FROM {image}\nUSER 0\nWORKDIR /app\n",
        "solution.sh": f"""
            echo hello >index.html
            {PYTHON} -m http.server 8123 --bind 127.0.0.1 &
            for _ in $(seq 100); do {PYTHON} -c 'import socket; socket.create_connection(("127.0.0.1", 8123))' && break; sleep 0.1; done
        """,
        "run-tests.sh": f"{PYTHON} -m pytest -p no:cacheprovider -rA $TEST_DIR/test_outputs.py\n",
        "tests/test_outputs.py": """
            import os, urllib.request
            import pytest

            def test_served():
                assert urllib.request.urlopen("http://127.0.0.1:8123").read() == b"hello\\n"

            def test_environment():
                assert (os.environ["A"], os.getcwd(), os.getuid()) == ("b", "/app", 0)

            @pytest.mark.skip(reason="a test that is skipped passes")
            def test_skipped():
                pass
        """,
        "mode": "session",
    },
    "keys": {
        "task.yaml": YAML,
        "docker-compose.yaml": COMPOSE,
        "Dockerfile": "FROM {image}\n",
        "run-tests.sh": "true\n",
        "solution.yaml": "- {command: vim x}\n- {command: ':wq', append_enter: false}\n",
        "mode": "refused",
    },
}


@pytest.fixture(scope="module")
def folders(docker_engine, tmp_path_factory):
    """A directory with task folders."""
    root = tmp_path_factory.mktemp("folders")
    for folder, files in FOLDERS.items():
        for name, content in files.items():
            path = root / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if name == "mode":
                continue
            if isinstance(content, str):
                content = textwrap.dedent(content).lstrip().replace("{image}", ensure_image(docker_engine, None)).encode()
            path.write_bytes(content)
            path.chmod(0o755 if name.endswith(".sh") else 0o644)
    yield root
    for folder in FOLDERS:
        path = root / folder / "environment" if (root / folder / "environment").exists() else root / folder
        docker_engine.images.remove(built_image(docker_engine, path), force=True)


def archive(directory):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        tar.add(directory, arcname=".")
    return file.getvalue()


def plain_reward(engine, folder, task, *, solved):
    """Return the reward in a container that is used as the format's own harness does."""
    image = built_image(engine, folder / "environment" if (folder / "environment").exists() else folder)
    options = {"detach": True, "network_mode": "none", "environment": task.tests.environment, "entrypoint": ["sleep", "600"]}
    container = engine.containers.run(image, **options)

    def run(command, **options):
        return container.exec_run(["bash", "-c", command], **options).output.decode()

    try:
        if (folder / "task.toml").exists():
            run("mkdir -p /logs/agent /logs/artifacts /logs/verifier /solution /tests && chmod 777 /logs/*", user="root")
            if solved:
                container.put_archive("/solution", archive(folder / "solution"))
                variables = {"DEBIAN_FRONTEND": "noninteractive", "VALUE": "5"}
                run("(/solution/solve.sh) >/logs/agent/oracle.txt 2>&1", environment=variables)
            run("rm -f /logs/verifier/reward.*", user="root")
            container.put_archive("/tests", archive(folder / "tests"))
            run("(/tests/test.sh) >/logs/verifier/test-stdout.txt 2>&1")
            rewards = run("cat /logs/verifier/reward.json 2>/dev/null || cat /logs/verifier/reward.txt 2>/dev/null")
            return parse_reward(rewards.encode()) if rewards else 0.0
        run("mkdir -p /oracle /tests", user="root")
        if solved:
            container.put_archive("/oracle", archive(folder))
            run("bash /oracle/solution.sh >/dev/null 2>&1")
        container.put_archive("/tests", archive(folder))
        container.put_archive("/tests", archive(folder / "tests"))
        results = parse_pytest_summary(run("bash /tests/run-tests.sh", user="root"))
        return float({*results.values()} == {"passed"})
    finally:
        container.remove(force=True)


def test_references_earn_what_they_earn_in_a_plain_container(folders, docker_engine):
    suite = load_suite(folders, unsupported="skip")
    with Grader(provider="docker", workers=2) as grader:
        for task, checked in zip(suite, check_tasks(suite, grader), strict=True):
            scores = [checked.reference.score, checked.unchanged.score]
            plain = [plain_reward(docker_engine, folders / task.id, task, solved=solved) for solved in (True, False)]
            assert scores == plain == [1.0, 0.5 if task.id == "scattered" else 0.0], (task.id, checked)
            assert checked.mode == FOLDERS[task.id]["mode"], checked
            assert not checked.problem


def test_command_shows_a_table(folders):
    result = CliRunner().invoke(cli.app, ["suites", "check", str(folders), "--provider", "docker", "--quiet"])
    assert result.exit_code == 0, result.output
    lines = [re.split(r"\s{2,}", line) for line in result.output.splitlines()]
    assert lines[0] == ["task", "mode", "reference", "nothing", "problem"]
    assert lines[1:5] == [
        *(["scattered", "layer", "1", "0.5"], ["separate", "copy", "1", "0"]),
        *(["service", "session", "1", "0"], ["user", "copy", "1", "0"]),
    ]
    assert lines[5][:4] == ["keys", "refused", "-", "-"]
    assert "append_enter" not in lines[5][4]
    assert "keys for an interactive program" in lines[5][4]
    assert lines[6] == ["5 tasks: 2 copy, 1 layer, 1 session, 1 refused"]
