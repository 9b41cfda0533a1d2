"""Nodes of a search tree."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from coding_gym.branching import WrappedSnapshot

__all__ = ["Node"]


@dataclass(eq=False, kw_only=True, slots=True)
class Node:
    """A state of an environment and the step that led to it. ``BranchTree.expand`` creates nodes.

    Attributes:
        index: Position in the order of creation, 0 for the root; a parent's is lower than its children's.
        parent: Node of the state before the step; None for the root.
        action: The step's action; None for the root.
        observation: What the step returned; what ``BranchTree`` was given, for the root.
        reward: The step's reward; 0 for the root.
        terminated: Whether the step ended the episode in a terminal state.
        truncated: Whether the step cut the episode off.
        info: The step's info.
        total_reward: Undiscounted sum of the rewards from the root to this node.
        depth: Number of steps from the root.
        snapshot: State of the environment and its wrappers; None if the episode ended, the limit on snapshots did not permit
            one, or it was released.
        children: Nodes of the steps from this state, in order of creation.
        untried: Proposed actions that have not been expanded; None if none have been proposed. The drivers write it.
        prior: Weight of the action among its siblings', for ``puct``; at least 0.
        score: Value of the last backpropagation from this node; None if there was none.
        value: Sum of the backpropagated values of this node and all nodes below, discounted.
        visits: Number of values in that sum.
    """

    index: int
    parent: Node | None = field(repr=False)
    action: Any
    observation: Any = field(repr=False)
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any] = field(repr=False)
    total_reward: float
    depth: int
    snapshot: WrappedSnapshot | None = field(default=None, repr=False)
    children: list[Node] = field(default_factory=list, repr=False)
    untried: list[str] | None = field(default=None, repr=False)
    prior: float = field(default=1.0, repr=False)
    score: float | None = None
    value: float = 0.0
    visits: int = 0

    @property
    def ended(self) -> bool:
        """Whether the episode ended at this node, so that it cannot be expanded."""
        return self.terminated or self.truncated

    @property
    def mean(self) -> float:
        """Mean of the backpropagated values; 0 without any."""
        return self.value / self.visits if self.visits else 0.0

    @property
    def is_open(self) -> bool:
        """Whether a search may still expand this node: it has untried actions, or neither proposed actions nor children."""
        if self.ended:
            return False
        return not self.children if self.untried is None else bool(self.untried)
