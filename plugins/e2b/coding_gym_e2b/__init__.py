"""E2B's control plane and envd, served from sandboxes of coding_gym: ``coding-gym serve --e2b``."""
