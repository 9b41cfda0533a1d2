"""Sandboxes of ``serve --e2b --root``: programs are root, E2B's default user, or any other user of the sandbox."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from coding_gym.sandbox.docker import images
from plugins.e2b.tests.conftest import KEY, ServedE2B
from tests.cli.conftest import environment
from tests.support.requirements import import_extra
from tests.support.timing import eventually

e2b = import_extra("e2b")

pytestmark = [pytest.mark.docker, pytest.mark.filterwarnings("ignore")]

SLEEPING = """
import contextlib, glob
count = 0
for name in glob.glob("/proc/[0-9]*/cmdline"):
    with contextlib.suppress(OSError):
        count += open(name, "rb").read().split(bytes(1)) == [b"sleep", b"{0}", b""]
print(count)
"""


@pytest.fixture(scope="module")
def without_built_images(docker_engine) -> Iterator[None]:
    """Removal of the image of a template, which the server's containers have until it ends."""
    yield
    for image in docker_engine.images.list("coding-gym/built"):
        if any(variable.startswith("GREETING=") for variable in image.attrs["Config"]["Env"] or ()):
            docker_engine.images.remove(image.id, force=True)


@pytest.fixture(scope="module")
def rooted(docker_engine, tmp_path_factory, without_built_images) -> Iterator[ServedE2B]:
    # Its first line would be about the image.
    images.ensure_image(docker_engine, None)
    rooted = ServedE2B(
        tmp_path_factory.mktemp("root"),
        "--provider",
        "docker",
        "--root",
        "--option",
        "disk=64m",
        "--hosts",
        "3",
    )
    yield rooted
    assert rooted.stop() == 0, rooted.log.read_text()


@pytest.fixture(scope="module")
def options(rooted):
    return {"api_url": rooted.url, "sandbox_url": rooted.url, "api_key": KEY}


@pytest.fixture(scope="module")
def shared(options):
    """Sandbox without lasting effects."""
    shared = e2b.Sandbox.create(**options)
    yield shared
    shared.kill()


@pytest.fixture
def own(options):
    own = e2b.Sandbox.create(**options)
    yield own
    own.kill()


@pytest.fixture
def run(shared) -> Callable[..., tuple[int, str, str]]:
    return lambda command, **options: outcome(shared, command, **options)


def outcome(sandbox, command, **options) -> tuple[int, str, str]:
    try:
        result = sandbox.commands.run(command, **options)
    except e2b.CommandExitException as error:
        result = error
    return result.exit_code, result.stdout, result.stderr


def count_of_sleeping(sandbox, seconds: int) -> int:
    return int(outcome(sandbox, f"python3 -c '{SLEEPING.format(seconds)}'", user="root")[1])


def are_sleeping(sandbox, seconds: int, count: int) -> bool:
    """Return whether so many programs sleep for so many seconds, soon."""
    return eventually(lambda: count_of_sleeping(sandbox, seconds) == count)


def test_commands_run_as_their_users(run):
    who = 'echo "$(id -un) $(pwd) $HOME $USER $LOGNAME"'
    assert run(who) == (0, "user /home/user /home/user user user\n", "")
    assert run(who, user="root") == (0, "root /root /root root root\n", "")
    assert run(who, user="games", cwd="/") == (0, "games / /usr/games games games\n", "")
    assert run("echo $HOME $A", envs={"HOME": "/tmp", "A": "1"}) == (0, "/tmp 1\n", "")
    assert run("pwd", cwd="/usr") == (0, "/usr\n", "")


@pytest.mark.parametrize("user", ["ghost", "../x", "a b", "-x", "x" * 40])
def test_missing_users_are_refused(shared, user):
    with pytest.raises(e2b.AuthenticationException, match="invalid username"):
        shared.commands.run("true", user=user)
    with pytest.raises(e2b.AuthenticationException, match="invalid username"):
        shared.files.read("x", user=user)
    with pytest.raises(e2b.AuthenticationException, match="invalid username"):
        shared.files.list("x", user=user)


def test_missing_directory_exits_with_127(run):
    assert run("true", cwd="missing") == (127, "", "/home/user/missing: No such file or directory\n")


def test_default_user_has_no_privileges(run):
    code, _, error = run("touch /etc/mine")
    assert (code, "Permission denied" in error) == (1, True)
    assert run("kill -9 1")[0] == 1
    assert run("cat /etc/shadow")[0] == 1


