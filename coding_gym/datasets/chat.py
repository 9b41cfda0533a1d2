"""Export to JSON Lines of conversations, as fine-tuning takes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from coding_gym.datasets.conversation import conversation
from coding_gym.datasets.dataset import Dataset
from coding_gym.datasets.records import Episode
from coding_gym.errors import DatasetError

__all__ = ["export_chat"]


def export_chat(
    dataset: Dataset, path: Path | str, *, only_solved: bool = False, system: str | None = None, metadata: bool = False
) -> int:
    """Write one conversation a line, ``{"messages": [{"role": ..., "content": ...}, ...]}``; returns how many.

    Episodes without an action are left out.

    Args:
        dataset: The dataset.
        path: The file; it is replaced when the new one is complete.
        only_solved: Whether to leave out episodes that do not say that they were solved.
        system: The system prompt of episodes whose policy had none; one that suits if None, none at all if empty.
        metadata: Whether lines also have ``episode``, ``task_id``, ``reward`` and ``solved``.

    Raises:
        DatasetError: Only solved episodes are wanted, and none says whether it was.
    """
    target = Path(path)
    new = target.with_name(f".{target.name}.new")
    written, said = 0, False
    try:
        with new.open("w", encoding="utf-8", newline="\n") as file:
            for episode in dataset.without_arrays():
                said = said or episode.solved is not None
                if len(episode.steps) == 1 or (only_solved and not episode.solved):
                    continue
                file.write(json.dumps(_line(episode, system, metadata=metadata), ensure_ascii=False) + "\n")
                written += 1
        if only_solved and not said:
            message = (
                f"No episode of {dataset.path} says whether it was solved (info['solved']): collect from an environment with "
                "tests, such as CodingTask-v0, or leave only_solved out"
            )
            raise DatasetError(message)
        new.replace(target)
    finally:
        new.unlink(missing_ok=True)
    return written


def _line(episode: Episode, system: str | None, *, metadata: bool) -> dict[str, Any]:
    line: dict[str, Any] = {"messages": conversation(episode, system=system)}
    if metadata:
        line |= {
            "episode": episode.index,
            "task_id": episode.task_id,
            "reward": episode.total_reward,
            "solved": episode.solved,
        }
    return line
