"""Features of environments beyond text: backends, rich results, initial files."""

from __future__ import annotations

import pytest

from coding_gym import AsyncCodingEnv, CodingEnv, CodingVectorEnv, Result, SandboxPool
from coding_gym.errors import ConfigurationError

FAST = {"provider": "local", "preload": (), "screen": None}


@pytest.fixture
def make(pool):
    envs = []

    def make(**options):
        envs.append(CodingEnv(pool=pool, screen=None, **options))
        return envs[-1]

    yield make
    for env in envs:
        env.close()


def run(env, code):
    obs, _, _, _, info = env.step(code)
    return obs["stdout"], obs["stderr"], int(obs["exit_code"]), info


def test_notebook_backend_runs_cells(make):
    env = make(backend="notebook")
    env.reset()
    assert run(env, "    import asyncio\n    await asyncio.sleep(0)\n    'value'")[:3] == ("'value'\n", "", 0)
    assert run(env, "!echo $((1 + 1))")[0] == "2\n"
    assert run(env, "display(1); 2;")[0] == "1\n"
    stdout, stderr, exit_code, info = run(env, "print('before'); 1/0")
    assert (stdout, exit_code, info["outcome"]) == ("before\n", 1, "error")
    assert stderr.endswith("ZeroDivisionError: division by zero\n")
    assert run(env, "import sys; sys.exit(7)")[1:3] == ("", 7)
    assert run(env, "sys.exit('message')")[1:3] == ("message\n", 1)
    env.reset()
    assert run(env, "asyncio")[2] == 1


@pytest.mark.parametrize("backend", ["python", "notebook"])
def test_info_contains_results(make, backend):
    env = make(backend=backend, results=True)
    _, info = env.reset()
    assert info["results"] == ()
    stdout, stderr, exit_code, info = run(env, "print('a')\n1 + 1")
    assert (stdout, stderr, exit_code) == ("a\n2\n", "", 0)
    assert info["results"] == (Result({"text/plain": "2"}, is_value=True),)
    stdout, stderr, exit_code, info = run(env, "print('b')\n1/0")
    assert (stdout, exit_code, info["results"]) == ("b\n", 1, ())
    assert "ZeroDivisionError: division by zero" in stderr
    assert run(env, "import sys\nsys.exit(3)")[2] == 3


def test_rich_results_have_formats(make):
    env = make(backend="notebook", results=True)
    env.reset()
    stdout, _, _, info = run(env, "import pandas as pd\ndisplay(pd.DataFrame({'a': [1]}))\n{'k': [1]}")
    assert stdout == "   a\n0  1\n{'k': [1]}\n"
    table, value = info["results"]
    assert (table.table, table.is_value) == ({"a": [1]}, False)
    assert (value.json, value.is_value) == ({"k": [1]}, True)
    _, _, _, info = run(env, "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()")
    assert info["results"][0].png.startswith(b"\x89PNG")


def test_show_value_false_keeps_results(make):
    env = make(backend="notebook", results=True, show_value=False)
    env.reset()
    stdout, _, _, info = run(env, "display(1)\n2")
    assert stdout == "1\n"
    assert [result.text for result in info["results"]] == ["1", "2"]


def test_timeout_with_results_keeps_variables(make):
    env = make(backend="notebook", results=True, step_timeout=2)
    env.reset()
    run(env, "x = 1")
    stdout, stderr, exit_code, info = run(env, "print('begun')\nwhile True: pass")
    assert (stdout, exit_code, info["outcome"], info["state_lost"]) == ("begun\n", 124, "timeout", False)
    assert "KeyboardInterrupt" in stderr
    assert stderr.endswith("variables are kept]\n")


def test_floods_with_results_respect_output_limit(make):
    env = make(backend="notebook", results=True, max_output_chars=1000)
    env.reset()
    stdout, stderr, _, info = run(env, "import sys\nprint('o' * 10**6)\nprint('e' * 10**6, file=sys.stderr)\n'v' * 10**6")
    assert len(stdout) <= 1000
    assert len(stderr) <= 1000
    assert "characters cut" in stdout
    assert len(info["results"][0].text) <= 1_100_000


@pytest.mark.parametrize("backend", ["python", "notebook"])
def test_reset_files_exist_for_one_episode(make, backend):
    env = make(backend=backend)
    env.reset(options={"files": {"a.txt": "é\n", "d/e/b.bin": bytes(range(256)), "empty": ""}})
    code = "import os\nopen('a.txt').read(), open('d/e/b.bin', 'rb').read() == bytes(range(256)), sorted(os.listdir())"
    assert run(env, code)[0] == "('é\\n', True, ['a.txt', 'd', 'empty'])\n"
    env.reset()
    assert run(env, "import os\nos.listdir()")[0] == "[]\n"


@pytest.mark.parametrize("files", [["a"], {"a": 1}, {1: "a"}, "a"])
def test_invalid_files_option_is_refused(make, files):
    with pytest.raises(ConfigurationError, match="files"):
        make().reset(options={"files": files})


@pytest.mark.parametrize("path", ["../x", "/etc/x", ".", "", "a/../../x", "nul\0"])
def test_file_paths_outside_workspace_are_refused(make, path):
    env = make()
    with pytest.raises(ConfigurationError):
        env.reset(options={"files": {path: "x"}})
    env.reset()
    assert run(env, "1")[0] == "1\n"


def test_unknown_backend_is_refused(make):
    for backend in ("nope", "", 5, "Python"):
        with pytest.raises(ConfigurationError, match="backend"):
            CodingEnv(backend=backend)
        if isinstance(backend, str):
            with pytest.raises(ConfigurationError, match="backend"):
                make(backend=backend)


def test_pool_backend_is_session_default():
    with SandboxPool(1, provider="local", preload=(), backend="notebook") as pool:
        env = CodingEnv(pool=pool, screen=None)
        env.reset()
        assert run(env, "!echo 1")[0] == "1\n"
        env.close()


def test_sessions_with_different_backends_share_sandbox(make):
    envs = [make(backend=backend) for backend in ("python", "notebook", None)]
    for env in envs:
        env.reset()
        run(env, "x = 1")
    assert [run(env, "!echo 1")[2] for env in envs] == [1, 0, 1]
    for env in envs:
        env.reset()
        assert run(env, "x")[2] == 1


def test_vector_environment_returns_results():
    env = CodingVectorEnv(2, backend="notebook", results=True, **FAST)
    try:
        env.reset(seed=1)
        obs, _, _, _, infos = env.step(["1", "!echo 2"])
        assert obs["stdout"] == ("1\n", "2\n")
        assert [[result.text for result in results] for results in infos["results"]] == [["1"], []]
    finally:
        env.close()


async def _async_run() -> tuple[str, list[str]]:
    async with AsyncCodingEnv(backend="notebook", results=True, **FAST) as env:
        await env.reset(options={"files": {"a": "x"}})
        obs, _, _, _, info = await env.step("open('a').read()")
        return obs["stdout"], [result.text for result in info["results"]]


def test_async_environment_returns_results():
    import asyncio

    assert asyncio.run(_async_run()) == ("'x'\n", ["'x'"])


@pytest.mark.parametrize("seed", [3])
def test_seed_applies_to_notebook_cells(make, seed):
    env = make(backend="notebook")
    seen = set()
    for _ in range(2):
        env.reset(seed=seed)
        seen.add(run(env, "import random\nrandom.random()")[0])
    assert len(seen) == 1
