"""Copies of a worker: what a fork copies faithfully, how the copy is made, and how it becomes a worker again."""
