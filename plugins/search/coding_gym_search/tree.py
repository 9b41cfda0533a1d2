"""``BranchTree``: a tree over the states of one environment."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from coding_gym.branching import clone_state, restore_state
from coding_gym.errors import ConfigurationError
from coding_gym.plugins import check_count
from coding_gym_search.node import Node
from coding_gym_search.representation import tree_html
from coding_gym_search.saving import MAX_OUTPUT_CHARS, MIN_OUTPUT_CHARS, write_tree

__all__ = ["BranchTree", "Policy"]


class BranchTree:
    """A tree over the states of one environment, whose root is the current state.

    The environment must offer ``clone_state`` and ``restore_state`` (see ``CloneableEnv``), itself or inside of its wrappers.
    Steps go through the wrappers, and their state is restored as by ``coding_gym.branching.restore_state``: the counter of
    ``TimeLimit``, for example, counts the steps of each branch. While a tree is in use, nothing else may step or reset the
    environment.

    Each new node has a snapshot of its state, unless the episode ended there or ``max_snapshots`` forbids. The snapshot of a
    node can be released at any time, except the root's: the node is then reached again by running actions again, from the
    nearest ancestor that has a snapshot. This returns to the same state only if the environment is deterministic given its
    state. Wrappers see these steps like any others.

    Args:
        env: The environment, in the middle of an episode or after a reset.
        observation: The root's observation.
        info: The root's info; empty by default.
        discount: Factor by which a backpropagated value decreases per step towards the root, 0 to 1.
        max_snapshots: Largest number of live snapshots at any time, the root's included, at least 1; None for no limit. To stay
            within it, the tree releases snapshots in the order of ``prune``, and never that of the node being expanded.

    Raises:
        ConfigurationError: If the environment cannot clone its state, or an option is invalid.

    Example:
        A lock whose combination is 3, 1, 4, and whose observation has the number of right digits so far:

        >>> observation, info = env.reset(seed=1)
        >>> with BranchTree(env, observation=observation, info=info) as tree:
        ...     children = [tree.expand(tree.root, digit) for digit in "123"]
        ...     grandchild = tree.expand(children[2], "1")
        ...     tree.backpropagate(grandchild, 1.0)
        ...     [node.action for node in tree.path(tree.best())]
        [None, '3', '1']
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        *,
        observation: Any = None,
        info: dict[str, Any] | None = None,
        discount: float = 1.0,
        max_snapshots: int | None = None,
    ) -> None:
        if not 0 <= discount <= 1:
            message = f"Expected discount= to be 0 to 1, got {discount!r}"
            raise ConfigurationError(message)
        self._env = env
        self._discount = float(discount)
        self._max_snapshots = None if max_snapshots is None else check_count("max_snapshots", max_snapshots, 1)
        self._closed = False
        self._root = Node(
            index=0,
            parent=None,
            action=None,
            observation=observation,
            reward=0.0,
            terminated=False,
            truncated=False,
            info=info or {},
            total_reward=0.0,
            depth=0,
        )
        self._nodes = [self._root]
        # Node whose state the environment is in; None if that is unknown, because a call raised.
        self._current: Node | None = self._root
        self._live: set[Node] = set()
        self._clone(self._root)

    @property
    def root(self) -> Node:
        """Node of the state in which the tree was created."""
        return self._root

    @property
    def live_snapshots(self) -> int:
        """Number of snapshots that are not released."""
        return len(self._live)

    @property
    def nbytes(self) -> int:
        """Sum of the sizes of the live snapshots in bytes; snapshots without ``nbytes`` count as 0."""
        return sum(int(getattr(node.snapshot, "nbytes", 0)) for node in self._live)

    @property
    def max_snapshots(self) -> int | None:
        """Largest number of live snapshots, None for no limit. Setting a lower one releases snapshots as ``prune`` does."""
        return self._max_snapshots

    @max_snapshots.setter
    def max_snapshots(self, limit: int | None) -> None:
        self._max_snapshots = None if limit is None else check_count("max_snapshots", limit, 1)
        if limit is not None:
            self.prune(limit)

    def __iter__(self) -> Iterator[Node]:
        """Iterate over the nodes in order of creation: parents before their children."""
        return iter(tuple(self._nodes))

    def __len__(self) -> int:
        return len(self._nodes)

    def _repr_html_(self) -> str:
        return tree_html(self._root, count=len(self), snapshots=self.live_snapshots)

    def expand(self, node: Node, action: Any, *, prior: float = 1.0) -> Node:
        """Take an action in a node's state, and return the new child.

        Args:
            node: The node, whose episode has not ended. Its state is restored as by ``restore``.
            action: The action.
            prior: Weight of the action among its siblings', for ``puct``.

        Raises:
            ConfigurationError: If the node has ended or belongs to another tree, the tree is closed, or running the node's
                actions again does not reach it.
            Exception: What the environment raises. If only cloning the new state failed, the child is in the tree.
        """
        self._check_node(node)
        if node.ended:
            message = f"Expected a node whose episode continues, got {node!r}: expand its parent or reset the environment"
            raise ConfigurationError(message)
        self.restore(node)
        self._current = None
        observation, reward, terminated, truncated, info = self._env.step(action)
        child = Node(
            index=len(self._nodes),
            parent=node,
            action=action,
            observation=observation,
            reward=float(reward),
            terminated=bool(terminated),
            truncated=bool(truncated),
            info=info,
            total_reward=node.total_reward + float(reward),
            depth=node.depth + 1,
            prior=prior,
        )
        node.children.append(child)
        self._nodes.append(child)
        self._current = child
        if not child.ended:
            self._clone(child, spared=node)
        return child

    def restore(self, node: Node) -> None:
        """Bring the environment to a node's state.

        Nothing happens if it is there already. Otherwise the nearest ancestor that has a snapshot, or whose state the
        environment is in, is the origin (the node itself, at best): its state is restored if necessary, the actions from there
        to the node run again, and the node gets a snapshot if the limit permits.

        Raises:
            ConfigurationError: If the node belongs to another tree, the tree is closed, or an action that runs again ends the
                episode but did not before, or the reverse. Other differences are not detected.
        """
        self._check_node(node)
        if self._closed:
            message = "The tree is closed, and its snapshots are released: create a new one"
            raise ConfigurationError(message)
        missing: list[Node] = []
        origin = node
        while origin is not self._current and origin.snapshot is None:
            assert origin.parent is not None, "the root has a snapshot until the tree is closed"
            missing.append(origin)
            origin = origin.parent
        if origin is not self._current:
            assert origin.snapshot is not None
            self._current = None
            restore_state(self._env, origin.snapshot)
            self._current = origin
        for each in reversed(missing):
            self._rerun(each)
        if node.snapshot is None and not node.ended:
            self._clone(node)

    def select(self, policy: Policy) -> Node | None:
        """Return the node that a policy selects for expansion; None if it selects none.

        Args:
            policy: A function of the tree, such as ``highest_score`` or ``functools.partial(uct, exploration=0.5)``.

        Raises:
            ConfigurationError: If it returns anything but a node of this tree.
        """
        node = policy(self)
        if node is not None:
            self._check_node(node)
        return node

    def backpropagate(self, node: Node, value: float) -> None:
        """Add a value to a node and its ancestors, and a visit to each; the value becomes the node's ``score``.

        The ancestor that is k steps above gets ``discount ** k * value``. Rewards on the way are not added.

        Raises:
            ConfigurationError: If the value is not finite, or the node belongs to another tree.
        """
        self._check_node(node)
        if not math.isfinite(value):
            message = f"Expected the value of a node to be a finite number, got {value!r}"
            raise ConfigurationError(message)
        node.score = share = float(value)
        above: Node | None = node
        while above is not None:
            above.value += share
            above.visits += 1
            share *= self._discount
            above = above.parent

    def prune(self, keep: int) -> int:
        """Release snapshots until at most ``keep`` are live, and return the number of those released.

        The first to go are those of nodes whose proposed actions have all been tried; then those of nodes with the lowest mean
        values, where nodes without a visit have the highest; at equal means those of the lowest depth, which the fewest actions
        reach again. The root's is never released, and the nodes stay in the tree.

        Raises:
            ConfigurationError: If ``keep`` is not an integer of at least 1.
        """
        before = len(self._live)
        self._shrink(check_count("keep", keep, 1))
        return before - len(self._live)

    def path(self, node: Node) -> list[Node]:
        """Return the nodes from the root to a node, both included.

        Raises:
            ConfigurationError: If the node belongs to another tree.
        """
        self._check_node(node)
        nodes = [node]
        while nodes[-1].parent is not None:
            nodes.append(nodes[-1].parent)
        return nodes[::-1]

    def best(self) -> Node:
        """Return the node with the highest score, the oldest of several; the root if no node has a score."""
        return max(self._nodes, key=lambda node: -math.inf if node.score is None else node.score)

    def frontier(self) -> list[Node]:
        """Return the open nodes, in order of creation."""
        return [node for node in self._nodes if node.is_open]

    def leaves(self) -> list[Node]:
        """Return the nodes without children, in order of creation."""
        return [node for node in self._nodes if not node.children]

    def parents(self) -> NDArray[np.int64]:
        """Return the index of each node's parent, -1 for the root: int64 of shape (nodes,), as ``process_values`` takes it."""
        return np.array([-1 if node.parent is None else node.parent.index for node in self._nodes], dtype=np.int64)

    def save(self, path: str | Path, *, max_output_chars: int = MAX_OUTPUT_CHARS, include_pictures: bool = True) -> None:
        """Save the nodes as data, without states, for ``load_tree`` and ``coding-gym view``; also after ``close``.

        ``SavedNode`` describes what is kept, one line of JSON per node. An existing file is replaced.

        Args:
            path: Path of the file, such as ``search.tree.jsonl``.
            max_output_chars: Length to which outputs are clamped, in characters, at least 100.
            include_pictures: Whether to save screenshots.

        Raises:
            ConfigurationError: If ``max_output_chars`` is not an integer of at least 100.
            OSError: If the file cannot be written.
        """
        check_count("max_output_chars", max_output_chars, MIN_OUTPUT_CHARS)
        write_tree(
            Path(path),
            self,
            spec=self._env.spec,
            max_output_chars=max_output_chars,
            include_pictures=include_pictures,
        )

    def close(self) -> None:
        """Release all snapshots. The nodes remain readable; a second call has no effect.

        The environment stays open, in the state that it is in.
        """
        self._closed = True
        with ExitStack() as stack:
            for node in self._live.copy():
                stack.callback(self._release, node)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def _rerun(self, node: Node) -> None:
        self._current = None
        _, _, terminated, truncated, _ = self._env.step(node.action)
        if bool(terminated or truncated) != node.ended:
            message = (
                f"Expected the action of {node!r} to have the same effect when it runs again, but the episode "
                f"{'continues' if node.ended else 'ended'}: raise max_snapshots=, or make the environment deterministic"
            )
            raise ConfigurationError(message)
        self._current = node

    def _clone(self, node: Node, *, spared: Node | None = None) -> None:
        """Give a node, whose state the environment is in, a snapshot if the limit permits."""
        if self._max_snapshots is not None and node is not self._root:
            self._shrink(self._max_snapshots - 1, spared=spared)
            if len(self._live) >= self._max_snapshots:
                return
        node.snapshot = clone_state(self._env)
        self._live.add(node)

    def _shrink(self, most: int, *, spared: Node | None = None) -> None:
        excess = len(self._live) - most
        if excess > 0:
            candidates = (node for node in self._live if node is not self._root and node is not spared)
            for node in heapq.nsmallest(excess, candidates, key=_rank_for_keeping):
                self._release(node)

    def _release(self, node: Node) -> None:
        snapshot, node.snapshot = node.snapshot, None
        self._live.discard(node)
        if snapshot is not None:
            snapshot.release()

    def _check_node(self, node: Any) -> None:
        if not isinstance(node, Node) or node.index >= len(self._nodes) or self._nodes[node.index] is not node:
            message = f"Expected a node of this tree, got {node!r}"
            raise ConfigurationError(message)


Policy: TypeAlias = Callable[[BranchTree], Node | None]
"""Selects the node to expand next; None if there is none."""


def _rank_for_keeping(node: Node) -> tuple[bool, float, int, int]:
    return node.untried != [], node.mean if node.visits else math.inf, node.depth, node.index
