"""Task folders of Harbor and Terminal-Bench: what is read, and what is refused."""

from __future__ import annotations

import json
import stat
import subprocess
import textwrap

import pytest

from coding_gym.errors import ConfigurationError
from coding_gym.tasks import Task, load_suite
from coding_gym.tasks.loaders.folder_files import FolderFile, reference_script
from coding_gym_server.protocol.grading import FileContent, GradingMode

BINARY = bytes(range(256))


def write(folder, files):
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content) if isinstance(content, bytes) else path.write_text(content)
    return folder


@pytest.fixture
def harbor(tmp_path):
    """A function that writes a folder of Harbor, and loads its task."""

    def load(config="", without=(), **files):
        folder = {
            "task.toml": textwrap.dedent(config),
            "instruction.md": "<!-- a canary, not to train on -->\n# harbor-canary 1\n\nDo it.\n",
            "environment/Dockerfile": "FROM debian:trixie-slim\nWORKDIR /app\n",
            "tests/test.sh": "echo 1 > /logs/verifier/reward.txt\n",
            "tests/data/x.bin": BINARY,
            "solution/solve.sh": "touch /app/done\n",
            **files,
        }
        write(tmp_path / "one", {name: content for name, content in folder.items() if name not in without})
        return load_suite(tmp_path / "one")["one"]

    return load


@pytest.fixture
def terminal_bench(tmp_path):
    """A function that writes a folder of Terminal-Bench, and loads its task."""
    pytest.importorskip("yaml")

    def load(config="", compose=None, without=(), **files):
        folder = {
            "task.yaml": "instruction: Do it.\n" + textwrap.dedent(config),
            "Dockerfile": "FROM debian:trixie-slim\nWORKDIR /app\n",
            "run-tests.sh": "pytest $TEST_DIR/test_outputs.py -rA\n",
            "tests/test_outputs.py": "def test_a(): pass\n",
            "solution.sh": "touch /app/done\n",
            **({} if compose is None else {"docker-compose.yaml": json.dumps(compose)}),
            **files,
        }
        write(tmp_path / "two", {name: content for name, content in folder.items() if name not in without})
        return load_suite(tmp_path / "two")["two"]

    return load


def test_harbor(harbor, tmp_path):
    task = harbor(
        """
        version = "1.0"
        tags = ["a"]
        artifacts = ["/app/report"]
        [task]
        name = "me/one"
        [metadata]
        difficulty = "easy"
        source = "elsewhere"
        anything = { at = 1979-05-27 }
        [agent]
        timeout_sec = 30
        [verifier]
        timeout_sec = 60
        user = 1000
        collect = []
        env = { A = "1", B = "${B:-two}" }
        [solution]
        env = { C = "it's" }
        [environment]
        build_timeout_sec = 600
        cpus = 2
        memory_mb = 4096
        storage_mb = 10240
        gpus = 0
        mcp_servers = []
        workdir = "/srv"
        os = "Linux"
        env = { D = "4" }
        """
    )
    tests = task.tests
    assert (task.id, task.prompt, task.grading) == ("one", "Do it.\n", None)
    assert (tests.image, tests.directory) == (str(tmp_path / "one" / "environment"), "/srv")
    assert (tests.submission, tests.submission_timeout, tests.carried) == ("script", 30, ())
    assert tests.writable == ("/solution", "/logs/agent", "/logs/artifacts", "/logs/verifier")
    assert (tests.cpu, tests.mem, tests.disk, tests.network) == (2, "4096m", "10240m", True)
    assert tests.environment == {"A": "1", "B": "two", "D": "4"}
    assert tests.files == {
        "/logs/verifier/": "",
        "/tests/data/x.bin": FileContent(BINARY),
        "/tests/test.sh": "echo 1 > /logs/verifier/reward.txt\n",
    }
    [command] = tests.commands
    assert (command.results, command.file, command.timeout, command.user) == ("reward", "/logs/verifier/reward.txt", 60, "1000")
    assert "export C='it'\"'\"'s'\n" in task.reference
    assert "export D=4\n" in task.reference
    assert task.metadata == {
        "source": "Harbor",
        "name": "me/one",
        "tags": ["a"],
        "difficulty": "easy",
        "anything": {"at": "1979-05-27"},
    }
    assert Task.from_json(task.to_json()) == task


