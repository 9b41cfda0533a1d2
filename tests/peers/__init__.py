"""Comparisons with other projects: ``python -m tests.peers`` in a checkout."""
