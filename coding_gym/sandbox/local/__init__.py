"""The local provider."""
