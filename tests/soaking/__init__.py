"""Soak test: episodes of every behavior for a long time, and the growth of resource usage."""
