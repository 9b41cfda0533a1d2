"""Options are declared once: their keyword forms for type checkers match the declarations."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Sequence
from dataclasses import fields
from typing import get_type_hints

import pytest

from coding_gym.doors import Egress
from coding_gym.envs.coding_env import CodingEnv
from coding_gym.envs.gui_env import CodingEnvGUI
from coding_gym.envs.options import EnvKwargs, EnvOptions, split_options
from coding_gym.envs.task_env import CodingTaskEnv
from coding_gym.errors import ConfigurationError
from coding_gym.sandbox.config import SandboxConfig, SandboxKwargs


@pytest.mark.parametrize(("declaration", "keywords"), [(EnvOptions, EnvKwargs), (SandboxConfig, SandboxKwargs)])
def test_keywords_match_the_declaration(declaration, keywords):
    declared = {entry.name: get_type_hints(declaration)[entry.name] for entry in fields(declaration)}
    # Any sequence of names is accepted, and stored as a tuple.
    declared = {name: Sequence[str] if hint == tuple[str, ...] else hint for name, hint in declared.items()}
    # Both have it: the type of the value says whose it is.
    declared.pop("network")
    assert get_type_hints(keywords) == declared | ({"network": str | Egress | None} if keywords is SandboxKwargs else {})


def test_options_are_split_by_their_declarations():
    own, others = split_options({"screen": None, "mem": "1g", "step_timeout": 2}, CodingEnv, CodingEnv)
    assert own == {"screen": None, "step_timeout": 2}
    assert others == {"mem": "1g"}


@pytest.mark.parametrize("make", [CodingEnv, CodingEnvGUI, lambda **options: CodingTaskEnv(suite="basics", **options)])
def test_unknown_option_is_refused(make):
    with pytest.raises(ConfigurationError, match="stepp_timeout"):
        make(stepp_timeout=3)


def test_pickling_keeps_all_arguments():
    env = CodingEnvGUI(settle=0.25, step_timeout=3, provider="local", mem="256m")
    for twin in (pickle.loads(pickle.dumps(env)), copy.deepcopy(env)):
        assert twin._settle == 0.25
        assert twin.settings == env.settings
        assert twin.config == env.config
        assert twin.settings.on_idle == "return"


def test_pickling_keeps_suite_of_task_environment():
    env = CodingTaskEnv(suite="basics", max_turns=3, provider="local")
    twin = pickle.loads(pickle.dumps(env))
    assert len(twin.suite) == len(env.suite)
    assert twin._max_turns == 3
