"""Notebook backend: IPython in the worker process, without a kernel process or ZeroMQ."""

from __future__ import annotations

from coding_gym_server.worker.backends.notebook.backend import NotebookBackend

__all__ = ["NotebookBackend"]
