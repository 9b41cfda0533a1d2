"""Long-running episodes of every behavior, and what grows meanwhile."""
