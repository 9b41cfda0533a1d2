"""Launcher: starts the server and, in user namespaces, its zygotes."""
