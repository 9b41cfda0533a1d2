"""Contexts that run code in one workspace: what is behind the code-interpreter API."""
