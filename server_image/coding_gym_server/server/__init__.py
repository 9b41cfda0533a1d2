"""The server process: trusted, runs no user code."""
