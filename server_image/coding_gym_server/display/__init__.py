"""Virtual display of a session: Xvfb, the X11 proxy, screen capture, window queries and input injection."""
