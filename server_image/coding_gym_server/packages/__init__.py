"""Installation of Python packages into a sandbox."""
