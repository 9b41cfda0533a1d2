from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import coding_gym_search
from tests.support.lock import CombinationLock

EXAMPLES = [
    example
    for module in pkgutil.iter_modules(coding_gym_search.__path__, "coding_gym_search.")
    for example in doctest.DocTestFinder(exclude_empty=True).find(importlib.import_module(module.name))
    if example.examples
]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name.removeprefix("coding_gym_search."))
def test_docstring_examples_are_correct(example, tmp_path):
    example.globs |= {"env": CombinationLock(), "path": tmp_path / "search.tree.jsonl"}
    told = []
    doctest.DocTestRunner(verbose=False).run(example, out=told.append, clear_globs=False)
    assert not told, "".join(told)


def test_trees_drivers_and_advantages_have_examples():
    names = {example.name.rpartition(".")[2] for example in EXAMPLES}
    advantages = {"inter_tree_advantages", "intra_tree_advantages", "process_values", "tree_grpo_advantages"}
    assert names == {"BranchTree", "best_first", "load_tree", "mcts", *advantages}
