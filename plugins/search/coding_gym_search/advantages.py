"""Advantages and process values from trees whose leaves have rewards: Tree-GRPO and Monte-Carlo estimates."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coding_gym.errors import ConfigurationError

__all__ = ["inter_tree_advantages", "intra_tree_advantages", "process_values", "tree_grpo_advantages"]

_EPSILON = 1e-6


def intra_tree_advantages(rewards: ArrayLike, trees: ArrayLike) -> NDArray[np.float64]:
    """Return the rewards of leaves, standardized within their trees.

    The advantage of a leaf is ``(reward - mean) / (std + 1e-6)`` over the leaves of its tree (Y. Ji et al. 2025, "Tree Search
    for LLM Agent Reinforcement Learning", arXiv 2509.21240). As in the authors' implementation, std is the sample standard
    deviation, with n - 1 in the denominator. If all rewards of a tree are equal, or the tree has one leaf, the advantages are
    exactly 0; the authors' implementation returns the reward itself for a single leaf.

    Args:
        rewards: Outcome reward of each leaf: finite numbers of shape (leaves,).
        trees: Label of each leaf's tree, numbers or strings, of shape (leaves,).

    Returns:
        float64 of shape (leaves,), whose mean is 0 in each tree. A leaf's advantage applies to every step from the root to it.

    Raises:
        ConfigurationError: If a shape differs or a reward is not finite.

    Example:
        >>> intra_tree_advantages([1, 0, 1, 1], ["a", "a", "b", "b"]).round(3).tolist()
        [0.707, -0.707, 0.0, 0.0]
    """
    leaf_rewards = _leaf_rewards(rewards)
    return _standardize(leaf_rewards, _groups("trees", trees, leaf_rewards))


def inter_tree_advantages(rewards: ArrayLike, prompts: ArrayLike | None = None) -> NDArray[np.float64]:
    """Return the rewards of leaves, standardized over all trees of their prompts.

    The formula is that of ``intra_tree_advantages``, but over the leaves of all trees of a prompt (arXiv 2509.21240).

    Args:
        rewards: Outcome reward of each leaf: finite numbers of shape (leaves,).
        prompts: Label of each leaf's prompt, of shape (leaves,); by default, all have the same.

    Returns:
        float64 of shape (leaves,), whose mean is 0 for each prompt.

    Raises:
        ConfigurationError: If a shape differs or a reward is not finite.

    Example:
        >>> inter_tree_advantages([1, 0, 1, 1]).round(3).tolist()
        [0.5, -1.5, 0.5, 0.5]
    """
    leaf_rewards = _leaf_rewards(rewards)
    return _standardize(leaf_rewards, _prompt_groups(prompts, leaf_rewards))


def tree_grpo_advantages(rewards: ArrayLike, trees: ArrayLike, prompts: ArrayLike | None = None) -> NDArray[np.float64]:
    """Return the advantages of Tree-GRPO: the unweighted sum of the intra-tree and the inter-tree ones (arXiv 2509.21240).

    Args:
        rewards: Outcome reward of each leaf: finite numbers of shape (leaves,).
        trees: Label of each leaf's tree, of shape (leaves,); trees of different prompts have different labels.
        prompts: Label of each leaf's prompt, of shape (leaves,); by default, all have the same.

    Returns:
        float64 of shape (leaves,), whose mean is 0 for each prompt.

    Raises:
        ConfigurationError: If a shape differs, a reward is not finite, or a tree has several prompts.

    Example:
        >>> tree_grpo_advantages([1, 0, 1, 1], ["a", "a", "b", "b"]).round(3).tolist()
        [1.207, -2.207, 0.5, 0.5]
    """
    leaf_rewards = _leaf_rewards(rewards)
    tree_of, prompt_of = _groups("trees", trees, leaf_rewards), _prompt_groups(prompts, leaf_rewards)
    if len(set(zip(tree_of.tolist(), prompt_of.tolist(), strict=True))) != len(np.unique(tree_of)):
        message = "Expected the leaves of each tree to have one prompt: give the trees of different prompts different labels"
        raise ConfigurationError(message)
    return _standardize(leaf_rewards, tree_of) + _standardize(leaf_rewards, prompt_of)


def process_values(parents: ArrayLike, rewards: ArrayLike) -> NDArray[np.float64]:
    """Return the value of each node of a tree: the mean reward of the leaves below it; of a leaf, its own reward.

    With rewards of 0 or 1, a node's value is the fraction of its sampled completions that succeed: the soft estimate of
    Math-Shepherd (P. Wang et al. 2023, arXiv 2312.08935). That is an unbiased Monte-Carlo estimate of the policy's success
    probability if the leaves are independent completions from the node; in a tree, each leaf has the same weight, however the
    branches above it were chosen.

    Args:
        parents: Index of each node's parent, -1 for a root: integers of shape (nodes,), each less than the node's own index. A
            ``BranchTree`` returns them as ``parents()``; several trees may be concatenated with an offset.
        rewards: Outcome reward of each node, of shape (nodes,); only those of leaves are read, which must be finite.

    Returns:
        float64 of shape (nodes,).

    Raises:
        ConfigurationError: If a shape differs, a parent does not precede its child, or a leaf's reward is not finite.

    Example:
        >>> process_values([-1, 0, 0, 1, 1], [0, 0, 1, 1, 0]).round(3).tolist()
        [0.667, 0.5, 1.0, 1.0, 0.0]
    """
    parent_of: NDArray[Any] = np.asarray(parents)
    totals = np.array(rewards, dtype=np.float64)
    nodes = np.arange(len(parent_of)) if parent_of.ndim == 1 else None
    if nodes is None or totals.shape != parent_of.shape:
        message = f"Expected one parent and one reward per node, got arrays of shapes {parent_of.shape} and {totals.shape}"
        raise ConfigurationError(message)
    if len(nodes) and (parent_of.dtype.kind not in "iu" or (parent_of < -1).any() or (parent_of >= nodes).any()):
        message = "Expected parents= to be integers, each the index of an earlier node, or -1 for a root"
        raise ConfigurationError(message)
    is_leaf = np.isin(nodes, parent_of, invert=True)
    _check_finite(totals[is_leaf])
    totals[~is_leaf] = 0.0
    leaves = is_leaf.astype(np.int64)
    for node in nodes[::-1]:
        if parent_of[node] >= 0:
            totals[parent_of[node]] += totals[node]
            leaves[parent_of[node]] += leaves[node]
    values: NDArray[np.float64] = totals / leaves
    return values


def _standardize(rewards: NDArray[np.float64], group_of: NDArray[np.int64]) -> NDArray[np.float64]:
    advantages = np.zeros_like(rewards)
    for group in np.unique(group_of):
        members = group_of == group
        own = rewards[members]
        # Equal rewards are left at 0: the rounding error of a large mean, divided by epsilon alone, would not be small.
        if own.min() < own.max():
            advantages[members] = (own - own.mean()) / (own.std(ddof=1) + _EPSILON)
    return advantages


def _leaf_rewards(rewards: ArrayLike) -> NDArray[np.float64]:
    array = np.asarray(rewards, dtype=np.float64)
    if array.ndim != 1:
        message = f"Expected rewards= to have shape (leaves,), got {array.shape}"
        raise ConfigurationError(message)
    _check_finite(array)
    return array


def _check_finite(rewards: NDArray[np.float64]) -> None:
    if not np.isfinite(rewards).all():
        message = "Expected the rewards of leaves to be finite numbers: leave out leaves that have none"
        raise ConfigurationError(message)


def _prompt_groups(prompts: ArrayLike | None, rewards: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.zeros(len(rewards), dtype=np.int64) if prompts is None else _groups("prompts", prompts, rewards)


def _groups(name: str, labels: ArrayLike, rewards: NDArray[np.float64]) -> NDArray[np.int64]:
    array: NDArray[Any] = np.asarray(labels)
    if array.shape != rewards.shape:
        message = f"Expected {name}= to have one label per reward, shape {rewards.shape}, got {array.shape}"
        raise ConfigurationError(message)
    return np.unique(array, return_inverse=True)[1].astype(np.int64)
