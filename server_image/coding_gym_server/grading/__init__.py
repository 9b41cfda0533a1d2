"""Grading: a submission in one process, its hidden tests in another."""
