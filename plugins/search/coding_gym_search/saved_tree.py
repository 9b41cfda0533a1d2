"""``SavedTree``: the nodes of a search tree in a file, without the states that they were reached in.

The format is JSON Lines in UTF-8. The first line is the ``Header``, and each further line a ``SavedNode``, in the order of
their ids. Fields that have their default may be missing, and readers ignore fields that they do not know. ``version`` counts
incompatible changes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, overload

import msgspec

from coding_gym.errors import DatasetError
from coding_gym_server.protocol.errors import DECODING_ERRORS

__all__ = ["Header", "SavedNode", "SavedTree", "is_saved_tree", "load_tree"]

_FORMAT: Final = "coding-gym tree"
_VERSION: Final = 1
_PNG = b"\x89PNG\r\n\x1a\n"
_LONGEST_HEADER = 10_000

_Integer = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """First line of the file.

    Attributes:
        nodes: Number of nodes, and of the lines that follow.
        max_output_chars: Length in characters to which outputs were clamped.
        environment: Id of the environment; None if it is not registered.
        backend: Backend that executed the actions; None if it was not chosen, or unknown.
        format: ``"coding-gym tree"``.
        version: 1.
    """

    nodes: Annotated[int, msgspec.Meta(ge=1)]
    max_output_chars: _Count
    environment: str | None = None
    backend: str | None = None
    format: Literal["coding-gym tree"] = _FORMAT
    version: Literal[1] = _VERSION


class SavedNode(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Node of a saved tree: what a ``Node`` knows of its step and of the search, as data.

    Numbers that are not finite, which JSON does not have, are None. Lone surrogates in text are replaced with U+FFFD.

    Attributes:
        id: Position in the order of creation, 0 for the root.
        parent: Id of the node before the step, which is lower; None for the root.
        depth: Number of steps from the root.
        action: The step's action, whole: text, or the data that an action of another type consists of; None for the root.
        reward: The step's reward; 0 for the root.
        total_reward: Undiscounted sum of the rewards from the root to this node.
        terminated: Whether the step ended the episode in a terminal state.
        truncated: Whether the step cut the episode off.
        outcome: ``info["outcome"]`` of the step; None if it has none.
        solved: ``info["solved"]`` of the step; None if it has none.
        stdout: Standard output; None if the observation has none.
        stdout_chars: Length of the whole standard output in characters if it was clamped, otherwise None.
        stderr: Standard error; None if the observation has none.
        stderr_chars: Length of the whole standard error in characters if it was clamped, otherwise None.
        exit_code: Exit code; None if the observation has none.
        observation: Text of an observation that has no ``stdout``, clamped like outputs; None for others, and if there is none.
        picture: The observation's ``screenshot`` as a PNG file, base64 in the file; None if it has none, or if it is black.
        value: Sum of the backpropagated values of this node and all nodes below, discounted.
        visits: Number of values in that sum.
        score: Value of the last backpropagation from this node; None if there was none.
        prior: Weight of the action among its siblings'.
        untried: Number of proposed actions that were not expanded; None if none were proposed.
    """

    id: _Count
    parent: _Count | None = None
    depth: _Count = 0
    action: Any = None
    reward: float | None = 0.0
    total_reward: float | None = 0.0
    terminated: bool = False
    truncated: bool = False
    outcome: str | None = None
    solved: bool | None = None
    stdout: str | None = None
    stdout_chars: _Count | None = None
    stderr: str | None = None
    stderr_chars: _Count | None = None
    exit_code: _Integer | None = None
    observation: str | None = None
    picture: bytes | None = None
    value: float | None = 0.0
    visits: _Count = 0
    score: float | None = None
    prior: float | None = 1.0
    untried: _Count | None = None

    @property
    def ended(self) -> bool:
        """Whether the episode ended at this node."""
        return self.terminated or self.truncated

    @property
    def mean(self) -> float:
        """Mean of the backpropagated values; 0 without any, NaN if their sum is not finite."""
        if not self.visits:
            return 0.0
        return math.nan if self.value is None else self.value / self.visits


