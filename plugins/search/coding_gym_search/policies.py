"""Selection policies: functions that choose the node of a tree to expand next.

Fix their options with ``functools.partial``: ``tree.select(partial(uct, exploration=0.5))``.
"""

from __future__ import annotations

import math

import numpy as np

from coding_gym.errors import ConfigurationError
from coding_gym_search.node import Node
from coding_gym_search.tree import BranchTree

__all__ = ["epsilon_greedy", "highest_score", "puct", "random_leaf", "uct"]


def uct(tree: BranchTree, *, exploration: float = math.sqrt(2)) -> Node:
    """Descend from the root to the child with the highest upper confidence bound, until a node is open or has no children.

    The bound of a child with mean Q and n visits, of a parent with N, is ``Q + exploration * sqrt(ln(N) / n)``; children
    without visits go first, in order of creation (L. Kocsis, C. Szepesvari, "Bandit Based Monte-Carlo Planning", ECML 2006,
    where ``exploration`` is ``2 * C_p``).

    Args:
        tree: The tree.
        exploration: Weight of the second term. The default, with ``C_p = 1 / sqrt(2)``, is for values of 0 to 1; scale it with
            the range of the values.

    Returns:
        An open node, or a node that cannot be expanded because its episode ended or nothing was proposed for it.
    """
    node = tree.root
    while node.children and not node.is_open:
        log_visits = math.log(max(node.visits, 1))
        node = max(
            node.children,
            key=lambda child: child.mean + exploration * math.sqrt(log_visits / child.visits) if child.visits else math.inf,
        )
    return node


def puct(tree: BranchTree, *, exploration: float = 1.25) -> Node:
    """Descend from the root to the child with the highest PUCT bound, until a node is open or has no children.

    The bound of a child with mean Q (0 without visits), n visits and prior P is ``Q + exploration * P * sqrt(N) / (1 + n)``,
    where N is the number of visits of all siblings, itself included: the rule of AlphaZero (D. Silver et al. 2017, arXiv
    1712.01815) with a constant ``exploration``. P is ``Node.prior`` divided by its sum over the siblings, hence uniform unless
    priors were set. Unlike AlphaZero, which applies the rule to actions that were never taken, ``mcts`` takes each proposed
    action once before the rule decides.

    Args:
        tree: The tree.
        exploration: Weight of the second term; scale it with the range of the values.

    Returns:
        An open node, or a node that cannot be expanded because its episode ended or nothing was proposed for it.
    """
    node = tree.root
    while node.children and not node.is_open:
        # Without any prior above 0, the means decide.
        weight = exploration / (sum(child.prior for child in node.children) or 1.0)
        weight *= math.sqrt(sum(child.visits for child in node.children))
        node = max(node.children, key=lambda child: child.mean + weight * child.prior / (1 + child.visits))
    return node


def highest_score(tree: BranchTree) -> Node | None:
    """Return the open node with the highest score, the oldest of several; None if none is open.

    Nodes without a score come last.
    """
    return max(tree.frontier(), key=lambda node: -math.inf if node.score is None else node.score, default=None)


def random_leaf(tree: BranchTree, *, rng: np.random.Generator) -> Node | None:
    """Return an open node, each with equal probability; None if none is open.

    Args:
        tree: The tree.
        rng: Random number generator.
    """
    nodes = tree.frontier()
    return nodes[int(rng.integers(len(nodes)))] if nodes else None


def epsilon_greedy(tree: BranchTree, *, rng: np.random.Generator, epsilon: float = 0.1) -> Node | None:
    """Return the node of ``random_leaf`` with probability ``epsilon``, otherwise that of ``highest_score``.

    Args:
        tree: The tree.
        rng: Random number generator.
        epsilon: The probability, 0 to 1.

    Raises:
        ConfigurationError: If ``epsilon`` is not 0 to 1.
    """
    if not 0 <= epsilon <= 1:
        message = f"Expected epsilon= to be 0 to 1, got {epsilon!r}"
        raise ConfigurationError(message)
    return random_leaf(tree, rng=rng) if rng.random() < epsilon else highest_score(tree)
