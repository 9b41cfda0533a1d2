from __future__ import annotations

import doctest
import importlib
import pkgutil
from dataclasses import replace
from functools import partial

import gymnasium as gym
import pytest

import coding_gym.branching
import coding_gym.spaces
import coding_gym.wrappers
from coding_gym import CodingEnv, CodingVectorEnv

MODULES = [
    coding_gym.branching.environments,
    coding_gym.spaces,
    *(
        importlib.import_module(module.name)
        for module in pkgutil.walk_packages(coding_gym.wrappers.__path__, "coding_gym.wrappers.")
    ),
]
EXAMPLES = [
    example for module in MODULES for example in doctest.DocTestFinder(exclude_empty=True).find(module) if example.examples
]
SEE_PIXELS = {example.name for example in EXAMPLES if '["screenshot"]' in example.docstring}
NO_EXAMPLE_OF_ITS_OWN = {"CodeActions", "EpisodeSteps"}


@pytest.fixture
def in_the_pool(pool, monkeypatch):
    # The environments of the examples, but in the shared pool.
    spec = gym.registry["CodingEnv-v0"]
    pooled = replace(spec, entry_point=partial(CodingEnv, pool=pool), vector_entry_point=partial(CodingVectorEnv, pool=pool))
    monkeypatch.setitem(gym.registry, spec.id, pooled)


@pytest.mark.usefixtures("in_the_pool")
@pytest.mark.parametrize(
    "example",
    [pytest.param(example, marks=pytest.mark.screen) if example.name in SEE_PIXELS else example for example in EXAMPLES],
    ids=lambda example: example.name.removeprefix("coding_gym."),
)
def test_docstring_examples_are_correct(example):
    example.globs.setdefault("gym", gym)
    told = []
    doctest.DocTestRunner(verbose=False).run(example, out=told.append, clear_globs=False)
    assert not told, "".join(told)


def test_every_wrapper_and_term_has_example():
    with_example = {example.name for example in EXAMPLES}
    classes = {
        f"{module.__name__}.{name}"
        for module in MODULES
        if module.__name__.startswith("coding_gym.wrappers.")
        for name, value in vars(module).items()
        if isinstance(value, type) and value.__module__ == module.__name__ and not name.startswith("_")
    }
    missing = {name for name in classes - with_example if name.rpartition(".")[2] not in NO_EXAMPLE_OF_ITS_OWN}
    assert missing == {"coding_gym.wrappers.terms.base.Step"}
