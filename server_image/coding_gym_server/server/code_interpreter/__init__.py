"""Contexts, languages and messages of the code-interpreter API."""
