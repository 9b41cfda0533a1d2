"""Connections to one server."""
