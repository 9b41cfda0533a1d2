"""Code of the spawner process of a session, and of the shims of its programs."""
