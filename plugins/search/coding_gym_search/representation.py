"""Representation of search trees in notebooks."""

from __future__ import annotations

from coding_gym.plugins import Html, caption, clip, colored, document, element
from coding_gym_search.node import Node

__all__ = ["tree_html"]

_MAX_NODES = 100
_MAX_DEPTH = 30
_ACTION_CHARS = 100


def tree_html(root: Node, *, count: int, snapshots: int) -> Html:
    """Return a tree as nested lists of its first nodes, in order of creation.

    Args:
        root: Its root.
        count: Number of its nodes.
        snapshots: Number of its live snapshots.
    """
    more = caption(f"... and {count - _MAX_NODES} more nodes") if count > _MAX_NODES else ""
    summary = caption(element("b", "BranchTree"), f": {count} nodes, {snapshots} snapshots")
    return document(summary, element("ul", _node_html(root)), more)


def _node_html(node: Node) -> Html:
    shown = [child for child in node.children if child.index < _MAX_NODES]
    if node.depth >= _MAX_DEPTH and shown:
        below: Html = caption("...")
    else:
        below = element("ul", *map(_node_html, shown)) if shown else Html("")
    action = "root" if node.parent is None else clip(str(node.action), _ACTION_CHARS)
    facts = f" reward {node.total_reward:g}"
    if node.visits:
        facts += f", {node.visits} visits, mean {node.mean:.3g}"
    end = colored(" ended", is_good=node.terminated) if node.ended else ""
    return element("li", element("code", action), facts, end, below)
