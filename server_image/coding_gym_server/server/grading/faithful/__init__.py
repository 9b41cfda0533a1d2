"""Grading of submissions in the process of their tests, which ask questions before they are shown."""
