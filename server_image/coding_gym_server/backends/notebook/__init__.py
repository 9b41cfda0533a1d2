"""Notebook cells: IPython in the worker itself, without a kernel process and without ZeroMQ."""

from __future__ import annotations

from coding_gym_server.backends.notebook.backend import NotebookBackend

__all__ = ["NotebookBackend"]