def test_agent_user_owns_its_directory(own):
    command = "useradd -m -s /bin/bash agent && mkdir /app && chown -R agent:agent /home/agent /app && id agent"
    assert own.commands.run(command, user="root").stdout.startswith("uid=")
    assert outcome(own, "touch /app/mine; stat -c %U /app/mine; pwd", user="agent") == (0, "agent\n/home/agent\n", "")
    assert outcome(own, "touch /app/other")[0] == 1
    assert "not in the sudoers file" in outcome(own, "sudo id", user="agent")[2]


def test_files_belong_to_the_user_of_the_request(own):
    own.files.write("relative/a", "a")
    own.files.write("relative/a", "b", user="root")
    own.files.write("/app/deep/a", b"\xff", user="root")
    own.files.write("/app/deep/b", "b")
    own.files.make_dir("/app/made")
    own.files.rename("/app/deep/b", "/app/moved/b", user="root")
    names = "/home/user/relative /home/user/relative/a /root/relative/a /app /app/deep/a /app/made /app/moved /app/moved/b"
    owners = own.commands.run(f"stat -c %U {names}", user="root").stdout.split()
    assert owners == ["user", "user", "root", "root", "root", "user", "root", "user"]
    assert own.files.read("/app/deep/a", format="bytes") == b"\xff"
    assert own.files.read("relative/a") == "a"
    assert own.files.exists("relative/a", user="root")
    assert own.files.get_info("/app/made").owner == "user"


def test_sudo_executes_commands_as_root(run):
    assert run("sudo id -un; sudo -u games id -un; sudo -i pwd; cd /usr; sudo pwd") == (0, "root\ngames\n/root\n/usr\n", "")
    assert run("echo in | sudo sh -c 'cat; echo err >&2; exit 7'") == (7, "in\n", "err\n")
    assert run("A=1 sudo sh -c 'echo $A'; A=1 sudo -E sh -c 'echo $A'; sudo A=2 sh -c 'echo $A'") == (0, "\n1\n2\n", "")
    assert run("sudo printenv SUDO_USER HOME USER") == (0, "user\n/root\nroot\n", "")
    assert run("sudo sh -c 'kill -TERM $$'")[0] == 143
    assert run("sudo id -un", user="root") == (0, "root\n", "")
    assert run("sudo -s 'echo $HOME'; sudo -nH -- echo - -x") == (0, "/root\n- -x\n", "")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("missing", 127, "sudo: missing: command not found\n"),
        ("-u ghost id", 126, "sudo: unknown user ghost\n"),
        ("/etc/passwd", 126, "sudo: /etc/passwd: Permission denied\n"),
    ],
)
def test_sudo_explains_failures(run, arguments, code, message):
    assert run(f"sudo {arguments}") == (code, "", message)


@pytest.mark.parametrize("arguments", ["", "-u", "--unknown x", "-Z x"])
def test_sudo_shows_its_usage(run, arguments):
    code, _, error = run(f"sudo {arguments}")
    assert (code, error.startswith("usage: sudo")) == (1, True)


def test_sudo_ends_with_its_client(own):
    command = own.commands.run("sudo sleep 4711", background=True)
    assert are_sleeping(own, 4711, 1)
    command.kill()
    assert are_sleeping(own, 4711, 0)
    command = own.commands.run("sudo sleep 4712", background=True, timeout=3)
    assert are_sleeping(own, 4712, 1)
    with pytest.raises(e2b.TimeoutException):
        command.wait()
    assert are_sleeping(own, 4712, 0)


def test_sudo_passes_signals_on(own):
    command = own.commands.run(
        "sudo sh -c 'trap \"echo got; exit 3\" INT; echo ready; while :; do sleep 0.1; done'", background=True
    )
    seen = []
    for out, _, _ in command:
        seen.append(out)
        if "ready\n" in seen:
            break
    # The shell has been replaced by its only command.
    own.commands.run(f"kill -INT {command.pid}")
    with pytest.raises(e2b.CommandExitException) as caught:
        command.wait()
    assert (caught.value.exit_code, caught.value.stdout) == (3, "ready\ngot\n")


def test_terminal_belongs_to_the_user(own):
    terminal = own.pty.create(e2b.PtySize(rows=24, cols=80))
    own.pty.send_stdin(terminal.pid, b"tty; id -un; sudo id -un; exit\n")
    output = []
    terminal.wait(on_pty=output.append)
    printed = b"".join(output).decode().split("\r\n")
    assert {"user", "root"} <= {*printed}
    assert any("/dev/pts/" in line for line in printed)