@pytest.mark.parametrize(
    ("config", "attribute", "value"),
    [
        ("[environment]\nallow_internet = false", "network", False),
        ("[environment]\nallow_internet = true", "network", True),
        ('[environment]\nnetwork_mode = "no-network"\n[agent]\nnetwork_mode = "no-network"', "network", False),
        ('[environment]\nnetwork_mode = "public"\nallow_internet = false', "network", True),
        ('[environment]\ndocker_image = "mine:1"', "image", "mine:1"),
        ('[environment]\nmemory = "2G"\nstorage = "10G"', "mem", "2048m"),
        ('[environment]\nstorage = "1.5G"', "disk", "1536m"),
    ],
)
def test_environment_of_harbor(harbor, config, attribute, value):
    assert getattr(harbor(config).tests, attribute) == value


def test_separate_tests_of_harbor_get_the_artifacts(harbor):
    task = harbor('artifacts = ["/app/a", {source = "/app/b"}]\n[verifier]\nenvironment_mode = "separate"')
    assert (task.grading, task.tests.carried) == (GradingMode.COPY, ("/logs/artifacts", "/app/a", "/app/b"))


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ("steps = [{name = 'a'}]", "steps"),
        ("[agent]\nuser = 'a'", "agent.user"),
        ("[agent]\nnetwork_mode = 'no-network'", "agent.network_mode"),
        ("[environment]\nallow_internet = false\n[verifier]\nnetwork_mode = 'public'", "verifier.network_mode"),
        ("[environment]\nnetwork_mode = 'allowlist'\nallowed_hosts = ['a.b']", "environment.network_mode"),
        ("[environment]\ngpus = 1", "environment.gpus"),
        ("[environment]\ntpu = {type = 'a', topology = '1x1'}", "environment.tpu"),
        ("[environment]\nos = 'windows'", "environment.os"),
        ("[environment]\nskills_dir = '/skills'", "environment.skills_dir"),
        ("[environment]\nhealthcheck = {command = 'true'}", "environment.healthcheck"),
        ("[environment]\nmcp_servers = [{name = 'a', url = 'b'}]", "environment.mcp_servers"),
        ("[environment]\nenv = {KEY = '${KEY}'}", "environment.env.KEY"),
        ("[verifier]\nenv = {KEY = '${KEY}'}", "verifier.env.KEY"),
        ("[solution]\nenv = {KEY = '${KEY}'}", "solution.env.KEY"),
        ("[verifier]\ncollect = [{command = 'true'}]", "verifier.collect"),
        ("[verifier.environment]\ncpus = 1", "verifier.environment"),
        ("[environment]\nimage = 'a'", "unknown field image"),
        ("unknown = 1", "unknown field unknown"),
        ("[agent]\ntimeout_sec = 'long'", "agent.timeout_sec"),
        ("artifacts = [{source = '/a', service = 'db'}]\n[verifier]\nenvironment_mode = 'separate'", "artifacts"),
        ("[", "task.toml"),
    ],
)
def test_fields_of_harbor_that_are_refused(harbor, config, name):
    with pytest.raises(ConfigurationError, match=rf"task.toml: .*{name}|{name}"):
        harbor(config)


@pytest.mark.parametrize(
    ("files", "name"),
    [
        ({"trajectory.json": "{}"}, "trajectory.json"),
        ({"tests/.harborignore": "x"}, "tests/.harborignore"),
        ({"environment/Dockerfile": 'FROM a\nENTRYPOINT ["/start.sh"]\n'}, "ENTRYPOINT"),
        ({"environment/docker-compose.yaml": "services: {main: {}, db: {image: postgres}}"}, "2 services .main, db."),
    ],
)
def test_parts_of_harbor_that_are_refused(harbor, files, name):
    with pytest.raises(ConfigurationError, match=name):
        harbor(**files)


@pytest.mark.parametrize("missing", ["instruction.md", "tests/test.sh"])
def test_parts_of_harbor_that_are_missing(harbor, missing):
    with pytest.raises(ConfigurationError, match=missing):
        harbor(without=[missing])


def test_tests_image_of_harbor_is_refused(harbor):
    with pytest.raises(ConfigurationError, match="tests/Dockerfile"):
        harbor('[verifier]\nenvironment_mode = "separate"', **{"tests/Dockerfile": "FROM a\n"})


def test_entry_points_of_other_stages_are_none(harbor):
    assert harbor(**{"environment/Dockerfile": 'FROM a AS b\nENTRYPOINT ["c"]\nFROM a\nENTRYPOINT []\n'})


