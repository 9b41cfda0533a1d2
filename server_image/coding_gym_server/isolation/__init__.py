"""What keeps a session's processes away from everything else in the sandbox."""
