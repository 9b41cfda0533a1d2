"""Backends, which execute cells."""