def test_folder_without_a_solution(harbor):
    assert harbor(without=["solution/solve.sh"]).reference is None


def test_links_that_leave_a_folder_are_refused(harbor, tmp_path):
    write(tmp_path, {"one/tests/x": ""})
    (tmp_path / "one/tests/link").symlink_to("/etc/passwd")
    with pytest.raises(ConfigurationError, match="tests/link"):
        harbor()


USUAL = {
    "build": {"context": ".", "dockerfile": "Dockerfile"},
    "image": "${T_BENCH_TASK_DOCKER_CLIENT_IMAGE_NAME}",
    "container_name": "${T_BENCH_TASK_DOCKER_CLIENT_CONTAINER_NAME}",
    "command": ["sh", "-c", "sleep infinity"],
    "environment": ["TEST_DIR=${T_BENCH_TEST_DIR}", "A=b"],
    "volumes": [
        "${T_BENCH_TASK_LOGS_PATH}:${T_BENCH_CONTAINER_LOGS_PATH}",
        "${T_BENCH_TASK_AGENT_LOGS_PATH}:${T_BENCH_CONTAINER_AGENT_LOGS_PATH}",
    ],
    "deploy": {"resources": {"limits": {"cpus": "1.5", "memory": "2G"}}},
    "tty": True,
}


def test_terminal_bench(terminal_bench, tmp_path):
    task = terminal_bench(
        """
        author_name: me
        author_email: me@example.com
        difficulty: easy
        category: files
        tags: [a, b]
        parser_name: pytest
        max_agent_timeout_sec: 30
        max_test_timeout_sec: 60
        run_tests_in_same_shell: false
        disable_asciinema: true
        expert_time_estimate_min: 5
        """,
        compose={"services": {"client": USUAL}},
        **{"tests/run-tests.sh": "this one is used\n"},
    )
    tests = task.tests
    assert (task.id, task.prompt, tests.image, tests.directory) == ("two", "Do it.", str(tmp_path / "two"), "")
    assert (tests.submission, tests.submission_timeout) == ("script", 30)
    assert (tests.cpu, tests.mem, tests.network) == (1.5, "2048m", True)
    assert tests.environment == {"TEST_DIR": "/tests", "A": "b"}
    assert tests.files == {
        "/logs/": "",
        "/tests/run-tests.sh": "this one is used\n",
        "/tests/test_outputs.py": "def test_a(): pass\n",
    }
    [command] = tests.commands
    assert (command.results, command.user, command.timeout) == ("pytest summary", "root", 60)
    assert task.metadata["source"] == "Terminal-Bench"
    assert task.metadata["expert_time_estimate_min"] == 5
    assert Task.from_json(task.to_json()) == task


def test_older_instructions_of_terminal_bench(terminal_bench):
    config = "\ndescriptions: [{key: base, description: Base.}, {key: hard, description: Hard.}]\n"
    assert terminal_bench(**{"task.yaml": "instruction: hard" + config}).prompt == "Hard."
    assert terminal_bench(**{"task.yaml": config}).prompt == "Base."


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ("parser_name: swebench", "parser_name 'swebench'"),
        ("parser_name: other", "parser_name"),
        ("unknown: 1", "unknown field unknown"),
        ("max_test_timeout_sec: long", "max_test_timeout_sec"),
        ("a: [", "task.yaml"),
    ],
)
def test_fields_of_terminal_bench_that_are_refused(terminal_bench, config, name):
    with pytest.raises(ConfigurationError, match=name):
        terminal_bench(config)


def test_shell_of_a_script_is_not_that_of_the_tests(terminal_bench):
    commands = {"solution.yaml": "- {command: cd /tmp}\n"}
    with pytest.raises(ConfigurationError, match=r"the shell of solution\.yaml"):
        terminal_bench("run_tests_in_same_shell: true", without=("solution.sh",), **commands)
    assert terminal_bench("run_tests_in_same_shell: true").reference


