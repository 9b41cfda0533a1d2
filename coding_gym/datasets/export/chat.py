"""Export to JSON Lines of conversations, the format of supervised fine-tuning."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from coding_gym.datasets.dataset import Dataset
from coding_gym.datasets.episode import Episode
from coding_gym.datasets.export.conversation import conversation
from coding_gym.errors import DatasetError

__all__ = ["export_chat"]


def export_chat(
    dataset: Dataset, path: Path | str, *, only_solved: bool = False, system: str | None = None, metadata: bool = False
) -> int:
    """Write one conversation per line, ``{"messages": [{"role": ..., "content": ...}, ...]}``, and return their number.

    Episodes without actions are skipped.

    Args:
        dataset: Dataset to export.
        path: Output file; an existing file is replaced atomically when the new one is complete.
        only_solved: Whether to export solved episodes only.
        system: System prompt for episodes whose policy is not a chat model; a default prompt if None, no prompt if empty.
        metadata: Whether to add ``episode``, ``task_id``, ``reward`` and ``solved`` to each line.

    Raises:
        DatasetError: If no episode is exported, as none has an action or was solved, or none records whether it was solved.
    """
    target = Path(path)
    new = target.with_name(f".{target.name}.new")
    written, is_graded = 0, False
    try:
        with new.open("w", encoding="utf-8", newline="\n") as file:
            for episode in dataset.without_arrays():
                is_graded = is_graded or episode.solved is not None
                if len(episode.steps) == 1 or (only_solved and not episode.solved):
                    continue
                file.write(json.dumps(_line(episode, system, metadata=metadata), ensure_ascii=False) + "\n")
                written += 1
        if only_solved and not is_graded:
            message = (
                f"No episode of {dataset.path} says whether it was solved (info['solved']): collect from an environment with "
                "tests, such as CodingTask-v0, or leave only_solved out"
            )
            raise DatasetError(message)
        if not written:
            message = (
                f"No episode of {dataset.path} was solved: leave only_solved out"
                if only_solved and len(dataset)
                else f"There is no episode with an action in {dataset.path}"
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
