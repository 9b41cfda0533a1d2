"""Statements of contest problems, put together from their parts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from coding_gym_server.languages import PYTHON

__all__ = ["in_language", "statement"]


def in_language(prompt: str, language: str) -> str:
    """Return a prompt that says in which language to write the program, unless it is Python."""
    return prompt if language == PYTHON else f"{prompt}\n\nWrite the program in {language}."


def statement(
    title: str, parts: Mapping[str, str], examples: Iterable[tuple[str, str]], *, input_file: str = "", output_file: str = ""
) -> str:
    """Return the text of a problem: its parts, and then its examples.

    Args:
        title: The title.
        parts: Headings, empty for none, and texts; those without text are left out.
        examples: Inputs and outputs.
        input_file: File that programs read; standard input if empty.
        output_file: File that programs write; standard output if empty.
    """
    found = [title.strip()] if title.strip() else []
    found += ["\n\n".join(filter(None, (name, text.strip()))) for name, text in parts.items() if text.strip()]
    if input_file or output_file:
        found.append(f"Read {input_file or 'standard input'} and write {output_file or 'standard output'}.")
    for given, wanted in examples:
        found.append(f"Example input\n\n{given.strip()}\n\nExample output\n\n{wanted.strip()}")
    return "\n\n".join(found)
