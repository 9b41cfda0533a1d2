"""Server side of the grading of submissions."""