class SavedTree(Sequence[SavedNode]):
    """Read-only sequence of the nodes of a saved tree, ordered by id. ``load_tree`` creates it.

    Attributes:
        header: The file's header.
    """

    def __init__(self, header: Header, nodes: Sequence[SavedNode]) -> None:
        self.header = header
        self._nodes = tuple(nodes)
        self._children: list[list[SavedNode]] = [[] for _ in self._nodes]
        for node in self._nodes:
            if node.parent is not None:
                self._children[node.parent].append(node)

    @property
    def root(self) -> SavedNode:
        """Node of the state in which the tree was created."""
        return self._nodes[0]

    def children(self, node: SavedNode) -> list[SavedNode]:
        """Return the nodes of the steps from a node, in order of creation."""
        return list(self._children[node.id])

    def path(self, node: SavedNode) -> list[SavedNode]:
        """Return the nodes from the root to a node, both included."""
        nodes = [node]
        while (parent := nodes[-1].parent) is not None:
            nodes.append(self._nodes[parent])
        return nodes[::-1]

    def best(self) -> SavedNode:
        """Return the node with the highest score, the oldest of several; the root if no node has a score."""
        return max(self._nodes, key=lambda node: -math.inf if node.score is None else node.score)

    @overload
    def __getitem__(self, at: int) -> SavedNode: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[SavedNode]: ...
    def __getitem__(self, at: int | slice) -> SavedNode | Sequence[SavedNode]:
        return self._nodes[at]

    def __iter__(self) -> Iterator[SavedNode]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)

    def __repr__(self) -> str:
        return f"SavedTree({len(self)} nodes, environment={self.header.environment!r})"


def load_tree(path: str | Path) -> SavedTree:
    """Load a tree that ``BranchTree.save`` wrote.

    Raises:
        DatasetError: If the file is not a saved tree, or is damaged; the message has the number of the first damaged line.

    Example:
        >>> from coding_gym_search import BranchTree
        >>> observation, info = env.reset(seed=1)
        >>> with BranchTree(env, observation=observation, info=info) as tree:
        ...     child = tree.expand(tree.root, "3")
        ...     tree.save(path)
        >>> saved = load_tree(path)
        >>> [(node.action, node.total_reward) for node in saved.path(saved[1])]
        [(None, 0.0), ('3', -0.125)]
    """
    path = Path(path)
    with path.open("rb") as file:
        header = _header(path, file.readline(_LONGEST_HEADER))
        nodes: list[SavedNode] = []
        for number, line in enumerate(file, 2):
            try:
                nodes.append(_node(line, header, nodes))
            except (*DECODING_ERRORS, ValueError) as error:
                message = (
                    f"Line {number} of {path} is not a node of a saved tree: {error}. Restore the file, or save the tree again"
                )
                raise DatasetError(message) from error
    if len(nodes) < header.nodes:
        message = f"{path} ends after {len(nodes)} of {header.nodes} nodes: restore the file, or save the tree again"
        raise DatasetError(message)
    return SavedTree(header, nodes)


def is_saved_tree(path: Path) -> bool:
    """Return whether a file begins like one that ``BranchTree.save`` wrote, of any version."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        try:
            return _kind_decoder.decode(file.readline(_LONGEST_HEADER)).format == _FORMAT
        except DECODING_ERRORS:
            return False


class _Kind(msgspec.Struct):
    """The part of a header that all versions have."""

    format: str
    version: int


_kind_decoder = msgspec.json.Decoder(_Kind)
_header_decoder = msgspec.json.Decoder(Header)
_node_decoder = msgspec.json.Decoder(SavedNode)


def _header(path: Path, line: bytes) -> Header:
    try:
        return _header_decoder.decode(line)
    except DECODING_ERRORS as error:
        message = f"{path} is not a saved tree, or was written by another version of coding-gym: {error} in line 1"
        raise DatasetError(message) from error


def _node(line: bytes, header: Header, before: list[SavedNode]) -> SavedNode:
    """Decode a line, and check it against the lines before.

    Raises:
        ValueError: If it does not continue them.
    """
    node = _node_decoder.decode(line)
    if len(before) == header.nodes:
        reason = f"the header announces {header.nodes} nodes"
        raise ValueError(reason)
    if node.id != len(before):
        reason = f"expected the id {len(before)}, got {node.id}"
        raise ValueError(reason)
    if node.parent is None and before:
        reason = "expected a parent, because only the first node is a root"
        raise ValueError(reason)
    if node.parent is not None and node.parent >= node.id:
        reason = f"expected the parent to be an earlier node, got {node.parent}"
        raise ValueError(reason)
    depth = 0 if node.parent is None else before[node.parent].depth + 1
    if node.depth != depth:
        reason = f"expected the depth {depth}, one more than that of the parent, got {node.depth}"
        raise ValueError(reason)
    if node.picture is not None and not node.picture.startswith(_PNG):
        reason = "expected the picture to be a PNG file"
        raise ValueError(reason)
    return node
