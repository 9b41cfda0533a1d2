"""Long-running episodes of every behavior, and what grows over time."""
