"""Wrappers that change actions."""
