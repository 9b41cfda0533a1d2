"""The scripts for Slurm: with a stand-in for its commands, and with Slurm itself where it is available."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import pytest

SLURM = Path(__file__).parents[2] / "deploy" / "slurm"
SCRIPTS = sorted(SLURM.glob("*.sbatch"))
TRAINER = [sys.executable, str(SLURM / "trainer.py")]

SRUN = """#!/bin/bash
# Two nodes on this machine. The last one has no server if FAIL is set.
while [[ $1 == --* ]]; do shift; done
for rank in 0 1; do
    if [ "$rank" = 1 ] && [ -n "$FAIL" ]; then continue; fi
    SLURM_PROCID=$rank SLURMD_NODENAME=127.0.0.1 "$@" &
    echo $! >> "$PIDS"
done
wait
"""
SCANCEL = """#!/bin/bash
[ "$*" = "--quiet --signal=TERM 7.0" ] && kill $(cat "$PIDS")
"""


@pytest.fixture
def slurm(tmp_path):
    """Function that runs a script with a stand-in for Slurm, and returns the completed process."""
    for name, text in (("srun", SRUN), ("scancel", SCANCEL)):
        path = tmp_path / name
        path.write_text(text)
        path.chmod(0o755)
    pids = tmp_path / "pids"
    pids.touch()
    # A short path, for Unix sockets in it.
    temporary = tempfile.mkdtemp(prefix="cg-")

    def run(script, *command, **variables):
        path = os.pathsep.join(
            [str(tmp_path), str(Path(sys.executable).parent), sysconfig.get_path("scripts"), os.environ["PATH"]]
        )
        job = {"SLURM_JOB_ID": "7", "SLURM_NNODES": "2", "SLURM_CPUS_PER_TASK": "1", "PIDS": str(pids), "TMPDIR": temporary}
        environment = {**os.environ, **job, "PATH": path, "FAIL": "", **variables}
        environment.pop("CODING_GYM_URLS", None)
        ran = subprocess.run(
            ["bash", script, *command], env=environment, capture_output=True, text=True, timeout=240, cwd=tmp_path
        )
        # All servers have been waited for, and nothing is left in the temporary directory.
        assert not [pid for pid in pids.read_text().split() if Path(f"/proc/{pid}").exists()]
        assert set(os.listdir(temporary)) <= {f"coding-gym-{os.getuid()}"}
        return ran

    yield run
    shutil.rmtree(temporary)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_script_is_valid_bash_and_asks_for_resources(script):
    subprocess.run(["bash", "-n", script], check=True)
    lines = script.read_text().splitlines()
    assert lines[0] == "#!/bin/bash"
    asked = [line.split()[1].partition("=")[0] for line in lines if line.startswith("#SBATCH ")]
    assert {"--nodes", "--cpus-per-task", "--mem", "--time"} <= set(asked)
    # Slurm reads no further than to the first command.
    first_command = next(index for index, line in enumerate(lines) if line and not line.startswith("#"))
    assert not any(line.startswith("#SBATCH") for line in lines[first_command:])


def test_there_are_scripts():
    assert [script.stem for script in SCRIPTS] == ["one_node", "several_nodes"]


def test_trainer_steps_servers_of_all_nodes(slurm):
    ran = slurm(SLURM / "several_nodes.sbatch", *TRAINER)
    assert ran.stdout.startswith("seed 0: 2 environments, "), ran
    assert (ran.returncode, ran.stderr) == (0, "")


def test_exit_code_is_that_of_trainer(slurm):
    assert slurm(SLURM / "several_nodes.sbatch", "sh", "-c", "exit 3").returncode == 3


def test_trainer_gets_addresses_and_token(slurm):
    ran = slurm(SLURM / "several_nodes.sbatch", "sh", "-c", 'echo "$CODING_GYM_URLS"; echo "$CODING_GYM_TOKEN"')
    first, second, token = ran.stdout.split()
    assert first != second
    assert {url.rpartition(":")[0] for url in (first, second)} == {"http://127.0.0.1"}
    assert len(token) == 32


def test_trainer_runs_without_node_that_has_no_server(slurm, tmp_path):
    script = tmp_path / "impatient.sbatch"
    text = (SLURM / "several_nodes.sbatch").read_text()
    # The time limit comes early, but not before the other node's server.
    script.write_text(text.replace("-ge 120 ]", '-ge 3 ] && grep -q "^Serving " "$log"'))
    assert script.read_text() != text
    ran = slurm(script, *TRAINER, FAIL="1")
    assert ran.stdout.startswith("seed 0: 1 environments, "), ran
    assert ran.returncode == 0


def test_job_without_servers_fails_with_their_reason(slurm, tmp_path):
    script = tmp_path / "broken.sbatch"
    script.write_text((SLURM / "several_nodes.sbatch").read_text().replace("--option mem=1g", "--option cpu=bad"))
    ran = slurm(script, "echo", "trained")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "Expected cpu= to be a positive number" in ran.stderr
    assert "No server has started" in ran.stderr


def test_job_whose_servers_hang_fails(slurm, tmp_path):
    script = tmp_path / "hanging.sbatch"
    text = (SLURM / "several_nodes.sbatch").read_text()
    script.write_text(text.replace("-ge 120", "-ge 2").replace("exec coding-gym serve", "exec sleep 60 #"))
    ran = slurm(script, "echo", "trained")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr == "No server has started.\n"


def test_trainer_runs_without_slurm():
    environment = {name: value for name, value in os.environ.items() if name != "CODING_GYM_URLS"}
    ran = subprocess.run(TRAINER, env=environment | {"SLURM_ARRAY_TASK_ID": "5"}, capture_output=True, text=True, timeout=120)
    assert ran.stdout.startswith(f"seed 5: {len(os.sched_getaffinity(0))} environments, "), ran


# With Slurm


@pytest.fixture(scope="module")
def cluster():
    """Number of nodes of the cluster that this machine belongs to."""
    if shutil.which("sinfo") is None:
        pytest.skip("needs Slurm")
    ran = subprocess.run(["sinfo", "--noheader", "--Node", "--states=idle", "--format=%N"], capture_output=True, text=True)
    if ran.returncode or not ran.stdout.split():
        pytest.skip(f"needs a Slurm cluster with idle nodes: {ran.stderr or 'there are none'}")
    return len(set(ran.stdout.split()))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_slurm_accepts_script(cluster, script):
    nodes = 1 if script.stem == "one_node" else min(cluster, 2)
    options = ["--test-only", f"--nodes={nodes}", "--cpus-per-task=1", "--mem=1000"]
    ran = subprocess.run(["sbatch", *options, script, "true"], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_slurm_runs_trainer(cluster, script, tmp_path):
    nodes = 1 if script.stem == "one_node" else min(cluster, 2)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    options = ["--wait", f"--nodes={nodes}", "--cpus-per-task=1", "--mem=2000", f"--output={tmp_path}/output"]
    subprocess.run(["sbatch", *options, script, *TRAINER], env=os.environ | {"PATH": path}, capture_output=True, timeout=240)
    assert f"seed 0: {nodes} environments, " in (tmp_path / "output").read_text()
