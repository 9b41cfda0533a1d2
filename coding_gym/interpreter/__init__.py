"""The code-interpreter API from Python: code, contexts and files of one workspace."""

from __future__ import annotations

from coding_gym.interpreter.execution import Execution, ExecutionError
from coding_gym.interpreter.files import FileEntry, Files
from coding_gym.interpreter.interpreter import CodeInterpreter, Context, Contexts

__all__ = ["CodeInterpreter", "Context", "Contexts", "Execution", "ExecutionError", "FileEntry", "Files"]
