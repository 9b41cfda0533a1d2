"""Sessions: an interpreter with its workspace and screen."""
