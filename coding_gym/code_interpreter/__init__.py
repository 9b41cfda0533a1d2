"""Python client of the code-interpreter API: code, contexts and files of one workspace."""

from __future__ import annotations

from coding_gym.client.files import FileEntry, Files
from coding_gym.code_interpreter.client import CodeInterpreter, Context, Contexts
from coding_gym.code_interpreter.execution import Execution, ExecutionError

__all__ = ["CodeInterpreter", "Context", "Contexts", "Execution", "ExecutionError", "FileEntry", "Files"]
