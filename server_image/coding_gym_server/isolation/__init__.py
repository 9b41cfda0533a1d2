"""Isolation of a session's processes from the rest of the sandbox."""
