"""Python client of the code-interpreter API: code, contexts and files of one workspace."""

from __future__ import annotations

from coding_gym.code_interpreter.client import CodeInterpreter, Context, Contexts
from coding_gym.code_interpreter.execution import Execution, ExecutionError
from coding_gym.code_interpreter.files import FileEntry, Files

__all__ = ["CodeInterpreter", "Context", "Contexts", "Execution", "ExecutionError", "FileEntry", "Files"]
