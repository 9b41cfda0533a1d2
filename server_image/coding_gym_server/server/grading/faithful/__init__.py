"""Grading of submissions in the process of their tests, with canaries that detect forged results."""
