"""Wrappers that change observations."""
