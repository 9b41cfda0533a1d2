"""The Docker provider."""
