"""The submission process: applies its isolation profile, then runs submitted code."""
