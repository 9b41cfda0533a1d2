"""Session workspaces and residual files."""
