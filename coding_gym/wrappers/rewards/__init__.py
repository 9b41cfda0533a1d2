"""Wrappers that change rewards."""
