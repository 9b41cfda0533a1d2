"""A session's screen: Xvfb, the proxy between it and the session's programs, capture, windows, input."""