def test_folders_without_an_image_are_refused(harbor, terminal_bench):
    with pytest.raises(ConfigurationError, match=r"to have a Dockerfile, or a docker-compose\.yaml"):
        terminal_bench(without=("Dockerfile",))
    with pytest.raises(ConfigurationError, match="to have environment/Dockerfile, or the name of an image"):
        harbor(without=("environment/Dockerfile",))


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"volumes": ["./:/app"]}, "volumes"),
        ({"command": "nginx"}, "command"),
        ({"entrypoint": ["/start.sh"]}, "entrypoint"),
        ({"environment": {"KEY": "${KEY}"}}, "environment.KEY"),
        ({"network_mode": "host"}, "network_mode"),
        ({"privileged": True}, "privileged"),
        ({"build": {"context": ".."}}, "build.context"),
        ({"build": {"context": ".", "args": {"A": 1}}}, "build.args"),
        ({"deploy": {"resources": {"reservations": {"devices": []}}}}, "devices"),
        ({"mem_limit": "much"}, "much"),
        ({"cpus": "many"}, "many"),
        ({"user": "me"}, "user"),
    ],
)
def test_fields_of_compose_files_that_are_refused(terminal_bench, changes, name):
    with pytest.raises(ConfigurationError, match=rf"docker-compose.yaml: .*{name}"):
        terminal_bench(compose={"services": {"client": {**USUAL, **changes}}})


@pytest.mark.parametrize(
    ("compose", "reason"),
    [
        ({"services": {"client": USUAL, "db": {"image": "postgres"}}}, r"2 services \(client, db\)"),
        ({"services": {}}, "to have a service"),
        ({"services": {"client": USUAL}, "volumes": {"data": {}}}, "volumes"),
    ],
)
def test_compose_files_that_are_refused(terminal_bench, compose, reason):
    with pytest.raises(ConfigurationError, match=reason):
        terminal_bench(compose=compose)


def test_compose_file_of_an_image(terminal_bench):
    tests = terminal_bench(
        compose={"services": {"client": {"image": "mine:1", "network_mode": "none", "working_dir": "/x"}}},
        without=["Dockerfile"],
    ).tests
    assert (tests.image, tests.network, tests.directory) == ("mine:1", False, "/x")


def test_commands_as_a_solution(terminal_bench):
    solution = (
        "- {command: cd /tmp, block: true}\n- {command: python -m http.server &, min_timeout_sec: 2}\n- {command: touch x}\n"
    )
    task = terminal_bench(without=["solution.sh"], **{"solution.yaml": solution})
    assert "cd /tmp\npython -m http.server &\nsleep 2\ntouch x\n" in task.reference


@pytest.mark.parametrize("command", ["{command: ':wq', append_enter: false}", "{command: C-c}", "{keys: a, command: b}"])
def test_keys_as_a_solution_are_refused(terminal_bench, command):
    with pytest.raises(ConfigurationError, match=r"solution\.yaml"):
        terminal_bench(without=["solution.sh"], **{"solution.yaml": f"- {command}\n"})


def test_directories_of_folders(harbor, terminal_bench, tmp_path, caplog):
    harbor()
    terminal_bench()
    write(tmp_path, {"no-task/README.md": ""})
    assert load_suite(tmp_path).ids == ("one", "two")
    write(tmp_path / "one", {"trajectory.json": "{}"})
    with pytest.raises(ConfigurationError, match=r"trajectory.json.*unsupported='skip'"):
        load_suite(tmp_path)
    assert load_suite(tmp_path, unsupported="skip").ids == ("two",)
    assert "trajectory.json" in caplog.text
    with pytest.raises(ConfigurationError, match="'refuse' or 'skip'"):
        load_suite(tmp_path, unsupported="other")


def test_script_unpacks_all_files(tmp_path):
    files = {
        "solve.sh": FolderFile(b'#!/bin/sh\ncd "$(dirname "$0")"; sh "a b/run.sh" | tee result; cat data.bin >copy\n', True),
        "a b/run.sh": FolderFile(b"echo END\n: END\n echo $X `id -u` \\\n END_END"),
        "data.bin": FolderFile(BINARY * 9),
        "END": FolderFile(b"echo\nEND\nEND_END\n"),
        "empty": FolderFile(b""),
    }
    into = tmp_path / "solution"
    script = reference_script(
        files,
        into=str(into),
        command='"$solution"/solve.sh',
        log=str(tmp_path / "log"),
        directories=[str(tmp_path / "made")],
        environment={"X": "it's"},
    )
    done = subprocess.run(["sh"], input=script, text=True, capture_output=True, check=False)
    assert "it's" in done.stdout
    assert (into / "result").read_text() == done.stdout
    assert (into / "copy").read_bytes() == BINARY * 9
    assert {path: (into / path).read_bytes() for path in files} == {path: file.content for path, file in files.items()}
    assert stat.S_IMODE((into / "solve.sh").stat().st_mode) == 0o755
    assert (tmp_path / "made").is_dir()
