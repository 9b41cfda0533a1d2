"""Watching a running trainer: ``watch`` publishes its environments to ``coding-gym watch``, on this machine only."""
