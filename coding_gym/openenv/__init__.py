"""A client of OpenEnv's coding environment."""
