"""The page of ``coding-gym watch``."""
