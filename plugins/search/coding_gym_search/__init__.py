"""Tree search over the states of an environment that can be cloned: trees, policies, drivers, saved trees, and advantages."""

from __future__ import annotations

from coding_gym.branching import CloneableEnv, StateSnapshot
from coding_gym_search.advantages import (
    inter_tree_advantages,
    intra_tree_advantages,
    process_values,
    tree_grpo_advantages,
)
from coding_gym_search.drivers import best_first, mcts
from coding_gym_search.node import Node
from coding_gym_search.policies import epsilon_greedy, highest_score, puct, random_leaf, uct
from coding_gym_search.saved_tree import SavedNode, SavedTree, load_tree
from coding_gym_search.tree import BranchTree, Policy

__all__ = [
    "BranchTree",
    "CloneableEnv",
    "Node",
    "Policy",
    "SavedNode",
    "SavedTree",
    "StateSnapshot",
    "best_first",
    "epsilon_greedy",
    "highest_score",
    "inter_tree_advantages",
    "intra_tree_advantages",
    "load_tree",
    "mcts",
    "process_values",
    "puct",
    "random_leaf",
    "tree_grpo_advantages",
    "uct",
]