def test_commands_signal_each_other(own):
    first = own.commands.run("exec sleep 4713", background=True, user="root")
    assert outcome(own, f"kill {first.pid}")[0] == 1
    assert outcome(own, f"kill -TERM {first.pid}", user="root") == (0, "", "")
    with pytest.raises(e2b.CommandExitException) as caught:
        first.wait()
    assert caught.value.error == "signal: terminated"
    second = own.commands.run("exec sleep 4714", background=True)
    assert outcome(own, f"kill -TERM {second.pid}") == (0, "", "")
    with pytest.raises(e2b.CommandExitException) as caught:
        second.wait()
    assert caught.value.error == "signal: terminated"


def test_started_command_is_that_of_its_user(own):
    # The account is the last one of many, and takes some time to be found.
    last = "late:x:1000:1000::/home/user:/bin/bash"
    others = "import sys; sys.stdout.writelines(f'other{n}:x:{n}:{n}::/:/bin/false\\n' for n in range(10_000, 1_000_000))"
    assert outcome(own, f"(python3 -c \"{others}\"; echo '{last}') >> /etc/passwd", user="root") == (0, "", "")
    slow = own.commands.run("exec sleep 4715", background=True, user="late")
    assert outcome(own, f"kill -INT {slow.pid}") == (0, "", "")
    with pytest.raises(e2b.CommandExitException) as caught:
        slow.wait()
    assert (caught.value.error, caught.value.stderr) == ("signal: interrupt", "")
    slow = own.commands.run("printf '\\0a'; read -r line; echo \"$line\"", background=True, user="late", stdin=True)
    again = own.commands.connect(slow.pid)
    own.commands.send_stdin(slow.pid, "b\n")
    assert (slow.wait().stdout, again.wait().stdout[-2:]) == ("\0ab\n", "b\n")
    assert outcome(own, "no-such-command", user="late")[0] == 127


@pytest.mark.parametrize("sudo", ["", "sudo "])
def test_signals_are_not_ignored_by_commands(shared, sudo):
    # Python ignores SIGPIPE and SIGXFSZ.
    assert outcome(shared, f"{sudo}bash -c 'yes | head -n 1; echo ${{PIPESTATUS[0]}}'") == (0, "y\n141\n", "")
    ignored = outcome(shared, f"{sudo}grep SigIgn /proc/self/status")[1]
    assert int(ignored.split()[1], 16) == 0


def test_memory_of_what_starts_commands_is_out_of_reach(own):
    command = """
import glob, os
for name in sorted(glob.glob("/proc/[0-9]*/mem")):
    pid = int(name.split("/")[2])
    if pid not in (os.getpid(), int(os.environ["SHELL_PID"])):
        try:
            print(pid, open(name, "r+b").close())
        except OSError as error:
            print(pid, error.strerror)
"""
    own.files.write("/tmp/look.py", command)
    printed = outcome(own, "export SHELL_PID=$$; python3 /tmp/look.py", user="root")[1]
    refused = [line for line in printed.splitlines() if line.endswith("Permission denied")]
    # Those of sudo and of the files program are root's own.
    assert len(refused) >= 5
    parent = outcome(own, 'python3 -c \'import os; open(f"/proc/{os.getppid()}/mem", "r+b")\'; true', user="root")[2]
    assert parent == ""
    shim = 'import os; parent = open(f"/proc/{os.getppid()}/stat").read().split()[3]; open(f"/proc/{parent}/mem", "r+b")'
    assert "Permission denied" in outcome(own, f"python3 -c '{shim}'; true", user="root")[2]


def test_timeout_kills_daemons(own):
    command = own.commands.run("setsid sleep 4715 & sleep 60", background=True, timeout=3)
    assert are_sleeping(own, 4715, 1)
    with pytest.raises(e2b.TimeoutException):
        command.wait()
    assert are_sleeping(own, 4715, 0)


def test_code_that_kills_everything_loses_its_own_sandbox_at_most(own, shared):
    with pytest.raises(Exception):  # noqa: B017, PT011 - the connection ends in one way or the other
        own.commands.run("kill -9 -1", user="root")
    assert outcome(shared, "echo alive") == (0, "alive\n", "")


def test_forks_are_refused(shared):
    with pytest.raises(e2b.SandboxException, match="programs of the session are root"):
        shared.fork()
    with pytest.raises(e2b.SandboxException, match="programs of the session are root"):
        shared.create_snapshot()


def test_sandbox_continues_after_a_pause(own):
    own.commands.run("mkdir /app", user="root")
    own.pause()
    own.connect()
    assert outcome(own, "ls -d /app") == (0, "/app\n", "")


