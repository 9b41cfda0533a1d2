"""Search drivers: best-first search and Monte-Carlo tree search."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from coding_gym_search.node import Node
from coding_gym_search.policies import highest_score, uct
from coding_gym_search.tree import BranchTree, Policy

__all__ = ["best_first", "mcts"]


def best_first(
    tree: BranchTree,
    propose: Callable[[Node], Iterable[str]],
    evaluate: Callable[[Node], float],
    *,
    expansions: int,
    policy: Policy = highest_score,
    max_snapshots: int | None = None,
    target: float | None = None,
) -> Node:
    """Search best-first, and return the node with the highest score.

    Repeatedly, the policy selects an open node, and all actions that ``propose`` gives for it are expanded and evaluated. The
    search ends when no node is open, or the budget is spent; another call then continues it.

    Args:
        tree: The tree, which may have been searched before. Its root is not evaluated.
        propose: Function that returns the candidate actions of a node, a finite number. It is called at most once per node.
        evaluate: Function that returns the value of a new node, a finite number.
        expansions: Largest number of actions to expand. Actions that run again to reach a node do not count.
        policy: What selects a node; the open node with the highest score by default.
        max_snapshots: Sets the tree's ``max_snapshots``; None leaves it.
        target: Score at which the search stops; None to search on regardless of scores.

    Raises:
        ConfigurationError: If a value is not finite, or the limit is invalid.

    Example:
        >>> observation, info = env.reset(seed=1)
        >>> with BranchTree(env, observation=observation, info=info) as tree:
        ...     best = best_first(tree, lambda node: "0123456789", lambda node: node.info["right"] / 3, expansions=100)
        ...     [node.action for node in tree.path(best)], best.terminated
        ([None, '3', '1', '4'], True)
    """
    if max_snapshots is not None:
        tree.max_snapshots = max_snapshots
    while expansions > 0 and (node := tree.select(policy)) is not None and node.is_open:
        for _ in range(min(expansions, len(_untried(node, propose)))):
            child = _expand_next(tree, node)
            expansions -= 1
            tree.backpropagate(child, evaluate(child))
            if _reaches(child, target):
                return tree.best()
    return tree.best()


def mcts(
    tree: BranchTree,
    propose: Callable[[Node], Iterable[str]],
    evaluate: Callable[[Node], float],
    *,
    simulations: int,
    policy: Policy = uct,
    max_snapshots: int | None = None,
    target: float | None = None,
) -> Node:
    """Search by Monte-Carlo tree search, and return the node with the highest score.

    In each simulation, the policy selects a node, the next of the actions that ``propose`` gives for it is expanded, and the
    value of the new node is backpropagated. If the selected node cannot be expanded, its own value is backpropagated again.
    ``evaluate`` takes the place of a playout (C. Browne et al., "A Survey of Monte Carlo Tree Search Methods", IEEE TCIAIG
    2012, describes the scheme); it must leave the tree's environment alone.

    Args:
        tree: The tree, which may have been searched before. Its root is not evaluated unless nothing is proposed for it.
        propose: Function that returns the candidate actions of a node, a finite number. It is called at most once per node.
        evaluate: Function that returns the value of a new node, a finite number; 0 to 1 for the default policy. It may set
            ``node.prior``, for ``puct``.
        simulations: Number of simulations, each of which expands at most one action.
        policy: What selects a node, such as ``uct``, ``puct`` or ``functools.partial(uct, exploration=0.5)``.
        max_snapshots: Sets the tree's ``max_snapshots``; None leaves it.
        target: Score at which the search stops; None to search on regardless of scores.

    Raises:
        ConfigurationError: If a value is not finite, or the limit is invalid.

    Example:
        >>> observation, info = env.reset(seed=1)
        >>> with BranchTree(env, observation=observation, info=info) as tree:
        ...     best = mcts(tree, lambda node: "1234", lambda node: node.info["right"] / 3, simulations=200, target=1.0)
        ...     [node.action for node in tree.path(best)], best.terminated
        ([None, '3', '1', '4'], True)
    """
    if max_snapshots is not None:
        tree.max_snapshots = max_snapshots
    for _ in range(simulations):
        node = tree.select(policy)
        if node is None:
            break
        if not node.ended and _untried(node, propose):
            node = _expand_next(tree, node)
        tree.backpropagate(node, evaluate(node) if node.score is None else node.score)
        if _reaches(node, target):
            break
    return tree.best()


def _untried(node: Node, propose: Callable[[Node], Iterable[str]]) -> list[str]:
    if node.untried is None:
        node.untried = list(propose(node))
    return node.untried


def _expand_next(tree: BranchTree, node: Node) -> Node:
    assert node.untried
    child = tree.expand(node, node.untried[0])
    del node.untried[0]
    return child


def _reaches(node: Node, target: float | None) -> bool:
    return target is not None and node.score is not None and node.score >= target
