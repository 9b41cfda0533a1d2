"""The compose file, run by Docker Compose."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import gymnasium as gym
import pytest

from coding_gym.client.address import Address
from coding_gym.client.http import get_json
from coding_gym.sandbox.base import wait_until_ready
from coding_gym.sandbox.docker.images import image_name
from tests.support.running_server import free_port

DEPLOY = Path(__file__).parents[2] / "deploy"
TOKEN = "compose-token"


@pytest.mark.docker
def test_compose_serves_isolated_sessions(tmp_path):
    if subprocess.run(["docker", "compose", "version"], capture_output=True).returncode:
        pytest.skip("needs Docker Compose 2.15 or later")
    token = tmp_path / "token"
    token.write_text(TOKEN)
    token.chmod(0o644)
    port = free_port()
    variables = {"CODING_GYM_IMAGE": image_name(), "CODING_GYM_TOKEN_FILE": str(token), "CODING_GYM_PORT": str(port)}
    url = f"http://127.0.0.1:{port}"

    def run(*arguments):
        command = ["docker", "compose", "--project-name", f"coding-gym-test-{port}", *arguments]
        subprocess.run(command, cwd=DEPLOY, env=os.environ | variables, check=True, timeout=60)

    try:
        run("up", "--detach")
        address = Address(url, token=TOKEN)
        wait_until_ready(address, timeout=30, explain_death=lambda: None)
        assert get_json(address, "/health", timeout=10)["isolation"]["session_users"]
        with gym.make("CodingEnv-v0", provider="remote", base_url=url, token=TOKEN, screen=None) as env:
            env.reset(seed=0)
            observation, *_ = env.step("print(6 * 7)")
            assert observation["stdout"] == "42\n"
            observation, *_ = env.step("open('/run/coding-gym/token')")
            assert "PermissionError" in observation["stderr"]
    finally:
        run("down")