def test_template_without_instructions_is_the_image(options):
    e2b.Template.build(e2b.Template().from_image("e2bdev/base"), "plain-root", **{**options, "sandbox_url": None})
    sandbox = e2b.Sandbox.create("plain-root", **options)
    assert outcome(sandbox, "id -un", user="root") == (0, "root\n", "")
    sandbox.kill()


def test_root_can_be_left_out(options):
    sandbox = e2b.Sandbox.create(metadata={"coding-gym/root": "false"}, **options)
    assert outcome(sandbox, "id -un", user="root") == outcome(sandbox, "id -un")
    assert outcome(sandbox, "mkdir /app", user="root")[0] == 1
    with pytest.raises(e2b.AuthenticationException, match="which is the same"):
        sandbox.commands.run("true", user="games")
    sandbox.kill()


def test_each_sandbox_has_a_container(options, shared, docker_engine):
    first, second = (e2b.Sandbox.create(**options) for _ in range(2))
    with pytest.raises(e2b.RateLimitException, match="raise --hosts"):
        e2b.Sandbox.create(**options)
    first.commands.run("touch /mine", user="root")
    assert outcome(second, "ls /mine", user="root")[0] == 2
    first.kill()
    second.kill()


def test_root_that_is_not_available_is_refused_at_the_start():
    command = [sys.executable, "-m", "coding_gym", "serve", "--e2b", "--root", "--port", "0", "--provider", "local"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment())
    assert done.returncode == 1
    assert "root=True requires" in done.stderr + done.stdout


def test_code_is_executed_by_root(rooted, shared):
    import httpx

    headers = {"X-Access-Token": shared._envd_access_token, "e2b-sandbox-id": shared.sandbox_id}
    code = {"code": "import os; print(os.getuid(), os.listdir('/root') is not None)"}
    answer = httpx.post(f"{rooted.url}/execute", json=code, headers=headers, timeout=30).text
    texts = [json.loads(line).get("text", "") for line in answer.splitlines()]
    assert "".join(texts).startswith("0 True")


@pytest.fixture(scope="module")
def foreign(options, tmp_path_factory):
    """Sandbox of an image without Python, built with files and instructions of a template."""
    context = tmp_path_factory.mktemp("context")
    (context / "given.txt").write_text("given\n")
    (context / "folder").mkdir()
    (context / "folder/inner.sh").write_text("echo inner\n")
    template = (
        e2b.Template(file_context_path=context)
        .from_image("debian:trixie-slim")
        .set_envs({"GREETING": 'two "words" $HOME'})
        .run_cmd("useradd --create-home builder && echo built > /srv/built && id -un", user="root")
        .copy("given.txt", "/srv/")
        .copy("folder", "/opt/folder", mode=0o755)
        .set_workdir("/srv")
        .run_cmd("id -un > /tmp/by; pwd >> /tmp/by; cat given.txt >> /tmp/by")
        .set_start_cmd("echo started > /tmp/started; sleep 1000", "test -e /tmp/started")
    )
    e2b.Template.build(template, "foreign", **options)
    sandbox = e2b.Sandbox.create("foreign", **options)
    yield sandbox
    sandbox.kill()


def test_template_of_any_image(foreign):
    assert outcome(foreign, "command -v python3; id -un; pwd; printenv GREETING") == (
        0,
        'user\n/home/user\ntwo "words" $HOME\n',
        "",
    )
    assert outcome(foreign, "cat /srv/built /tmp/by; /opt/folder/inner.sh || sh /opt/folder/inner.sh") == (
        0,
        "built\nuser\n/srv\ngiven\ninner\n",
        "",
    )
    assert outcome(foreign, "id -un; sudo id -un; sudo -u builder id -un")[1] == "user\nroot\nbuilder\n"
    assert outcome(foreign, "id -un; pwd", user="root") == (0, "root\n/root\n", "")
    foreign.files.write("mine.txt", "mine")
    assert outcome(foreign, "stat -c '%U %n' mine.txt; cat mine.txt") == (0, "user mine.txt\nmine", "")
    assert foreign.files.read("/srv/built") == "built\n"
    foreign.files.write("/etc/of_root", "x", user="root")
    assert "given.txt" in {entry.name for entry in foreign.files.list("/srv")}


def test_template_that_fails(options):
    template = e2b.Template().from_image("debian:trixie-slim").run_cmd("echo why it fails >&2; false")
    with pytest.raises(e2b.BuildException, match="why it fails"):
        e2b.Template.build(template, "failing", **options)
    with pytest.raises(e2b.BuildException, match="cannot be pulled"):
        e2b.Template.build(e2b.Template().from_image("coding-gym-test/nowhere:1"), "missing", **options)
