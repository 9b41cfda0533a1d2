"""Grading of submissions: single, in bulk, and in the background of an environment."""
